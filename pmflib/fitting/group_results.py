"""What a comparison of latent classes over groups has found: fits, tests, and which variables differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pmflib.core.arrays import FloatArray
from pmflib.core.errors import PmfError
from pmflib.display.drawing import Axes
from pmflib.display.summary import Summarised, Summary, SummaryTable, cut, decimal, format_count
from pmflib.fitting.fit_statistics import Criteria
from pmflib.model import JointPMF

LEVEL = 0.05
"""Share of false discoveries that is allowed among the variables that are said to differ."""


@dataclass(frozen=True)
class GroupFit:
    """Classes of all groups under one pattern of equality.

    Parameters
    ----------
    free
        Variables whose PMFs differ by group.
    criteria
        Likelihood of the answers given the group, and what is made of it.
    models
        The model of each group, by name: classes have the same numbers in all.
    """

    free: tuple[str, ...]
    criteria: Criteria
    models: Mapping[str, JointPMF]


@dataclass(frozen=True)
class RatioTest:
    """A likelihood ratio test of one pattern of equality within another.

    Parameters
    ----------
    statistic, degrees, p_value
        Twice the difference of the log-likelihoods, parameters more, and the chance of as much if the equality holds.
    """

    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True)
class VariableDifference:
    """How a variable's PMFs differ between groups, within classes.

    Parameters
    ----------
    name
        The variable.
    test
        Likelihood ratio test: all PMFs equal, against those of this variable free.
    adjusted
        P-value for all variables taken together, by Benjamini and Hochberg.
    distance
        Mean over rows of the total variation between the PMF of their class in their group and in all: in [0, 1].
    """

    name: str
    test: RatioTest
    adjusted: float
    distance: float

    @property
    def is_distinct(self) -> bool:
        """Whether it differs beyond chance."""
        return self.adjusted < LEVEL


@dataclass(frozen=True, eq=False)
class GroupComparison(Summarised):
    """Classes of several groups under three patterns of equality.

    Parameters
    ----------
    groups, sizes
        Names of the groups, and their rows.
    fits
        By pattern: "equal", all PMFs equal over groups; "partial", those of some variables free; "free", all.
    tests
        "equal" within "partial", and "partial" within "free", by the name of the first.
    differences
        Variables by rising p-value; none if they were not tested.
    shares
        float64 of shape (n_groups, rank): shares of the classes in each group, under "partial".
    n_left_out
        Rows without a group.
    """

    groups: tuple[str, ...]
    sizes: tuple[int, ...]
    fits: Mapping[str, GroupFit]
    tests: Mapping[str, RatioTest]
    differences: tuple[VariableDifference, ...]
    shares: FloatArray
    n_left_out: int

    @property
    def best(self) -> str:
        """Pattern of the least BIC."""
        return min(self.fits, key=lambda name: self.fits[name].criteria.bic or 0.0)

    @property
    def table(self) -> pa.Table:
        """Differences as an Arrow table, a row per variable."""
        columns: dict[str, list[Any]] = {
            "variable": [each.name for each in self.differences],
            "distance": [each.distance for each in self.differences],
            "adjusted": [each.adjusted for each in self.differences],
        }
        for name in ("statistic", "degrees", "p_value"):
            columns[name] = [getattr(each.test, name) for each in self.differences]
        return pa.table(columns)

    def summary(self) -> Summary:
        """The three fits, which variables differ, and the shares of the classes: text, or HTML in a notebook."""
        names = {"equal": "all equal", "partial": "some free", "free": "none equal"}
        rows = []
        for name, fit in self.fits.items():
            criteria, test = fit.criteria, self.tests.get(name)
            said = ("", "")
            if test is not None:
                said = (f"{decimal(test.statistic)} ({test.degrees})", decimal(test.p_value, 2))
            values = (decimal(criteria.log_likelihood, 8), format_count(criteria.n_parameters or 0))
            rows.append((names[name], *values, decimal(criteria.bic or 0.0, 8), *said))
        heads = ("PMFs over groups", ">log-likelihood", ">parameters", ">BIC", ">ratio (df)", ">p")
        fits = SummaryTable("Equality, each tested within the next", heads, rows, len(rows))
        tested = [
            (
                cut(each.name),
                f"{each.distance:.3f}",
                f"{decimal(each.test.statistic)} ({each.test.degrees})",
                decimal(each.test.p_value, 2),
                decimal(each.adjusted, 2),
            )
            for each in self.differences
        ]
        columns = ("variable", ">distance", ">ratio (df)", ">p", ">p of all")
        title = "Variables that differ between groups within classes"
        different = SummaryTable(title, columns, tested, len(tested), "differences")
        shared = [
            (cut(name), format_count(size), *(f"{share:.3f}" for share in own))
            for name, size, own in zip(self.groups, self.sizes, self.shares, strict=True)
        ]
        names_of = ("group", ">rows", *(f">class {each}" for each in range(self.shares.shape[1])))
        shares = SummaryTable("Shares of the classes", names_of, shared, len(shared), "shares")
        free = self.fits["partial"].free
        facts = (
            ("least BIC", names[self.best]),
            ("free in part", ", ".join(map(cut, free)) or "none"),
            ("rows without a group", format_count(self.n_left_out)),
        )
        return Summary(
            f"{self.shares.shape[1]} latent classes of {len(self.groups)} groups",
            facts,
            (),
            (fits, different, shares),
        )

    def plot(self, state: int, *, fit: str = "free", ax: Axes | None = None) -> Axes:
        """Draw the profile of a class in all groups, side by side: see `pmflib.model.figures.plot_side_by_side`.

        Parameters
        ----------
        state
            The class.
        fit
            Pattern of equality whose models are drawn.
        ax
            Axes to draw on; None makes some.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or there is no such class or pattern.
        """
        from pmflib.model.figures import plot_side_by_side

        if fit not in self.fits:
            raise PmfError(f"fit is {fit!r}; give one of {tuple(self.fits)}")
        return plot_side_by_side(self.fits[fit].models, state, ax=ax)
