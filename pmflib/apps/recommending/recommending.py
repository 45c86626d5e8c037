"""The best items for every sample: those with the highest values, predicted from its other answers.

Items are variables, such as movies. The worth of an item to a sample is 0 without an answer; values are predictions of
worths by `pmflib.apps.recommending.item_regression`. They may put items first that few samples have answered:
`at_least` and `penalty` limit that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import scipy.sparse

from pmflib.apps.recommending.item_regression import (
    N_FOLDS,
    N_MATRICES,
    Worths,
    find_best,
    regress_items,
)
from pmflib.apps.recommending.options import Recommendations
from pmflib.apps.recommending.rating_tables import read_ratings
from pmflib.apps.recommending.worths import find_absent, weigh_levels
from pmflib.base.arrays import BoolArray, FloatArray, IntArray, list_owners, sum_blocks
from pmflib.base.blocks import DenseBlock, SparseBlock
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.machine import find_memory_limit
from pmflib.base.texts import abridge_names
from pmflib.model.measures import TargetSums
from pmflib.model.table_makers import ScoreOptions
from pmflib.schema import Schema
from pmflib.schema.tables import as_arrow

DEFAULTS = Recommendations()
BATCH_VALUES = 1 << 20
"""Maximum number of values in memory at a time: 4 MiB."""


class Recommender:
    """Recommender of items to samples.

    Parameters
    ----------
    samples
        Samples from which values are learned.
    schema
        Variables, which are the items.
    requested
        Options.
    is_judge
        bool of shape (n_samples,): samples that choose the ridge parameter; by default the rows of one of four folds.
    metadata
        Metadata of every table by name: the samples and their run.

    Raises
    ------
    SchemaError
        If an item is no variable, or has no numbers or no such level.
    QuestionError
        If the value is neither "auto" nor the probability of levels of the item alone.
    PmfError
        If no item is a candidate.
    """

    def __init__(
        self,
        samples: SparseBlock,
        schema: Schema,
        requested: Recommendations = DEFAULTS,
        is_judge: BoolArray | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.schema, self.requested, self.options = schema, requested, ScoreOptions()
        n_levels, offsets = schema.n_levels, schema.offsets
        self._owners = list_owners(offsets)
        is_answer, absent = np.ones(n_levels, np.bool_), find_absent(schema)
        is_answer[(offsets[:-1] + absent)[absent >= 0]] = False
        self._is_answer = is_answer
        counted = np.bincount(samples.indices, minlength=n_levels) * is_answer
        self._n_ratings = sum_blocks(counted, offsets).astype(np.int64)
        self._items = _choose_items(schema, requested, self._n_ratings)
        self._worths, self.meaning = weigh_levels(schema, self._items, requested.value, counted)
        # rare items predict nothing
        self._worths[self._n_ratings[self._owners] < requested.at_least] = 0.0
        if is_judge is None:
            is_judge = DenseBlock(np.empty((samples.n_rows, 0), np.int8)).assign_folds(N_FOLDS) == 1
        memory = find_memory_limit() - N_MATRICES * samples.nbytes
        self._regression = regress_items(self._weigh(samples, self._worths), is_judge, memory)
        self._groups = _number_groups(schema, requested.groups)[self._items]
        self._names = pa.array([schema.names[each] for each in self._items], pa.string())
        labels = dict(requested.labels)
        self._labels = pa.array([labels.get(each) for each in self._names.to_pylist()], pa.string())
        facts = {"schema": schema.digest, "value": requested.value, **(metadata or {})}
        self.metadata = {f"pmf.{name}": text for name, text in facts.items()}

    @property
    def facts(self) -> Mapping[str, object]:
        """Number of candidates, options, and what was learned for how many items."""
        n_left_out = self._regression.n_left_out
        return {
            "candidates": int(self._items.size),
            "top": min(self.requested.top, self._items.size),
            "value": self.meaning,
            "ridge": round(self._regression.ridge),
            "items_regressed": int(self._regression.positions.size),
            **({"items_without_memory": n_left_out} if n_left_out else {}),
        }

    def score(
        self, codes: IntArray, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Recommend items to samples: `rank` of codes, (n_rows, n_variables), -1 missing; no target is predicted."""
        block = DenseBlock(self.schema.check_codes(codes)).to_sparse(self.schema.offsets)
        return self.rank(block, origins), []

    def rank(self, samples: SparseBlock, origins: Mapping[str, pa.Array] | None = None) -> pa.Table:
        """Recommend items to samples.

        Parameters
        ----------
        samples
            The samples.
        origins
            Columns that identify them.

        Returns
        -------
        Table with a row for each sample and item, samples in order and the best items first: the origins; rank, from 1;
        item; its label, if there are any; value; ratings, the number of answers to the item; answers, the number of
        items that the sample has answered. With 0 answers, values are means, the same for all such samples.
        """
        found, values, n_answers = [], [], np.zeros(samples.n_rows, np.int32)
        step = max(1, BATCH_VALUES // self.schema.n_variables)
        for start in range(0, max(1, samples.n_rows), step):
            part = samples.cut(start, min(start + step, samples.n_rows))
            is_seen = self._weigh(part, self._is_answer).toarray() > 0
            n_answers[start : start + step] = is_seen.sum(axis=1)
            predicted = self._regression.predict(self._weigh(part, self._worths))[:, self._items]
            items, ranks = self._select(predicted, is_seen[:, self._items])
            rows, places = np.nonzero(ranks)
            chosen = items[rows, places]
            values.append(predicted[rows, chosen])
            found.append(np.stack([rows + start, chosen, ranks[rows, places]]))
        rows, items, ranks = np.concatenate(found, axis=1)
        columns: dict[str, pa.Array] = {
            name: column.take(pa.array(rows)) for name, column in (origins or {}).items()
        }
        columns["rank"] = pa.array(ranks.astype(np.int32))
        chosen = pa.array(items.astype(np.int32))
        columns["item"] = pa.DictionaryArray.from_arrays(chosen, self._names)
        if self.requested.labels:
            columns["label"] = self._labels.take(chosen)
        columns["value"] = pa.array(np.concatenate(values).astype(np.float64))
        columns["ratings"] = pa.array(self._n_ratings[self._items[items]])
        columns["answers"] = pa.array(n_answers[rows])
        return pa.table(columns).replace_schema_metadata(self.metadata)

    def _weigh(self, samples: SparseBlock, by_level: FloatArray | BoolArray) -> Worths:
        """Weigh the answers of samples by their levels: sparse float32 (n_rows, n_variables), zeros left out."""
        values = by_level[samples.indices].astype(np.float32)
        # zeros are eliminated in place
        cells = values, self._owners[samples.indices], samples.indptr.copy()
        found = scipy.sparse.csr_array(cells, shape=(samples.n_rows, self.schema.n_variables))
        found.eliminate_zeros()
        return found

    def _select(self, values: FloatArray, is_seen: BoolArray) -> tuple[IntArray, IntArray]:
        """Choose the items of each sample, as `find_best`."""
        order = values.copy()
        if self.requested.penalty:
            order -= self.requested.penalty * np.log10(np.maximum(self._n_ratings[self._items], 1))
        if self.requested.exclude == "seen":
            order[is_seen] = -np.inf
        most = self.requested.most_per_group
        return find_best(order, self.requested.top, self._groups, most)


def recommend(
    ratings: object,
    samples: object | None = None,
    *,
    schema: Schema | None = None,
    top: int = 20,
    value: str = "auto",
    exclude: str | Sequence[str] = "seen",
    items: Sequence[str] | None = None,
    at_least: int = 0,
    penalty: float = 0.0,
    groups: Mapping[str, str] | None = None,
    most_per_group: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> pa.Table:
    """Recommend the items with the highest values to each sample.

    Parameters
    ----------
    ratings
        Answers to learn from. A table with a row per answer, whose first columns are sample, item and a number, such as
        user, movie and rating; without a third column, as of purchases, all answers are alike. The last answer of a
        sample to an item counts. Or, with a schema, codes of shape (n_samples, n_variables), -1 missing, or a table
        with a row per sample that the schema can encode.
    samples
        Samples that get recommendations, in the same form; by default those of ``ratings``. A few answers are enough.
    schema
        Variables, which are the items, of codes or of a table with a row per sample.
    top
        Number of items for each sample, at least 1; fewer if it has fewer candidates.
    value
        What an item is worth to a sample: "auto", 1 if it is answered and 2 if the answer is high, a number that about
        half of the answers reach; or a question whether it has some levels, in which it is called ``item``, as
        "P(item>=4)", "P(item in {4, 5})" or "P(item=yes)".
    exclude
        "seen" leaves out the items that a sample has answered, "none" leaves out nothing; names of items are left out
        besides those.
    items
        Names of the candidates; all by default.
    at_least
        Minimum number of answers to a candidate. Items with fewer predict nothing.
    penalty
        Subtracted from the value, for the order of items, for each factor of ten in their number of answers.
    groups, most_per_group
        Group of each item, and the maximum number of items of a group for each sample.
    labels
        Label of each item, such as its title, for a column of the result.

    Returns
    -------
    Arrow table with a row for each sample and item, in the order of the samples and the best items first: sample, or
    row (position of the sample) with a schema; rank (from 1); item; label; value; ratings, the number of answers to the
    item; answers, the number of items that the sample has answered. Values are predicted from the other answers of a
    sample; one without answers gets the means. Equal values are in the order of the items, which are sorted.

    Raises
    ------
    SchemaError
        If the tables do not fit, an item is unknown, or it has no numbers or no such level.
    QuestionError
        If the value is no question about the item alone.
    PmfError
        If an option is out of range, or no item is a candidate.

    References
    ----------
    Steck (2019), "Embarrassingly shallow autoencoders for sparse data": the worth of each item is regressed on that of
    all others. The ridge parameter is the one that ranks hidden answers of a quarter of the samples best.
    """
    if schema is None:
        known = read_ratings(ratings)
        asked = known if samples is None else read_ratings(samples, known.schema)
        schema, learned, block = known.schema, known.block, asked.block
        origins = {"sample": pa.array(asked.samples)}
    else:
        learned = _encode(schema, ratings)
        block = learned if samples is None else _encode(schema, samples)
        origins = {"row": pa.array(np.arange(block.n_rows))}
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
        labels=tuple((labels or {}).items()),
    )
    return Recommender(learned, schema, requested).rank(block, origins)


def _encode(schema: Schema, samples: object) -> SparseBlock:
    """Encode codes or a table, whose columns may be absent but for one."""
    if isinstance(samples, np.ndarray):
        return DenseBlock(schema.encode(samples)).to_sparse(schema.offsets)
    table = as_arrow(samples, {*schema.columns, *schema.names})
    given = {*table.column_names}
    lacking = [each.name for each in schema if not given & {each.name, each.column}]
    if len(lacking) == schema.n_variables:
        raise SchemaError(
            f"samples have no column of a variable; there are {abridge_names(table.column_names)}, and the variables "
            f"are {abridge_names(schema.names)}"
        )
    return DenseBlock(schema.encode(table, optional=lacking)).to_sparse(schema.offsets)


def _choose_items(schema: Schema, requested: Recommendations, n_ratings: IntArray) -> IntArray:
    """Return the positions of the candidates, in the order of the schema."""
    known = OneOf(dict.fromkeys(schema.names))
    for argument, names in (("items", requested.items or ()), ("exclude", requested.not_items)):
        for name in names:
            check(known, SchemaError, **{argument: name})
    wanted = {*(schema.names if requested.items is None else requested.items)}
    unwanted = {*requested.not_items}
    able = np.array([name in wanted and name not in unwanted for name in schema.names])
    able &= n_ratings >= requested.at_least
    if not able.any():
        raise PmfError(
            f"no item is left to recommend: of {schema.n_variables} variables, {len(unwanted)} are excluded and others "
            f"are not in items or have fewer than at_least={requested.at_least} ratings"
        )
    return np.flatnonzero(able)


def _number_groups(schema: Schema, groups: Sequence[tuple[str, str]]) -> IntArray:
    """Number the groups of variables: int32 (n_variables,), -1 without a group."""
    numbers: dict[str, int] = {}
    known = OneOf(dict.fromkeys(schema.names))
    found = np.full(schema.n_variables, -1, np.int32)
    for name, group in groups:
        check(known, SchemaError, groups=name)
        found[schema.position(name)] = numbers.setdefault(group, len(numbers))
    return found
