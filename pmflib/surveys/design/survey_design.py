"""Survey designs of samples in memory, read from columns of strata and sampling units, or from replicate weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray, check_row_order, find_row_names
from pmflib.base.constraints import check_rows, check_shapes
from pmflib.base.errors import PmfError
from pmflib.base.replicate_weights import ReplicateWeights, join_lone_strata
from pmflib.base.variance import Variance, check_replicates
from pmflib.base.weights import read_weights


class SurveyDesign(Variance):
    """Sampling design of a sample: weights, and strata and sampling units or replicate weights.

    Parameters
    ----------
    weight
        Weights of the samples, numbers above 0 of shape (n_rows,); None is 1 each, and then ``psu``, ``stratum`` or
        ``replicates`` gives the number of rows.
    stratum
        Stratum of each row, texts or numbers of shape (n_rows,); None is one stratum.
    psu
        Primary sampling unit of each row within its stratum, likewise; None takes each row as a unit.
    replicates
        Replicate weights, at least 0, of shape (n_rows, n_replicates), in place of strata and units; each replicate has
        rows above 0.
    method
        Replication method of ``replicates``: "BRR", "Fay", "JK1", "JK2", "JKn" or "bootstrap".
    fay
        Fay's factor, in [0, 1), of "Fay": the share of its weight that the half left out keeps.
    factors
        Numbers above 0 of shape (n_replicates,) of "JKn": (n_h - 1) / n_h of the stratum of the unit left out.
    decimals
        Decimals of the weights that are kept; None as for `pmflib.count_pairs`.

    Attributes
    ----------
    row_names
        Index of the rows, if an argument is a pandas object; otherwise None.
    record
        Factors, degrees of freedom and notes of the design: a `pmflib.base.replicate_weights.ReplicateWeights`.

    Raises
    ------
    PmfError
        If an argument has another number of rows, a weight is not a finite number above 0, a stratum or unit is
        missing, all rows are one unit, or replicates, method, fay and factors do not go together.

    Notes
    -----
    A stratum with a single unit shows no spread: such strata are joined, and a lone one is joined with the stratum
    before it. That overstates variances rather than understates them.

    Units are taken as drawn with replacement: there is no correction for a finite population.

    References
    ----------
    Wolter (2007), Introduction to Variance Estimation, chapters 3 (half samples) and 4 (jackknife); Judkins (1990),
    Journal of Official Statistics 6, for Fay's method; Kott (2001), Journal of Official Statistics 17, for groups.
    """

    def __init__(
        self,
        weight: object | None = None,
        *,
        stratum: object | None = None,
        psu: object | None = None,
        replicates: object | None = None,
        method: str | None = None,
        fay: float | None = None,
        factors: object | None = None,
        decimals: int | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "weight": weight,
            "stratum": stratum,
            "psu": psu,
            "replicates": replicates,
        }
        for name, each in given.items():
            if each is not None and not hasattr(each, "__len__"):
                raise PmfError(f"{name} is {each!r}; pass something for each row")
        known = [len(each) for each in given.values() if each is not None]
        if not known:
            raise PmfError("a design takes a weight, stratum, psu or replicates; all are None")
        n_rows = known[0]
        self.row_names = next(
            (names for each in given.values() if (names := find_row_names(each)) is not None), None
        )
        check_row_order(self, **given)
        check_rows(n_rows, **given)
        weights = read_weights(
            np.ones(n_rows) if weight is None else weight, n_rows, decimals=decimals
        )
        if replicates is None:
            if method is not None or fay is not None or factors is not None:
                raise PmfError(
                    "method, fay and factors are of replicates; pass these, or leave them out"
                )
            units, record = _read_units(n_rows, stratum, psu)
            assert record.strata is not None
            super().__init__(weights, record, units, record.strata, None, self.row_names)
        else:
            if stratum is not None or psu is not None:
                raise PmfError("replicates are given with stratum or psu; they hold these already")
            found = check_replicates(replicates)
            record = ReplicateWeights.of_replicates(method, found.shape[1], fay, factors)
            units, strata = np.arange(n_rows), np.zeros(n_rows, np.int64)
            super().__init__(weights, record, units, strata, found, self.row_names)


def _read_units(n: int, stratum: object, psu: object) -> tuple[IntArray, ReplicateWeights]:
    """Number the sampling units of n rows from 0; strata of a single unit are joined."""
    strata = np.zeros(n, np.int64) if stratum is None else _number("stratum", stratum)
    within = np.arange(n) if psu is None else _number("psu", psu)
    units = np.unique(strata * (int(within.max()) + 1) + within, return_inverse=True)[1]
    of_units = np.zeros(int(units.max()) + 1, np.int64)
    of_units[units] = strata
    joined, n_lone = join_lone_strata(of_units)
    notes: tuple[str, ...] = ()
    if n_lone:
        notes += (
            f"{n_lone} strata have a single unit, and are taken together"
            if n_lone > 1
            else "a stratum has a single unit, and is taken with the one next to it",
        )
    return units.astype(np.int64), ReplicateWeights.of_units(joined, notes=notes)


def _number(name: str, labels: Any) -> IntArray:
    """Number labels in sorted order: int64 of shape (n_rows,)."""
    given = np.asarray(labels)
    check_shapes("pass one label for each row", PmfError, **{name: (given, ("n_rows",))})
    values = given.tolist()
    for row, value in enumerate(values):
        if value is None or value != value:
            raise PmfError(f"{name}[{row}] is missing; name it, or leave the row out")
    if given.dtype == object:
        given = np.array([str(value) for value in values])
    return np.unique(given, return_inverse=True)[1].astype(np.int64)
