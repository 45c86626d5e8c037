"""Data for answers besides the model: counts of pairs, and samples for counts of more variables."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pmflib.answering.conditional_tables import TablePlan, TableRequest, count_tables
from pmflib.answering.gaps import Standardised, find_causes, plan_parts, standardise
from pmflib.answering.weighted_tables import (
    StoredTableCounts,
    WeightedTables,
    count_groups,
    count_stored_tables,
    plan_stored_tables,
)
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import check_rows, check_schemas, check_type
from pmflib.base.errors import PmfError, StoreError
from pmflib.base.variance import Variance
from pmflib.base.weights import WeightSums
from pmflib.cluster.clients import Client
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.zarr_tables import PAIRS, StoredTables
from pmflib.model.mixture import Mixture
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Reference, Store, identify
from pmflib.store.file_digests import holds
from pmflib.store.run_records import find_run_of
from pmflib.store.sample_blocks import BlockReference, add_sums
from pmflib.store.stored_variance import StoredVariance, open_variance
from pmflib.store.zarr_arrays import write_arrays

CountSamples: TypeAlias = Callable[[Sequence[TableRequest]], tuple[Sequence[IntArray], int]]
"""Function that counts the tables of some requests, int64 shaped by the targets' cardinalities, and its samples."""


@dataclass(eq=False)
class Evidence:
    """The training data that answers draw on; counts are cached.

    Parameters
    ----------
    schema
        Variables.
    n_rows
        Number of samples.
    are_effective
        Whether numbers of samples are effective sample sizes, because of weights or a sampling design.
    read_pairs
        Function that returns int64 of shape (n_levels, n_levels): co-occurrence counts, possibly with only one triangle
        filled. None if there are none, or if reading them would take longer than counting again.
    count_samples
        Function that counts any tables in the samples, and returns the number of samples used; None without samples.
    plan_samples
        Function that estimates the time of this on one core, in seconds; None if unknown.
    n_counted
        Number of samples in which tables of more than two variables were counted, if only a part, which depends only on
        the data, was used. None if all were used.
    """

    schema: Schema
    n_rows: int
    are_effective: bool = False
    read_pairs: Callable[[], IntArray] | None = None
    count_samples: CountSamples | None = None
    plan_samples: Callable[[Sequence[TableRequest]], float] | None = None
    n_counted: int | None = None
    _known: dict[TableRequest, IntArray | None] = field(default_factory=dict)
    _causes: dict[int, dict[int, float]] = field(default_factory=dict)
    _standardised: dict[TableRequest, Standardised] = field(default_factory=dict)

    @classmethod
    def of(cls, data: object, model: Mixture, design: Variance | None = None) -> Evidence:
        """Wrap data in memory: co-occurrence counts, or samples as a table or codes.

        With a design, tables contain weighted shares times the effective sample size; for weighted counts, Kish's
        effective sample size is used.

        Raises
        ------
        SchemaError
            If counts and model have different schemas, or samples do not fit the schema.
        PmfError
            If a design is given with counts, or has another number of rows; or if there is no design for samples of a
            model that was fitted with weights or raked; or if counts without weights are given for a raked model.
        """
        schema = model.schema
        if isinstance(data, Evidence):
            return data
        if isinstance(data, PairCounts):
            if design is not None:
                raise PmfError("design is given and data are counts; pass the samples")
            check_schemas(model=schema, counts=data)
            counts, sums = data.to_samples(), data.weights
            is_weighted = sums is not None and not sums.are_equal(int(data.n_rows.sum()))
            if model.origin.raked and not is_weighted:
                raise PmfError(
                    "data are counts without weights, and the model was raked to margins; pass samples, with design="
                    "pmflib.surveys.rake(samples, margins)"
                )
            n_rows = int(counts.n_rows.sum())
            return cls(schema, n_rows, is_weighted, lambda: counts.tables.sum(axis=0))
        codes = schema.encode(data)
        if design is None and model.origin.n_effective is not None:
            raise PmfError(
                "data is given without weights, and the model was fitted with weights; give "
                "design=pmflib.surveys.SurveyDesign(weight) with those of these rows, or of ones"
            )
        if design is None and model.origin.raked:
            raise PmfError(
                "data is given without weights, and the model was raked to margins; give "
                "design=pmflib.surveys.rake(data, "
                "margins)"
            )
        if design is not None:
            check_type(Variance, "pass a pmflib.surveys.SurveyDesign", design=design)
            check_rows(len(codes), design=design)
            counted = partial(count_designed, codes, schema, design)
            n_rows = round(design.weights.n_effective)
            is_effective = not design.is_simple
            return cls(schema, n_rows, is_effective, None, counted)

        def count(requests: Sequence[TableRequest]) -> tuple[Sequence[IntArray], int]:
            return count_codes(codes, schema, requests), len(codes)

        return cls(schema, len(codes), False, None, count)

    def count(self, requests: Iterable[TableRequest]) -> None:
        """Count the tables not yet cached, in one pass over the samples, or from pairs for up to two variables."""
        wanted = self._list_unknown(requests)
        others = [each for each in wanted if not self._is_known(each)]
        for each in wanted:
            if self._is_known(each):
                self._known[each] = self._look_up(each)
        if self.count_samples is None:
            self._known |= dict.fromkeys(others)
        elif others:
            tables, n_counted = self.count_samples(others)
            self._known |= dict(zip(others, tables, strict=True))
            if n_counted < self.n_rows:
                self.n_counted = n_counted

    def plan(self, requests: Iterable[TableRequest]) -> float:
        """Estimate the time of `count` for the same requests on one core, in seconds; 0 if unknown."""
        wanted = self._list_unknown(requests)
        others = [each for each in wanted if not self._is_known(each)]
        return self.plan_samples(others) if self.plan_samples is not None and others else 0.0

    def find(self, request: TableRequest) -> IntArray | None:
        """Return the table of a request, int64 shaped by its targets' cardinalities; None if it cannot be counted."""
        self.count([request])
        return self._known[self._simplify(request)]

    def _list_unknown(self, requests: Iterable[TableRequest]) -> dict[TableRequest, None]:
        """Simplify requests and leave out those whose tables are cached."""
        simple = map(self._simplify, requests)
        return dict.fromkeys(each for each in simple if each not in self._known)

    def _simplify(self, request: TableRequest) -> TableRequest:
        """Return the request without groups where these have no effective numbers of samples."""
        return request if self.are_effective else replace(request, n_given=0)

    def standardise(self, requests: Iterable[TableRequest]) -> list[Standardised]:
        """Return tables, standardised if gaps depend on other variables.

        They are as counted if the numbers of samples are effective, or if only a part of the samples was counted.
        """
        asked = list(requests)
        wanted = [each for each in dict.fromkeys(asked) if each not in self._standardised]
        self.count(self.expand(wanted))
        if self.n_counted is None:
            given = self.schema, wanted, self._causes, self._most_variables
            found = standardise(self._count_all, *given)
        else:
            found = [Standardised(self.find(each)) for each in wanted]
        self._standardised |= dict(zip(wanted, found, strict=True))
        return [self._standardised[each] for each in asked]

    def expand(self, requests: Sequence[TableRequest]) -> list[TableRequest]:
        """List the tables that `standardise` counts, which include the requested ones."""
        positions = {position for each in requests for position in each.positions}
        unknown = sorted(positions - self._causes.keys())
        self._causes |= {each: {} for each in unknown}
        if unknown and not self.are_effective:
            if self.read_pairs is None and self.plan_samples is None:
                # without gaps, this is the only pass over samples in memory
                self.count(requests)
            self._causes |= find_causes(self._count_all, self.schema, self.n_rows, unknown)
        plans = plan_parts(self.schema, requests, self._causes, self._most_variables)
        return list(dict.fromkeys(each for _, parts in plans for each in parts))

    @property
    def _most_variables(self) -> int | None:
        """Maximum number of variables of a table; None if samples can be counted."""
        return None if self.count_samples is not None else 2

    def _count_all(self, requests: Sequence[TableRequest]) -> list[Any]:
        self.count(requests)
        return [self._known[self._simplify(each)] for each in requests]

    def _is_known(self, request: TableRequest) -> bool:
        involved = {*request.targets, *(position for position, _ in request.given)}
        return not involved or (self.read_pairs is not None and len(involved) < 3)

    def _look_up(self, request: TableRequest) -> IntArray:
        """Count a table of at most two variables from the counts of pairs."""
        given = dict(request.given)
        involved = list(dict.fromkeys([*request.targets, *given]))
        if not involved:
            return np.asarray(self.n_rows, np.int64)
        assert self.read_pairs is not None
        pairs = self.read_pairs()
        rows = [self.schema.rows_of(position) for position in involved]
        if len(involved) == 1:
            table = np.diagonal(pairs[rows[0], rows[0]]).copy()
        else:
            # only one of the two triangles of the whole table is filled
            table = np.maximum(pairs[rows[0], rows[1]], pairs[rows[1], rows[0]].T)
        for axis, codes in ((involved.index(position), codes) for position, codes in given.items()):
            without = np.setdiff1d(np.arange(table.shape[axis]), codes)
            table[(slice(None),) * axis + (without,)] = 0
        gone = tuple(n for n, position in enumerate(involved) if position not in request.targets)
        return np.asarray(table.sum(axis=gone))


def count_designed(
    codes: IntArray, schema: Schema, design: Variance, requests: Sequence[TableRequest]
) -> tuple[list[Any], int]:
    """Count the tables of some requests in effective samples, float64; also return the total number of samples.

    Parameters
    ----------
    codes
        Codes of shape (n_rows, n_variables), -1 missing.
    schema
        Variables.
    design
        Sampling design of the rows.
    requests
        Targets and conditions.
    """
    found: list[Any] = []
    for request in requests:
        cells, sizes = _find_cells(codes, schema, request)
        n_groups = count_groups(schema, request)
        size = math.prod(sizes) // n_groups
        groups, own = np.divmod(cells, size)
        table = np.zeros((n_groups, size))
        for group in range(n_groups):
            shares, n = design.find_effective(np.where(groups == group, own, -1), size)
            table[group] = shares * n
        found.append(table.reshape(sizes))
    return found, round(design.weights.n_effective)


def _find_cells(
    codes: IntArray, schema: Schema, request: TableRequest
) -> tuple[IntArray, list[int]]:
    """Find the cell of each row in the table of a request, -1 for none, and the shape of the table."""
    sizes = [int(schema.cardinalities[position]) for position in request.targets]
    cells = np.full(len(codes), -1, np.int64)
    plan = TablePlan.make(schema, [request])
    for _, rows, found in plan.find_cells(DenseBlock(codes)):
        cells[rows] = found
    return cells, sizes


def count_codes(
    codes: IntArray, schema: Schema, requests: Sequence[TableRequest]
) -> list[IntArray]:
    """Count tables among samples in memory: codes of shape (n_rows, n_variables), -1 missing."""
    return count_tables([DenseBlock(codes)], schema, requests)


MAX_LEVELS = 1_000
"""Maximum number of levels of a schema for reading tables of pairs for a question: 8 MB per fold."""
KIND = "conditional tables"
"""Attribute ``kind`` of the Zarr group of tables counted for questions."""
# 3: each group of a table has an effective number of samples
VERSION = 3
LOCAL_SECONDS = 5.0
"""Maximum estimated time, in seconds on one core, for counting samples in this process: about as long as connecting to
a scheduler and importing modules on its workers."""


def open_evidence(
    store: Store,
    name: str,
    reference: Reference,
    schema: Schema,
    *,
    client: Client = None,
    budget: float | None = None,
) -> Evidence | None:
    """Open the data that a model was fitted to: all samples of the dataset of its run, and their co-occurrence counts.

    Parameters
    ----------
    store, name
        Store of the pipeline, and its name.
    reference, schema
        The model, and its variables.
    client
        Dask client for counting more than pairs if that takes longer than ``LOCAL_SECONDS`` on one core. Otherwise, or
        if None, threads of this process count.
    budget
        As for `pmflib.answering.weighted_tables.count_stored_tables`: seconds of one core.

    Returns
    -------
    The evidence, for a model of several sites their counts; None if neither counts nor samples of this schema exist.
    Data are read only when an answer needs them. Tables counted in the samples are saved in the store, unless it is
    read-only.

    Raises
    ------
    StoreError
        If the counts are damaged.
    """
    made = find_run_of(store, name, reference)
    if made is None:
        return None
    counts, dataset = made.stages.get("counts"), made.stages.get("dataset")
    if "pooled" in made.stages:
        # no site has counted more than pairs, and own samples are not those of all sites
        counts, dataset = made.stages["pooled"], None
    n_rows, read_pairs, is_weighted = None, None, False
    counted: _StoredCounts | None = None
    if counts is not None and holds(store.root / counts.path / PAIRS):
        stored = StoredTables(store.locate(counts) / PAIRS)
        if stored.schema == schema:
            n_rows = int(stored.n_rows.sum())
            is_weighted = stored.weights is not None and (
                not stored.weights.are_equal(n_rows) or _open_design(store, dataset) is not None
            )
            if stored.weights is not None:
                n_rows = round(stored.weights.n_effective)
            # with weights, each table has its own effective sample size, which counts of pairs lack
            if schema.n_levels <= MAX_LEVELS and stored.is_complete and not is_weighted:
                read_pairs = cache(partial(_read_pairs, stored))
    if dataset is not None and (entry := store.find(dataset.identity)) is not None:
        counted = _StoredCounts(store, dataset, schema, client, budget)
        if n_rows is None:
            n_rows = int(entry.summary["samples"])
            if (weights := add_sums(counted.blocks)) is not None:
                is_weighted = (
                    not weights.are_equal(n_rows) or _open_design(store, dataset) is not None
                )
                n_rows = round(weights.n_effective)
    if n_rows is None:
        return None
    if counted is None:
        return Evidence(schema, n_rows, is_weighted, read_pairs)
    known = read_pairs, counted, counted.plan
    return Evidence(schema, n_rows, is_weighted, *known)


def _open_design(store: Store, dataset: Reference | None) -> StoredVariance | None:
    """Return the design of a dataset with sampling units or replicate weights; None without these or the dataset."""
    if dataset is None or store.find(dataset.identity) is None:
        return None
    return open_variance(store, dataset)


def _read_pairs(stored: StoredTables) -> IntArray:
    table: IntArray = PairCounts.add_up(stored).to_samples().tables[0]
    return table


@dataclass(frozen=True, eq=False)
class _StoredCounts:
    """Counts tables of stored samples, or reads tables counted earlier from the store; returns the samples used."""

    store: Store
    dataset: Reference
    schema: Schema
    client: Client
    budget: float | None

    def __call__(self, requests: Sequence[TableRequest]) -> tuple[list[IntArray], int]:
        def write(folder: Path, work: Path) -> dict[str, Any]:
            found = self._count(requests)
            weighted = found.weighted
            parts = [] if weighted is None else [*weighted.sums, *weighted.squares]
            cells = np.concatenate([table.ravel() for table in (*found.tables, *parts)])
            write_arrays(
                folder / "tables", {"cells": (cells, ("cell",))}, {"kind": KIND, "units": "samples"}
            )
            facts: dict[str, Any] = {"samples": found.n_rows}
            if (known := found.weighted) is not None:
                facts |= {"weights": known.totals.to_json(), "shift": known.shift}
                facts |= {"sizes": _list_known(known.sizes)}
            return facts

        try:
            entry = self.store.build(
                "tables",
                inputs={"dataset": self.dataset},
                options=self._list_options(requests),
                version=VERSION,
                write=write,
            )
        except StoreError:
            # nothing can be saved in a read-only store
            found = self._count(requests)
            return found.to_samples()
        folder = self.store.locate(entry.reference)
        cells = read_arrays(folder / "tables", ["cells"], kind=KIND)[0]["cells"]
        sizes = self.schema.cardinalities
        shapes = [tuple(int(sizes[j]) for j in each.targets) for each in requests]
        facts = entry.summary
        if "weights" in facts:
            shapes *= 3
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        tables = [
            part.reshape(shape) for part, shape in zip(np.split(cells, ends), shapes, strict=True)
        ]
        n = int(facts["samples"])
        if "weights" not in facts:
            return tables, n
        size = len(requests)
        counted, sums, squares = (tables[k * size : (k + 1) * size] for k in range(3))
        totals = WeightSums.from_json(facts["weights"])
        worth = None
        if (known := facts["sizes"]) is not None:
            worth = [np.array([math.inf if x is None else x for x in each]) for each in known]
        n_groups = [count_groups(self.schema, each) for each in requests]
        weighted = WeightedTables(sums, squares, facts["shift"], totals, n_groups, worth)
        return weighted.to_samples(counted, n)

    def plan(self, requests: Sequence[TableRequest]) -> float:
        """Estimate the time of counting on one core, in seconds; 0 for tables counted earlier."""
        options = self._list_options(requests)
        if self.store.find(identify("tables", {"dataset": self.dataset}, options, VERSION)):
            return 0.0
        return self._plan(requests)

    def _plan(self, requests: Sequence[TableRequest]) -> float:
        digest = self.dataset.digest
        return plan_stored_tables(
            self.blocks, self.schema, requests, budget=self.budget, digest=digest
        )

    def _list_options(self, requests: Sequence[TableRequest]) -> dict[str, Any]:
        asked = hashlib.sha256(" ".join(each.digest for each in requests).encode()).hexdigest()
        return {"requests": asked, "budget": self.budget}

    @cached_property
    def blocks(self) -> list[BlockReference]:
        """Blocks of the dataset."""
        # this imports pyarrow.compute, which takes longer than an answer from pairs
        from pmflib.store.dataset import list_dataset_blocks

        return list_dataset_blocks(self.store, self.dataset, None)

    def _count(self, requests: Sequence[TableRequest]) -> StoredTableCounts:
        client = self.client
        if client is not None and self._plan(requests) <= LOCAL_SECONDS:
            client = None
        return count_stored_tables(
            self.blocks,
            self.schema,
            requests,
            client=client,
            budget=self.budget,
            digest=self.dataset.digest,
            design=_open_design(self.store, self.dataset),
        )


def _list_known(sizes: Sequence[FloatArray] | None) -> list[list[float | None]] | None:
    """Convert sizes to plain JSON types, with None for infinite ones."""
    if sizes is None:
        return None
    return [[x if math.isfinite(x) else None for x in each.tolist()] for each in sizes]
