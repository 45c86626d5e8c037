"""The table of methods for label logs, which `aggregate`, configuration and command line read."""

from __future__ import annotations

from dataclasses import dataclass

from pmflib.base.defaults import Limits
from pmflib.base.methods import Method, tabulate

LABEL_LIMITS = Limits(tol=1e-4)
"""Limits for passes over label logs; ``tol`` is the share of labels that a pass may still move between classes. On
simulated logs, more passes do not improve the labels."""


@dataclass(frozen=True)
class CrowdMethod(Method):
    """A method that estimates true labels.

    Parameters
    ----------
    block_copies, matrix_copies
        For methods based on pairs of workers: how many times the blocks of all pairs, and a dense matrix of them, are
        in memory at once, including the counts; measured. 0 if not applicable.
    """

    block_copies: int = 0
    matrix_copies: int = 0


CROWD_METHODS = tabulate(
    CrowdMethod(
        "auto",
        "passes",
        "pmflib.apps.crowd.dawid_skene:plan_shrunk",
        "Dawid-Skene with confusion matrices shrunk toward the pooled matrix of equally accurate workers; held-out "
        "labels choose the class prior, whether every class has two subclasses of tasks, or maximum likelihood",
        "workers with accuracy above one half",
    ),
    CrowdMethod(
        "balanced",
        "passes",
        "pmflib.apps.crowd.dawid_skene:plan_balanced",
        "shrunk Dawid-Skene with one subclass and equally probable classes",
        "workers with accuracy above one half",
    ),
    CrowdMethod(
        "one_coin",
        "passes",
        "pmflib.apps.crowd.dawid_skene:plan_one_coin",
        "shrunk Dawid-Skene with one subclass and one accuracy per worker",
        "workers with accuracy above one half",
    ),
    CrowdMethod(
        "dawid_skene",
        "passes",
        "pmflib.apps.crowd.dawid_skene:plan_dawid_skene",
        "Dawid-Skene by maximum likelihood, starting from the votes",
    ),
    CrowdMethod(
        "mv_em",
        "passes",
        "pmflib.apps.crowd.dawid_skene:plan_mv_em",
        "Dawid-Skene by maximum likelihood with equally probable classes and ten passes, as published",
    ),
    CrowdMethod(
        "majority",
        "votes",
        "pmflib.apps.crowd.aggregation:take_majority",
        "shares of the votes",
    ),
    CrowdMethod(
        "robust",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_robust",
        "symmetric factorisation, missing pairs imputed by a robust factorisation",
        "sparse counts of pairs of workers",
        block_copies=9,
        options="pmflib.apps.crowd.co_occurrence:FactorOptions",
    ),
    CrowdMethod(
        "equal_weights",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_equal_weights",
        "symmetric factorisation, missing pairs imputed by a least-squares factorisation",
        "sparse counts of pairs of workers",
        block_copies=9,
        options="pmflib.apps.crowd.co_occurrence:FactorOptions",
    ),
    CrowdMethod(
        "designated",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_designated",
        "symmetric factorisation, missing pairs imputed from all designated workers",
        "a dense matrix of all pairs of workers",
        block_copies=18,
        matrix_copies=23,
        options="pmflib.apps.crowd.co_occurrence:DesignatedOptions",
    ),
    CrowdMethod(
        "one_pair",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_one_pair",
        "symmetric factorisation, missing pairs imputed from one pair of designated workers",
        "a dense matrix of all pairs of workers",
        block_copies=18,
        matrix_copies=9,
        options="pmflib.apps.crowd.co_occurrence:RotationOptions",
    ),
    CrowdMethod(
        "symnmf",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_zero_filled",
        "symmetric factorisation, missing pairs set to zero",
        "sparse counts of pairs of workers",
        block_copies=18,
        options="pmflib.apps.crowd.co_occurrence:RotationOptions",
    ),
    CrowdMethod(
        "multispa",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_extreme_columns",
        "extreme columns of each worker's own pairs",
        "sparse counts of pairs of workers",
        block_copies=7,
        options="pmflib.apps.crowd.co_occurrence:WorkerPairOptions",
    ),
    CrowdMethod(
        "cnmf",
        "pairs",
        "pmflib.apps.crowd.co_occurrence:fit_coupled",
        "coupled factorisation in Kullback-Leibler divergence, from multispa",
        "a dense matrix of all pairs of workers",
        block_copies=18,
        matrix_copies=9,
        options="pmflib.apps.crowd.co_occurrence:CoupledOptions",
    ),
)
"""Methods of `pmflib.apps.crowd.aggregate`, which estimate true labels from a label log.

"votes" uses shares of the votes: called with a `LabelLog`, it returns an `Aggregation`. "passes" iterates over all
tasks, starting from the votes, until the labels converge: called with the limits, it returns a `CrowdPassPlan`. "pairs"
starts from co-occurrences of the workers' labels, followed by passes unless these are disabled: called with
`CoOccurrences`, it returns a `CrowdModel`.
"""

ORDINAL_METHODS = ("auto", "balanced")
"""Methods for label logs with a prior for errors that may depend on the order of classes."""


def list_pipeline_methods() -> dict[str, CrowdMethod]:
    """Return the crowd methods of the pipeline: all except votes, which do not estimate workers."""
    return {name: method for name, method in CROWD_METHODS.items() if method.family != "votes"}
