"""How many kinds of items classes have: passes with one and with two, and the choice between them."""

from __future__ import annotations

from pmflib.crowd.passes import CrowdFit, Evaluate, begin_with_votes
from pmflib.crowd.runs import Keep, Recall, forget, judge_by, make_run
from pmflib.solvers.annotators import Rule, measure_divergence, split_kinds

DECISIVE = 10.0
"""Nats by which all answers must be likelier with a second kind of items for it to be told apart."""


def fit_kinds(
    evaluate: Evaluate,
    n_annotators: int,
    rule: Rule,
    *,
    n_classes: int,
    max_passes: int = 100,
    tol: float = 1e-5,
    keep: Keep = forget,
    recall: Recall = forget,
) -> CrowdFit:
    """Estimate annotators by passes from the votes on, and how many kinds of items there are.

    Passes are made as if all items of a class were alike. Where the rule allows it, others are made as if they were of
    two kinds, in equal parts at first: those that annotators answer as the votes have it, and those that they blur.
    These are taken if they make the answers clearly likelier, what it takes to know more parameters counted in.

    Parameters
    ----------
    evaluate, n_annotators, rule, n_classes, max_passes, tol
        As for `run_passes`.
    keep, recall
        As for `make_run`.

    Returns
    -------
    The passes that were taken.

    Notes
    -----
    Where items differ otherwise than in their class, by how hard they are or by what they look like, answers depend on
    each other given the class. Passes with a state per class then use the states for that: two classes come to share
    one, and a class to fill two. With states to spare, classes stay what the votes say they are.

    A pass with two kinds takes about twice the time and the memory.

    References
    ----------
    Kim, Ghahramani (2012), Bayesian classifier combination, where items are easy or hard; Vermunt, Magidson (2002),
    Latent class cluster analysis, on more states instead of dependence between answers.
    """
    plain = begin_with_votes(evaluate, n_annotators, rule, n_classes)
    run = make_run(evaluate, plain.annotators, tol, keep=keep, recall=recall)
    alike = run(plain, max_passes)
    if rule.kinds == 1 or n_classes < 2 or not plain.answers.any():
        return alike
    apart = run(split_kinds(plain.annotators), max_passes)
    gained = _find_evidence(evaluate, apart) - _find_evidence(evaluate, alike)
    return apart if gained > DECISIVE else alike


def _find_evidence(evaluate: Evaluate, fit: CrowdFit) -> float:
    """Lower bound of the logarithm of the probability of the answers, nats; of votes and answers together."""
    known = fit.annotators
    return judge_by(evaluate)(known) - measure_divergence(known, fit.answers)
