"""The best items for every sample: those with the highest expected value, or probability of some levels.

Items are variables, such as movies. The value of an item for a sample is predicted from the other answers of the
sample, by a model or by a regression on counts of pairs (`pmflib.apps.recommending.item_regression`). Expected values
alone may put items first that few samples have answered: `at_least` and `penalty` limit that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.answering.question import Question, bind_question, parse_question
from pmflib.apps.recommending.item_regression import ItemRegression, regress_items
from pmflib.apps.recommending.options import Recommendations
from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_model_type,
    list_owners,
    sum_blocks,
)
from pmflib.base.codes import Codes
from pmflib.base.constraints import OneOf, check, check_schemas
from pmflib.base.errors import PmfError, QuestionError, SchemaError
from pmflib.base.texts import abridge_names
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.zarr_tables import StoredTables
from pmflib.model.measures import TargetSums
from pmflib.model.mixture import Mixture
from pmflib.model.table_makers import ScoreOptions, digest_model
from pmflib.schema import Schema
from pmflib.schema.tables import as_arrow

DEFAULTS = Recommendations()
ITEM = "item"
"""Name that stands for each item in the question of its value."""
BATCH_ROWS = 8192
"""Maximum number of samples whose posteriors are computed at a time."""
BATCH_VALUES = 1 << 20
"""Maximum number of values in memory at a time: 8 MiB."""
LEAST_FACTOR = 1e-150
"""Floor of the factors by which a posterior is divided; its inverse times any probability is finite."""


class Recommender:
    """Recommender of items to samples.

    Parameters
    ----------
    model
        The model. Traits are folded in, and forests are taken into account.
    requested
        Options.
    n_ratings
        int64 of shape (n_variables,): number of ratings of each item, as from `count_ratings`; None if unknown.
    metadata
        Metadata of every table by name: the model and its run.
    counts
        Counts of pairs, or codes to count, from which the values are predicted if the options say so.

    Raises
    ------
    SchemaError
        If an item is no variable, or has no value or no such level.
    QuestionError
        If the value is no question about the item alone, or an expected value while counts of pairs predict.
    PmfError
        If ratings are needed and not known, or no item is a candidate; or as for `regress_items`.
    """

    def __init__(
        self,
        model: Mixture,
        requested: Recommendations = DEFAULTS,
        n_ratings: IntArray | None = None,
        metadata: Mapping[str, str] | None = None,
        counts: PairCounts | StoredTables | IntArray | None = None,
    ) -> None:
        self.model, self.requested, self.options = model, requested, ScoreOptions()
        if n_ratings is None and (requested.at_least or requested.penalty):
            raise PmfError(
                "at_least and penalty need the number of ratings of each item; pass ratings"
            )
        self._absent = find_absent(model.schema)
        self._items = _choose_items(model.schema, requested, n_ratings)
        if isinstance(counts, StoredTables) and not counts.is_complete:
            self._items = _keep_counted(self._items, counts)
        self._n_ratings = n_ratings
        self._levels, self._answered = _weigh_levels(model.schema, self._items, requested.value)
        self._regression = None
        if requested.source == "counts":
            assert counts is not None
            self._regression = self._regress(counts)
        self._groups = _number_groups(model.schema, requested.groups)[self._items]
        self.top = min(requested.top, self._items.size)
        self._names = pa.array([model.schema.names[each] for each in self._items], pa.string())
        facts = {
            "model": digest_model(model),
            "schema": model.schema.digest,
            "value": requested.value,
            "source": requested.source,
            **(metadata or {}),
        }
        self.metadata = {f"pmf.{name}": text for name, text in facts.items()}
        sizes = model.schema.cardinalities[self._items]
        self._first = model.schema.offsets[self._items]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def facts(self) -> Mapping[str, object]:
        """Number of candidates, and the options; of a regression, its ridge parameter."""
        facts = {
            "candidates": int(self._items.size),
            "top": self.top,
            "value": self.requested.value,
        }
        if self._regression is None:
            return facts
        return {**facts, "source": "counts", "ridge": round(self._regression.ridge)}

    def score(
        self, codes: IntArray, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Recommend items to samples.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.
        origins
            Columns that identify the samples.

        Returns
        -------
        Table with a row for each sample and item, samples in order and the best items first: the origins; rank, from 1;
        item; value; ratings, the number of ratings of the item, if known; answers, the number of items that the sample
        has answered. With 0 answers, values are marginals, the same for all such samples. And no sums, because no
        target is predicted.
        """
        found: list[IntArray] = [np.empty((0, 3), np.int64)]
        values: list[FloatArray] = [np.empty(0)]
        n_answers = np.empty(len(codes), np.int32)
        for start in range(0, len(codes), BATCH_ROWS):
            part = self.model.schema.check_codes(codes[start : start + BATCH_ROWS])
            posteriors = self._find_posteriors(part)
            step = max(1, BATCH_VALUES // self._items.size)
            for first in range(0, len(part), step):
                rows = slice(first, first + step)
                seen = (part[rows] >= 0) & (part[rows] != self._absent)
                n_answers[start + first : start + first + len(seen)] = seen.sum(axis=1)
                expected = self._value(part[rows], None if posteriors is None else posteriors[rows])
                cells = self._select(expected, seen[:, self._items])
                values.append(expected[cells[:, 0], cells[:, 1]])
                cells[:, 0] += start + first
                found.append(cells)
        rows, items, ranks = np.concatenate(found).T
        columns: dict[str, pa.Array] = {
            name: column.take(pa.array(rows)) for name, column in (origins or {}).items()
        }
        columns["rank"] = pa.array(ranks.astype(np.int32))
        columns["item"] = pa.DictionaryArray.from_arrays(
            pa.array(items.astype(np.int32)), self._names
        )
        columns["value"] = pa.array(np.concatenate(values))
        if self._n_ratings is not None:
            columns["ratings"] = pa.array(self._n_ratings[self._items[items]])
        columns["answers"] = pa.array(n_answers[rows])
        return pa.table(columns).replace_schema_metadata(self.metadata), []

    def _regress(self, counts: PairCounts | StoredTables | IntArray) -> ItemRegression:
        """Fit a regression of all variables that have the levels and enough ratings, candidates or not."""
        schema, value = self.model.schema, self.requested.value
        if parse_question(value).measure != "P":
            raise QuestionError(
                f"value is {value!r}; counts of pairs predict whether levels are answered: give P(item>=4), for example"
            )
        holds = np.zeros(schema.n_levels, np.bool_)
        for position in range(schema.n_variables):
            if self._n_ratings is None or self._n_ratings[position] >= self.requested.at_least:
                # variables without the levels, such as the age among movies, are no items
                with suppress(QuestionError):
                    levels, _ = _weigh_levels(schema, np.array([position]), value)
                    holds[schema.rows_of(position)] = levels > 0
        if isinstance(counts, StoredTables):
            holds[~np.isin(list_owners(schema.offsets), counts.counted)] = False
        return regress_items(counts, schema, holds)

    @property
    def _is_mixture(self) -> bool:
        """Whether variables are independent within states."""
        return self.model.is_mixture

    def _find_posteriors(self, codes: IntArray) -> FloatArray | None:
        uses_states = self._is_mixture and self._regression is None
        return self.model.posterior(Codes(codes)) if uses_states else None

    def _value(self, codes: IntArray, posteriors: FloatArray | None) -> FloatArray:
        """Compute the value of each candidate for each sample, given its other answers."""
        from pmflib.apps.recommending.kernels.recommending import expect_values

        if self._regression is not None:
            columns = np.searchsorted(self._regression.positions, self._items)
            return self._regression.predict(codes)[:, columns]
        if posteriors is not None:
            out = np.empty((len(codes), self._items.size))
            own = np.ascontiguousarray(codes[:, self._items])
            expect_values(own, self._first, posteriors, *self._tables, out)
            return out
        out = np.full((len(codes), self._items.size), -np.inf)
        column_of = np.full(self.model.schema.n_variables, -1)
        column_of[self._items] = np.arange(self._items.size)
        for position, rows, chances in self.model.predict_gaps(codes):
            if column_of[position] >= 0:
                self._fill(out, rows, int(column_of[position]), chances)
        wanted = codes[:, self._items] >= 0
        if self.requested.exclude == "seen":
            wanted &= codes[:, self._items] == self._absent[self._items]
        for column in np.flatnonzero(wanted.any(axis=0)).tolist():
            rows = np.flatnonzero(wanted[:, column])
            chances = self.model.predict_proba(Codes(codes[rows]), int(self._items[column]))
            self._fill(out, rows, column, chances)
        return out

    def _fill(self, out: FloatArray, rows: IntArray, column: int, chances: FloatArray) -> None:
        """Fill in the values of an item from its PMFs, level by level."""
        mine = slice(self._starts[column], self._starts[column + 1])
        above, below = np.zeros(rows.size), np.zeros(rows.size)
        for level, value, answered in zip(
            chances.T, self._levels[mine], self._answered[mine], strict=False
        ):
            above += level * value
            below += level * answered
        out[rows, column] = np.where(below > 0, above / np.where(below > 0, below, 1.0), -np.inf)

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Numerators and denominators of the values by item and state, and inverses of the factors."""
        stacked = np.concatenate([self.model.factor(each) for each in self._items.tolist()])
        above = sum_blocks(stacked * self._levels[:, None], self._starts)
        below = sum_blocks(stacked * self._answered[:, None], self._starts)
        return above, below, 1.0 / np.maximum(self.model.factors, LEAST_FACTOR)

    def _select(self, values: FloatArray, seen: BoolArray) -> IntArray:
        """Choose the items of each sample: (row, candidate, rank), int64 of shape (n_found, 3)."""
        from pmflib.apps.recommending.kernels.recommending import select_best

        order = values.copy()
        if self.requested.penalty:
            assert self._n_ratings is not None
            ratings = np.maximum(self._n_ratings[self._items], 1)
            order -= self.requested.penalty * np.log10(ratings)
        if self.requested.exclude == "seen":
            order[seen] = -np.inf
        items, n_found = (
            np.empty((len(values), self.top), np.int32),
            np.empty(len(values), np.int64),
        )
        select_best(order, self._groups, self.requested.most_per_group or self.top, items, n_found)
        rows, ranks = np.nonzero(np.arange(self.top) < n_found[:, None])
        return np.stack([rows, items[rows, ranks], ranks + 1], axis=1).astype(np.int64)


def recommend(
    model: Mixture,
    samples: object,
    *,
    top: int = 20,
    value: str = "E(item)",
    exclude: str | Sequence[str] = "seen",
    items: Sequence[str] | None = None,
    at_least: int = 0,
    penalty: float = 0.0,
    ratings: Mapping[str, int] | None = None,
    groups: Mapping[str, str] | None = None,
    most_per_group: int | None = None,
    counts: object | None = None,
) -> pa.Table:
    """Recommend the items with the highest values to each sample.

    Parameters
    ----------
    model
        A fitted model, whose variables are the items. With ``counts``, its schema alone is used.
    samples
        Codes of shape (n_samples, n_variables), -1 missing, or a table that the schema can encode; columns may be
        absent. Samples need not be those of the fit: a few answers are enough, and none give the model's marginals.
    top
        Number of items for each sample, at least 1; fewer if it has fewer candidates.
    value
        Question of the value of an item, which is called ``item``: "E(item)", its expected value if it is answered, or
        the probability of some levels, as "P(item>=4)", "P(item in {4, 5})" or "P(item=yes)".
    exclude
        "seen" leaves out the items that a sample has answered, "none" leaves out nothing; names of items are left out
        besides those.
    items
        Names of the candidates; all variables by default.
    at_least
        Minimum number of ratings of a candidate.
    penalty
        Subtracted from the value, for the order of items, for each factor of ten in their number of ratings.
    ratings
        Number of ratings of each item, for ``at_least`` and ``penalty``; by default of ``counts``, or else counted in
        the samples.
    groups, most_per_group
        Group of each item, and the maximum number of items of a group for each sample.
    counts
        `PairCounts` in at least two folds, or samples to count. If given, values are predicted from them, not by the
        model: whether a sample has the levels that ``value`` asks for of an item is regressed on whether it has
        those of the others (ridge regression, its parameter chosen on held-out samples). Missing answers count as other
        levels. Values are not limited to 0 to 1; a sample without any of the levels gets their shares of all samples.
        Variables that lack the levels, or have fewer than ``at_least`` ratings, predict nothing.

    Returns
    -------
    Arrow table with a row for each sample and item, in the order of the samples and the best items first: row (position
    of the sample), rank (from 1), item, value, ratings and answers (number of items that the sample has answered).
    Equal values are in the order of the schema. Values are predicted from the other answers of a sample.

    Raises
    ------
    SchemaError
        If an item is no variable, has no value or no such level, or the samples do not fit the schema.
    QuestionError
        If the value is no question about the item alone, or an expected value while counts are given.
    PmfError
        If an option is out of range, no item is a candidate, or the counts have a single fold.
    MemoryPlanError
        If there are too many items for a regression on each other.

    References
    ----------
    Steck (2019), "Embarrassingly shallow autoencoders for sparse data", for the regression on counts.
    """
    check_model_type("model", model, Mixture)
    schema = model.schema
    codes = _encode(schema, samples)
    if counts is not None and not isinstance(counts, PairCounts):
        counts = _encode(schema, counts)
    if isinstance(counts, PairCounts):
        check_schemas(model=schema, counts=counts)
        n_ratings = sum_ratings(counts.to_samples().count_levels(), schema)
    else:
        n_ratings = count_ratings(codes if counts is None else counts, schema)
    if ratings is not None:
        for name in ratings:
            schema.position(name)
        n_ratings = np.array([ratings.get(name, 0) for name in schema.names], np.int64)
    requested = Recommendations(
        top=top,
        value=value,
        exclude=exclude if isinstance(exclude, str) else "seen",
        items=None if items is None else tuple(items),
        not_items=() if isinstance(exclude, str) else tuple(exclude),
        at_least=at_least,
        penalty=penalty,
        groups=tuple((groups or {}).items()),
        most_per_group=most_per_group,
        source="model" if counts is None else "counts",
    )
    scorer = Recommender(model, requested, n_ratings, counts=counts)
    return scorer.score(codes, {"row": pa.array(np.arange(len(codes)))})[0]


def _encode(schema: Schema, samples: object) -> IntArray:
    """Encode codes or a table, whose columns may be absent but for one."""
    if isinstance(samples, np.ndarray):
        return schema.encode(samples)
    table = as_arrow(samples, {*schema.columns, *schema.names})
    given = {*table.column_names}
    lacking = [each.name for each in schema if not given & {each.name, each.column}]
    if len(lacking) == schema.n_variables:
        raise SchemaError(
            f"samples have no column of a variable; there are {abridge_names(table.column_names)}, and the "
            f"variables are {abridge_names(schema.names)}"
        )
    return schema.encode(table, optional=lacking)


def find_absent(schema: Schema) -> IntArray:
    """Return the code of the level `absent` of each variable, -1 without one."""
    return np.array(
        [-1 if each.absent is None else each.levels.index(each.absent) for each in schema], np.int64
    )


def count_ratings(codes: IntArray, schema: Schema) -> IntArray:
    """Count the samples that have answered each variable, by a level other than `absent`: int64 (n_variables,)."""
    counted: IntArray = ((codes >= 0) & (codes != find_absent(schema))).sum(axis=0)
    return counted


def sum_ratings(level_counts: IntArray, schema: Schema) -> IntArray:
    """Sum the numbers of samples by level, (n_levels,), to those of `count_ratings`, rounded."""
    absent = find_absent(schema)
    given = level_counts.copy()
    given[(schema.offsets[:-1] + absent)[absent >= 0]] = 0
    return np.rint(sum_blocks(given, schema.offsets)).astype(np.int64)


def _choose_items(
    schema: Schema, requested: Recommendations, n_ratings: IntArray | None
) -> IntArray:
    """Return the positions of the candidates, in the order of the schema."""
    known = OneOf(dict.fromkeys(schema.names))
    for argument, names in (("items", requested.items or ()), ("exclude", requested.not_items)):
        for name in names:
            check(known, SchemaError, **{argument: name})
    wanted = {*(schema.names if requested.items is None else requested.items)}
    unwanted = {*requested.not_items}
    able = np.array([name in wanted and name not in unwanted for name in schema.names])
    if n_ratings is not None:
        able &= n_ratings >= requested.at_least
    if not able.any():
        raise PmfError(
            f"no item is left to recommend: of {schema.n_variables} variables, {len(unwanted)} are excluded and others "
            f"are not in items or have fewer than at_least={requested.at_least} ratings"
        )
    return np.flatnonzero(able)


def _keep_counted(items: IntArray, tables: StoredTables) -> IntArray:
    """Leave out candidates whose pairs are not counted, which nothing predicts."""
    counted = np.intersect1d(items, tables.counted)
    if not counted.size:
        raise PmfError(
            "no item is left to recommend: the pairs of none are counted; recommend by the model (source='model'), or "
            "name items in counts.variables of the pipeline"
        )
    return counted


def _weigh_levels(schema: Schema, items: IntArray, value: str) -> tuple[FloatArray, FloatArray]:
    """Return, by level of the candidates, its part in the value, and whether it counts in the denominator."""
    asked = parse_question(value)
    terms = [term for group in asked.groups for term in group]
    wanted = "E(item), or the probability of levels as P(item>=4)"
    if len(terms) != 1 or asked.given or terms[0].name.text != ITEM:
        raise QuestionError(
            f"value is {value!r}; pass {wanted}: about {ITEM!r} alone, without conditions"
        )
    if asked.measure not in ("E", "P") or (asked.measure == "P") != bool(terms[0].operator):
        raise QuestionError(f"value is {value!r}; pass {wanted}")
    absent = find_absent(schema)
    levels, answered = [], []
    for position in items.tolist():
        variable = schema[position]
        weights, counts = np.zeros(variable.cardinality), np.ones(variable.cardinality)
        if asked.measure == "P":
            name = replace(terms[0].name, text=variable.name)
            groups = ((replace(terms[0], name=name),),)
            bound = bind_question(Question(value, "P", groups), schema)
            weights[list(bound.events[0][position])] = 1.0
        elif variable.values is None:
            raise SchemaError(
                f"item {variable.name!r} has no number for each level, so it has no expected value; name others as "
                "items, exclude it, or ask for the probability of a level: P(item=LEVEL)"
            )
        else:
            weights[:] = variable.numeric_values()
            if absent[position] >= 0:
                weights[absent[position]] = counts[absent[position]] = 0.0
        levels.append(weights)
        answered.append(counts)
    return np.concatenate(levels), np.concatenate(answered)


def _number_groups(schema: Schema, groups: Sequence[tuple[str, str]]) -> IntArray:
    """Number the groups of variables: int32 (n_variables,), -1 without a group."""
    numbers: dict[str, int] = {}
    known = OneOf(dict.fromkeys(schema.names))
    found = np.full(schema.n_variables, -1, np.int32)
    for name, group in groups:
        check(known, SchemaError, groups=name)
        found[schema.position(name)] = numbers.setdefault(group, len(numbers))
    return found


def measure_recommendations(
    recommended: object, held_out: object, n_items: int
) -> dict[str, float]:
    """Measure recommendations by answers that were held out.

    Parameters
    ----------
    recommended
        Table with the columns row, rank and item, as `recommend` returns, or with sample in place of row.
    held_out
        Table with the same column of samples, and item: the answers to find, each once.
    n_items
        Number of items that could be recommended.

    Returns
    -------
    Means over the samples with a held-out answer: hit_rate, share with at least one of them among the recommended
    items; recall, share of a sample's held-out answers among them; ndcg, normalised discounted cumulative gain with a
    gain of 1 for each. And coverage, share of all items that are recommended to any sample; samples, their number. A
    sample without recommendations counts as 0.

    Raises
    ------
    SchemaError
        If a column is absent, or nothing is held out.

    References
    ----------
    Järvelin and Kekäläinen (2002), Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4).
    """
    found, truth = as_arrow(recommended), as_arrow(held_out)
    key = "sample" if "sample" in truth.column_names else "row"
    for argument, table, names in (
        ("recommended", found, (key, "rank", "item")),
        ("held_out", truth, (key, "item")),
    ):
        for name in names:
            check(OneOf(table.column_names), SchemaError, **{f"column of {argument}": name})
    if not truth.num_rows:
        raise SchemaError("held_out has no rows; hold out some answers")
    wanted: dict[Any, set[str]] = {}
    for sample, item in zip(truth[key].to_pylist(), truth["item"].to_pylist(), strict=True):
        wanted.setdefault(sample, set()).add(str(item))
    ranks = found["rank"].to_numpy()
    gains = 1 / np.log2(1 + np.arange(1, 1 + max(1, int(ranks.max(initial=1)))))
    hits, gain = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0.0)
    shown = found["item"].to_pylist()
    for sample, item, rank in zip(found[key].to_pylist(), shown, ranks.tolist(), strict=True):
        if str(item) in wanted.get(sample, ()):
            hits[sample] += 1
            gain[sample] += gains[rank - 1]
    n_wanted = np.array([len(each) for each in wanted.values()])
    n_hits, best = np.array([*hits.values()]), np.concatenate([[0.0], np.cumsum(gains)])
    return {
        "hit_rate": float((n_hits > 0).mean()),
        "recall": float((n_hits / n_wanted).mean()),
        "ndcg": float((np.array([*gain.values()]) / best[np.minimum(n_wanted, gains.size)]).mean()),
        "coverage": len({*shown}) / n_items,
        "samples": len(wanted),
    }
