"""Latent classes of several groups, with conditional PMFs equal over groups for all variables, some, or none.

A variable whose PMFs differ by group becomes several variables, each missing outside its group; the group itself is a
variable whose PMFs are the class shares by group. Every pattern of equality is thus a table with missing cells, which
EM fits without changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_row_order,
    normalise_blocks,
    repeat_blocks,
)
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import OneOf, at_least, check, check_rows
from pmflib.base.display.drawing import Axes
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.base.display.summary import (
    Summarised,
    Summary,
    SummaryTable,
    cut,
    decimal,
    format_count,
)
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import check_rank
from pmflib.base.variance import Variance, weigh_samples
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.latent_classes import Runs, evaluate_models
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.criteria import measure_fit
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.fit_statistics import Criteria
from pmflib.model import JointPMF
from pmflib.papers.metrics import match_factors
from pmflib.schema import Schema, Variable
from pmflib.schema.tables import as_arrow

LEVEL = 0.05
"""False discovery rate of the variables reported to differ."""


@dataclass(frozen=True)
class GroupFit:
    """Classes of all groups under one pattern of equality.

    Parameters
    ----------
    free
        Variables whose PMFs differ by group.
    criteria
        Likelihood of the answers given the group, and its criteria.
    models
        Model of each group, by name, with the same numbering of classes.
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
        Twice the difference of the log-likelihoods, the additional parameters, and the p-value.
    """

    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True)
class VariableDifference:
    """Difference of a variable's PMFs between groups, within classes.

    Parameters
    ----------
    name
        The variable.
    test
        Likelihood ratio test of all PMFs equal, against the PMFs of this variable free.
    adjusted
        P-value adjusted for all variables by Benjamini and Hochberg.
    distance
        Mean over rows of the total variation between the PMFs of their class in their group and over all groups, in
        [0, 1].
    """

    name: str
    test: RatioTest
    adjusted: float
    distance: float

    @property
    def is_distinct(self) -> bool:
        """Whether the difference is significant."""
        return self.adjusted < LEVEL


@dataclass(frozen=True, eq=False)
class GroupComparison(Summarised):
    """Classes of several groups under three patterns of equality.

    Parameters
    ----------
    groups, sizes
        Names of the groups, and their numbers of rows.
    fits
        Fit by pattern: "equal" has all PMFs equal over groups, "partial" some variables free, "free" all of them.
    tests
        "equal" within "partial", and "partial" within "free", by the name of the first.
    differences
        Variables by increasing p-value; empty if they were not tested.
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
        """Pattern with the smallest BIC."""
        return min(self.fits, key=lambda name: self.fits[name].criteria.bic or 0.0)

    @property
    def table(self) -> pa.Table:
        """Differences as an Arrow table with one row per variable."""
        columns: dict[str, list[Any]] = {
            "variable": [each.name for each in self.differences],
            "distance": [each.distance for each in self.differences],
            "adjusted": [each.adjusted for each in self.differences],
        }
        for name in ("statistic", "degrees", "p_value"):
            columns[name] = [getattr(each.test, name) for each in self.differences]
        return pa.table(columns)

    def summary(self) -> Summary:
        """Summary of the three fits, the variables that differ, and the class shares."""
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
        """Plot the profile of a class in all groups side by side: see `pmflib.model.figures.plot_side_by_side`.

        Parameters
        ----------
        state
            The class.
        fit
            Pattern of equality whose models are plotted.
        ax
            Axes to plot on; None creates new ones.

        Raises
        ------
        PmfError
            If matplotlib is not installed, or there is no such class or pattern.
        """
        from pmflib.model.figures import plot_side_by_side

        check(OneOf(self.fits), fit=fit)
        return plot_side_by_side(self.fits[fit].models, state, ax=ax)


MAX_PASSES, TOLERANCE = 5000, 1e-10
"""Limits of a run; comparing the likelihoods of two models needs both at their maximum."""


@reports_progress
def fit_groups(
    samples: object,
    group: object,
    rank: int,
    *,
    schema: Schema | None = None,
    free: Sequence[str | int] | Literal["auto"] = "auto",
    seed: int = 0,
    weight: object | None = None,
) -> GroupComparison:
    """Fit latent classes to several groups, with conditional PMFs equal over groups or not, and compare.

    Class shares always differ by group.

    Parameters
    ----------
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing, or a table.
    group
        Group of each row: texts, or values with distinct texts. Rows without a group are omitted.
    rank
        Number of classes, at least 1.
    schema
        Variables; by default inferred from the samples.
    free
        Variables, by name or position, that are free in the partial pattern; "auto" takes those that differ
        significantly, tested one by one.
    seed
        Seed of the starts.
    weight
        Weights of the samples, numbers as for `pmflib.fit_em`; likelihoods and ratios use the effective number of
        samples.

    Returns
    -------
    Fits by maximum likelihood, tests, and variables that differ.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema, or it has no such variable.
    PmfError
        If there are fewer than two groups, samples are stored, or ``weight`` is a survey design.

    Notes
    -----
    "equal" is one fit with the group as an additional variable; "free" has separate fits, whose classes are matched to
    those of "partial". Each variable is tested with all others equal: if many differ, the others seem to differ a
    little as well. Tests use the chi-squared distribution, which holds for probabilities inside (0, 1) and many rows
    per parameter: for three equal groups of 333 rows, "free" was preferred in .12 of the tests at .05.

    References
    ----------
    Clogg, Goodman (1984), Journal of the American Statistical Association 79; Kankaraš, Moors, Vermunt (2011), "Testing
    for measurement invariance with latent class analysis"; Benjamini, Hochberg (1995), JRSS B 57(1).
    """
    check_rank(rank)
    if isinstance(samples, StoredSamples):
        raise PmfError("samples is stored; groups are compared in memory: samples.read_codes()")
    if isinstance(weight, Variance):
        raise PmfError(
            "weight is a survey design, and likelihood ratios of groups take rows as independent; pass its weights"
        )
    if schema is None:
        schema = Schema.infer(samples)
    codes = schema.encode(samples)
    check_row_order(samples, weight=weight, group=group)
    members, groups = _read_groups(group, len(codes))
    kept, n_rows = members >= 0, len(codes)
    if weight is not None:
        weight = np.asarray(weight)[kept]
    block = weigh_samples(DenseBlock(codes[kept]), weight, schema.weight_decimals)
    members = members[kept]
    table = _GroupTable(block.codes, members, groups, schema, rank, seed, block.weights)
    equal = table.fit_equal()
    fits = {"equal": table.describe(equal, ())}
    differences: tuple[VariableDifference, ...] = ()
    if free == "auto":
        differences = table.test_variables(equal, fits["equal"])
        chosen = {each.name for each in differences if each.is_distinct}
    else:
        chosen = {schema[each].name for each in free}
    names = tuple(name for name in schema.names if name in chosen)
    fits["partial"] = table.describe(table.fit_partial(equal, names), names)
    fits["free"] = table.describe_separate(table.fit_separately(fits["partial"]))
    tests = {one: _test(fits[one].criteria, fits[other].criteria) for one, other in pairwise(fits)}
    return GroupComparison(
        groups,
        tuple(np.bincount(members, minlength=len(groups)).tolist()),
        fits,
        tests,
        differences,
        np.array([fits["partial"].models[name].prior for name in groups]),
        n_rows - len(block),
    )


@dataclass(frozen=True, eq=False)
class _GroupTable:
    """Rows with a group, and their fits under patterns of equality."""

    codes: IntArray
    members: IntArray
    groups: tuple[str, ...]
    schema: Schema
    rank: int
    seed: int
    weights: FloatArray | None

    def load(self, codes: IntArray, rows: BoolArray | slice = slice(None)) -> DenseBlock:
        """Open the samples of some rows, with their weights."""
        return DenseBlock(codes, None if self.weights is None else self.weights[rows])

    @property
    def sizes(self) -> FloatArray:
        """Effective number of samples of each group: float64 of shape (n_groups,)."""
        found: FloatArray = np.bincount(self.members, self.weights, len(self.groups)).astype(float)
        return found

    def spread(self, free: Collection[str]) -> tuple[IntArray, Schema, list[tuple[int, int]]]:
        """Make the table with one column per group for each free variable, and the variable and group of each column.

        The group of a shared column is -1; the last column is the group itself.
        """
        columns, variables, sources = [], [], []
        for position, variable in enumerate(self.schema):
            own = self.codes[:, position]
            if variable.name not in free:
                columns.append(own)
                variables.append(variable)
                sources.append((position, -1))
                continue
            for each in range(len(self.groups)):
                columns.append(np.where(self.members == each, own, -1))
                variables.append(replace(variable, name=f"{variable.name}\0{each}"))
                sources.append((position, each))
        columns.append(self.members)
        variables.append(Variable("\0group", tuple(map(str, range(len(self.groups))))))
        schema = Schema(tuple(variables))
        stacked = np.stack(columns, axis=1).astype(schema.code_dtype)
        return stacked, schema, sources

    def fit_equal(self) -> JointPMF:
        """Fit with all PMFs equal: the best optimum for a table with the group as a variable."""
        codes, schema, _ = self.spread(())
        block = self.load(codes)
        return self._finish(block, [self._search(block, schema)]).sort_states()

    def fit_partial(self, equal: JointPMF, free: Collection[str]) -> JointPMF:
        """Fit with the PMFs of some variables free, starting from those of all groups."""
        if not free:
            return equal
        codes, schema, sources = self.spread(free)
        rows = [equal.factors[self.schema.rows_of(position)] for position, _ in sources]
        factors = np.concatenate([*rows, equal.factors[-len(self.groups) :]])
        return self._finish(self.load(codes), [JointPMF(equal.prior, factors, schema)])

    def fit_separately(self, partial: GroupFit) -> list[JointPMF]:
        """Fit each group by a search and from the partial fit, and match the classes to those of that fit."""
        found = []
        for each, start in enumerate(partial.models.values()):
            rows = self.members == each
            own = self.load(self.codes[rows], rows)
            model = self._finish(own, [start, self._search(own, self.schema)])
            order = match_factors(model.prior, model.factors, start.prior, start.factors)
            placed = np.empty(self.rank, np.int64)
            placed[order] = np.arange(self.rank)
            found.append(JointPMF(model.prior[placed], model.factors[:, placed], self.schema))
        return found

    def test_variables(self, equal: JointPMF, fit: GroupFit) -> tuple[VariableDifference, ...]:
        """Test each variable: its PMFs free, against all PMFs equal."""
        found = []
        for position, variable in enumerate(self.schema):
            model = self.fit_partial(equal, (variable.name,))
            other = self.describe(model, (variable.name,))
            distance = self._measure_distance(position, other, fit)
            found.append((variable.name, _test(fit.criteria, other.criteria), distance))
            report_step(position + 1, self.schema.n_variables, "variables")
        adjusted = _adjust([test.p_value for _, test, _ in found])
        differences = [
            VariableDifference(name, test, value, distance)
            for (name, test, distance), value in zip(found, adjusted, strict=True)
        ]
        return tuple(sorted(differences, key=lambda each: (each.test.p_value, -each.distance)))

    def describe(self, model: JointPMF, free: tuple[str, ...]) -> GroupFit:
        """Models of the groups and likelihood given the group, from a model of the spread table."""
        codes, _, sources = self.spread(free)
        offsets = model.schema.offsets
        models = {}
        for each, name in enumerate(self.groups):
            rows = [
                model.factors[offsets[place] : offsets[place + 1]]
                for place, (_, owner) in enumerate(sources)
                if owner in (-1, each)
            ]
            models[name] = JointPMF(self._share(model, each), np.concatenate(rows), self.schema)
        training = BlocksInMemory.cut(self.load(codes), offsets, self.rank)
        return GroupFit(free, self._given_group(measure_fit(model, training)), models)

    def describe_separate(self, models: Sequence[JointPMF]) -> GroupFit:
        """Describe separate fits, whose likelihoods and parameters add up."""
        found = []
        for each, model in enumerate(models):
            rows = self.members == each
            own = self.load(self.codes[rows], rows)
            training = BlocksInMemory.cut(own, self.schema.offsets, self.rank)
            found.append(measure_fit(model, training))
        whole = replace(
            found[0],
            log_likelihood=sum(each.log_likelihood for each in found),
            entropy=sum(each.entropy for each in found),
            n_rows=sum(each.n_rows for each in found),
            n_empty=sum(each.n_empty for each in found),
            n_parameters=sum(each.n_parameters or 0 for each in found),
            n_cells=self._n_cells,
        )
        return GroupFit(self.schema.names, whole, dict(zip(self.groups, models, strict=True)))

    def _given_group(self, found: Criteria) -> Criteria:
        """Criteria of the answers given the group, without the likelihood of the group itself."""
        sizes = self.sizes
        of_groups = float((sizes * np.log(sizes / sizes.sum())).sum())
        is_empty = (self.codes < 0).all(axis=1)
        n_empty = round(
            float(is_empty.sum() if self.weights is None else self.weights[is_empty].sum())
        )
        return replace(
            found,
            log_likelihood=found.log_likelihood - of_groups,
            n_parameters=(found.n_parameters or 0) - (len(self.groups) - 1),
            n_rows=found.n_rows - n_empty,
            n_empty=n_empty,
            n_cells=self._n_cells,
        )

    @property
    def _n_cells(self) -> float:
        """Number of distinct answers, as degrees of freedom plus 1: the PMF of each group sums to 1."""
        of_one = float(np.prod(np.diff(self.schema.offsets), dtype=np.float64))
        return len(self.groups) * (of_one - 1) + 1

    def _share(self, model: JointPMF, each: int) -> FloatArray:
        """Shares of the classes in a group."""
        joint = model.prior * model.factors[len(model.factors) - len(self.groups) + each]
        return np.asarray(joint / joint.sum())

    def _measure_distance(self, position: int, other: GroupFit, equal: GroupFit) -> float:
        """Mean total variation between the PMFs of a variable by group and those of all groups."""
        total = 0.0
        for each, name in enumerate(self.groups):
            model = other.models[name]
            apart = model.factor(position) - equal.models[name].factor(position)
            held = float(self.sizes[each] / self.sizes.sum())
            total += held * float(model.prior @ (np.abs(apart).sum(axis=0) / 2))
        return total

    def _search(self, block: DenseBlock, schema: Schema) -> JointPMF:
        options = Options.make("auto", 0.0, 1, self.rank)
        return (
            EMFit(schema, self.rank, options, self.seed, Passes())
            .fit_samples(block, None, None)
            .model
        )

    def _finish(self, block: DenseBlock, starts: Sequence[JointPMF]) -> JointPMF:
        """Run EM from each start, and keep the best maximum."""
        schema = starts[0].schema
        training = BlocksInMemory.cut(block, schema.offsets, self.rank)
        held = evaluate_models(training, [(starts[0].prior, starts[0].factors)])[0].level_mass.sum(
            axis=1
        )
        even = 1.0 / repeat_blocks(np.diff(schema.offsets), schema.offsets)
        singles = normalise_blocks(held, schema.offsets, even)
        runs = Runs(training, None, schema.offsets, singles, MAX_PASSES, TOLERANCE, accelerate=True)
        ends = [runs.run("groups", [(each.prior, each.factors)], 0.0) for each in starts]
        best = min(ends, key=lambda state: state.loss_history[-1])
        return JointPMF(*best.parameters, schema)


def _read_groups(group: object, n_rows: int) -> tuple[IntArray, tuple[str, ...]]:
    """Index of the group of each row, -1 for none, and the names of the groups in order."""
    values = as_arrow({"group": group})["group"].to_pylist()
    check_rows(n_rows, group=values)
    names = tuple(sorted({str(each) for each in values if each is not None}))
    check(at_least(2), **{"number of groups": len(names)})
    places = {name: place for place, name in enumerate(names)}
    return np.array([-1 if each is None else places[str(each)] for each in values]), names


def _test(small: Criteria, large: Criteria) -> RatioTest:
    """Likelihood ratio test of one fit within another."""
    from scipy.special import chdtrc

    statistic = max(0.0, 2 * (large.log_likelihood - small.log_likelihood))
    degrees = (large.n_parameters or 0) - (small.n_parameters or 0)
    p_value = float(chdtrc(degrees, statistic)) if degrees > 0 else float("nan")
    return RatioTest(statistic, degrees, p_value)


def _adjust(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Benjamini and Hochberg, in their order; untested ones are 1."""
    values = np.nan_to_num(np.array(p_values), nan=1.0)
    order = np.argsort(-values, kind="stable")
    ranks = np.arange(values.size, 0, -1)
    found = np.empty(values.size)
    found[order] = np.minimum(1.0, np.minimum.accumulate(values[order] * values.size / ranks))
    return [float(each) for each in found]
