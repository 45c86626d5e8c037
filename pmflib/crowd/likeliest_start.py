"""Where passes over label logs begin: the likeliest of a given start, the votes, and both with classes cut anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from pmflib.arrays import FloatArray
from pmflib.crowd.passes import MAX_PASSES, TOLERANCE, CrowdFit, Evaluate
from pmflib.crowd.screening import Keep, Recall, forget, make_run
from pmflib.solvers.crowd.annotator_model import Annotators

SCREENING = 50
"""Passes from each start, before the likeliest goes on; after ten, one that ends higher may still be behind."""
ROUNDS = 5
"""Limit of how often classes are cut anew."""
HALVINGS = 2
"""Random halvings of each class that are tried."""
MARGIN = 1.0
"""Nats by which all answers must be likelier from another start for it to be preferred."""
APART = 0.5
"""Standard deviation of the logarithms that tell the halves of a class apart at first."""


def begin_passes(
    evaluate: Evaluate,
    start: Annotators,
    rng: np.random.Generator,
    *,
    max_passes: int = MAX_PASSES,
    tol: float = TOLERANCE,
    keep: Keep = forget,
    recall: Recall = forget,
) -> CrowdFit:
    """Make the first passes, from where they make the answers likeliest.

    50 passes are made from the start, and 50 from the shares of the votes. Of where the likelier of them have come to,
    each class is split in two at random, twice, and of the others those two are merged whose merging costs least; 50
    passes are made from each. The likeliest go on, and so forth, until no cut is likelier than going on without.

    Parameters
    ----------
    evaluate
        Statistics of the items.
    start
        Annotators, such as from `fit_moments`.
    rng
        Draws how the halves of a class differ.
    max_passes, tol
        Of the passes that these begin; as for `run_passes`.
    keep, recall
        As for `make_run`.

    Returns
    -------
    The passes from the likeliest start, to go on from.

    Notes
    -----
    Passes climb to the nearest maximum. Co-occurrences of few answers are noise, and passes from the votes do better.
    With rare classes both may lead to where a frequent class is split and rare ones are merged: no small step leads out
    of there, but cutting anew does. It takes three classes.

    50 passes for each start; and up to five times, most often once, 100 for each class and 50 for going on. They are
    fewer where passes settle before.

    References
    ----------
    Biernacki, Celeux, Govaert (2003), Computational Statistics & Data Analysis 41, for short runs from several starts;
    Ueda, Nakano, Ghahramani, Hinton (2000), Neural Computation 12, for splitting and merging.
    """
    first = min(SCREENING, max_passes)

    run = make_run(evaluate, start, tol, keep=keep, recall=recall)
    here = _take_likeliest([run(start, first), run(None, first)])
    for _ in range(ROUNDS):
        stay = run(here, min(len(here.moved) + SCREENING, max_passes))
        cuts = [_match_classes(run(cut, first)) for cut in _cut_classes(stay.annotators, rng)]
        here = _take_likeliest([stay, *cuts])
        if here is stay:
            break
    return here


def _take_likeliest(fits: Sequence[CrowdFit]) -> CrowdFit:
    """The fit that makes the answers likeliest; the first if no other does by a margin."""
    best = max(fits, key=_weigh)
    return best if _weigh(best) > _weigh(fits[0]) + MARGIN else fits[0]


def _weigh(fit: CrowdFit) -> float:
    """Log-likelihood of all items, nats."""
    return fit.log_likelihoods[-1] * float(fit.annotators.states.sum())


def _cut_classes(known: Annotators, rng: np.random.Generator) -> Iterator[Annotators]:
    """Annotators with each class split in turn, and its second half in the place of one of two others, merged."""
    mass, states = known.mass, known.states
    costs = {
        pair: _cost_merging(mass, states, *pair) for pair in combinations(range(states.size), 2)
    }
    for split in np.repeat(range(states.size if states.size > 2 else 0), HALVINGS):
        kept, freed = min((pair for pair in costs if split not in pair), key=costs.__getitem__)
        new, sizes = mass.copy(), states.copy()
        new[:, :, kept] += mass[:, :, freed]
        sizes[kept] += states[freed]
        drawn = rng.normal(0.0, APART, mass.shape[:2])
        new[:, :, split] = _tilt(mass[:, :, split] / 2, drawn)
        new[:, :, freed] = _tilt(mass[:, :, split] / 2, -drawn)
        sizes[[split, freed]] = states[split] / 2
        yield replace(known, mass=new, states=sizes)


def _cost_merging(mass: FloatArray, states: FloatArray, one: int, other: int) -> float:
    """How much likelier, in nats, answers and classes are with two classes apart."""

    def measure(answers: FloatArray, size: float) -> float:
        totals = answers.sum(axis=1)
        return float(
            xlogy(answers, answers).sum() - xlogy(totals, totals).sum() + xlogy(size, size)
        )

    first, second = mass[:, :, one], mass[:, :, other]
    apart = measure(first, states[one]) + measure(second, states[other])
    return apart - measure(first + second, states[one] + states[other])


def _tilt(answers: FloatArray, logs: FloatArray) -> FloatArray:
    """As many answers of each annotator, (n_annotators, n_classes), of some kinds more and of some fewer."""
    tilted = answers * np.exp(logs)
    totals = tilted.sum(axis=1, keepdims=True)
    ratio = answers.sum(axis=1, keepdims=True) / np.where(totals > 0, totals, 1.0)
    return np.asarray(tilted * ratio)


def _match_classes(fit: CrowdFit) -> CrowdFit:
    """Put the classes in the order in which annotators are best on the whole: halves of a class have no name yet."""
    known = fit.annotators
    gains = np.einsum("mac,m->ac", known.confusion, known.mass.sum(axis=(1, 2)))
    columns = linear_sum_assignment(-gains)[1]
    ordered = replace(known, mass=known.mass[:, :, columns], states=known.states[columns])
    return replace(fit, annotators=ordered, answers=fit.answers[:, columns])
