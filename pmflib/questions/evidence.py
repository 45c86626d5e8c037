"""What answers rest on: counts of levels and pairs, and models fitted again without each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, ref

import numpy as np

from pmflib.arrays import IntArray, Parameters
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import SchemaError
from pmflib.model import JointPMF

MAX_WORK = 5_000_000
"""Levels squared times rank of the largest model that is fitted again without each fold: 40 seconds for 16 folds."""

Refits = tuple[Sequence[JointPMF], str]
"""Models without each fold; or none, and why."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Data that a model was fitted to, as far as answers speak of them.

    Parameters
    ----------
    n_rows
        Samples.
    singles
        int64 of shape (n_levels,): samples that hold each level.
    read_pairs
        Given level indices of shape (n,), gives int64 of shape (n, n), symmetric: samples that hold each two of them.
        None where pairs are not known.
    refit
        Gives the models without each fold, or says why there are none.
    """

    n_rows: int
    singles: IntArray
    read_pairs: Callable[[IntArray], IntArray] | None
    refit: Callable[[], Refits]

    @classmethod
    def of_counts(cls, counts: PairCounts, model: JointPMF) -> Evidence:
        """Take counts in memory; models without each fold are fitted when first asked for, and kept with the model.

        Raises
        ------
        SchemaError
            If counts and model are of different schemas.
        """
        if counts.schema.digest != model.schema.digest:
            raise SchemaError("model and counts are of different schemas; take both from one run")

        def read_pairs(levels: IntArray) -> IntArray:
            upper: IntArray = counts.tables[:, levels[:, None], levels[None, :]].sum(axis=0)
            # only one of the two triangles of the whole table is filled
            return np.maximum(upper, upper.T)

        n_rows = int(counts.n_rows.sum())
        return cls(n_rows, counts.count_levels(), read_pairs, lambda: _refit_once(counts, model))


def make_models(parameters: Parameters, model: JointPMF) -> list[JointPMF]:
    """Models of stacked parameters: priors (n_folds, rank) and factors (n_folds, n_levels, rank)."""
    return [
        JointPMF(prior, factors, model.schema) for prior, factors in zip(*parameters, strict=True)
    ]


def explain_no_refits(model: JointPMF, n_folds: int) -> str:
    """Why a model is not fitted again without each fold; "" if it is."""
    if n_folds < 2:
        return f"{n_folds} fold of the counts holds samples, and standard errors need 2"
    if why := model.unsupported.get("refits"):
        return why
    work = model.schema.n_levels**2 * model.rank
    if work > MAX_WORK:
        return (
            f"{model.schema.n_levels:,} levels squared times rank {model.rank} are {work:,}, above {MAX_WORK:,}, up to "
            "which the model is fitted again without each fold"
        )
    return ""


_KEPT: WeakKeyDictionary[JointPMF, tuple[ref[PairCounts], Refits]] = WeakKeyDictionary()
"""Fits without each fold, with the counts that they are of, while the model is in memory."""


def _refit_once(counts: PairCounts, model: JointPMF) -> Refits:
    kept = _KEPT.get(model)
    if kept is None or kept[0]() is not counts:
        kept = _KEPT[model] = (ref(counts), _refit(counts, model))
    return kept[1]


def _refit(counts: PairCounts, model: JointPMF) -> Refits:
    if why := explain_no_refits(model, int(np.count_nonzero(counts.n_rows))):
        return (), why
    # the solver takes a while to import, and most questions have their fits already
    from pmflib.diagnosis.jackknife import refit_without_folds

    return make_models(refit_without_folds(counts, model), model), ""
