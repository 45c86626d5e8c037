"""Three-step analyses on a pipeline's samples: external tables joined with stored samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.blocks import concatenate_blocks
from pmflib.base.codes import Codes
from pmflib.base.errors import SourceError
from pmflib.base.texts import list_near
from pmflib.ingest.csv.sniffing import sniff_source
from pmflib.ingest.dataset.identifiers import read_identifiers
from pmflib.ingest.dataset.wide import read_texts
from pmflib.ingest.options import SourceOptions, make_source
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from pmflib.store.sample_blocks import (
    read_block,
    read_origins,
    read_replicates,
    read_sampling_units,
)
from pmflib.store.stored_variance import StoredReplicates, open_variance
from pmflib.surveys.design.survey_design import SurveyDesign


@dataclass(frozen=True, eq=False)
class KnownSamples:
    """Samples of a dataset, in its order.

    Parameters
    ----------
    names
        Binary of length n_rows: identifiers.
    codes
        Shape (n_rows, n_variables), -1 missing.
    design
        Weights, strata and sampling units, or replicates; None without weights.
    fitted
        bool of shape (n_rows,): whether a sample is in the training folds of the model.
    """

    names: pa.BinaryArray
    codes: IntArray
    design: SurveyDesign | None
    fitted: BoolArray


def read_samples(
    store: Store,
    dataset: Reference,
    schema: Schema,
    folds: Collection[int],
) -> KnownSamples:
    """Read all samples of a dataset into memory.

    Parameters
    ----------
    store, dataset, schema
        The dataset, and its variables.
    folds
        Training folds of the model.

    Raises
    ------
    StoreError
        If a part of the dataset is missing or damaged.
    """
    blocks, units, replicates, names, fitted = [], [], [], list[str](), []
    for layer in list_layers(store, dataset):
        known = read_origins(layer.folder)[1]
        for reference in layer.blocks:
            blocks.append(read_block(reference))
            names += [known[row] for row in reference.rows.tolist()]
            fitted.append(np.full(reference.n_rows, reference.fold in folds))
            if (drawn := read_sampling_units(reference)) is not None:
                units.append(drawn)
            if (weighed := read_replicates(reference)) is not None:
                replicates.append(weighed)
    if not blocks:
        raise SourceError("the dataset has no samples; `pmf status` says where its rows are")
    whole = concatenate_blocks(blocks, schema.offsets)
    design = None
    if whole.weights is not None and replicates:
        stored = open_variance(store, dataset)
        assert isinstance(stored, StoredReplicates)
        made: Any = {"method": "JKn", "factors": stored.record.factors, "decimals": 0}
        design = SurveyDesign(whole.weights, replicates=np.concatenate(replicates), **made)
        # other methods than this one have other degrees of freedom
        design.record = stored.record
    elif whole.weights is not None:
        strata, psus = np.concatenate(units).T if units else (None, None)
        # a single unit has no variance: only weights are used, as in answers
        if psus is not None and np.unique(psus).size < 2:
            strata, psus = None, None
        design = SurveyDesign(whole.weights, stratum=strata, psu=psus, decimals=0)
    return KnownSamples(
        pa.array([name.encode() for name in names], pa.binary()),
        Codes(whole.to_codes(schema.offsets)),
        design,
        np.concatenate(fitted),
    )


@dataclass(frozen=True, eq=False)
class SampleTable:
    """Columns of a file with a row per sample.

    Parameters
    ----------
    names
        Binary of length n_rows: identifiers, all distinct.
    columns
        Numbers (float64) or texts; null if missing.
    n_skipped
        Number of rows of the file without an identifier, or ragged.
    """

    names: pa.BinaryArray
    columns: pa.Table
    n_skipped: int

    def align(self, names: pa.BinaryArray) -> tuple[pa.Table, int]:
        """Select the rows of some samples, null without a row, and count the samples with a row."""
        places = pc.index_in(names, self.names)
        return self.columns.take(places), len(names) - places.null_count


def read_table(
    path: str,
    source: SourceOptions,
    columns: Sequence[str],
    *,
    sample: str | None = None,
    nominal: Collection[str] = (),
) -> SampleTable:
    """Read columns of a file with an identifier in each row; the format of CSV files is detected.

    Parameters
    ----------
    path
        A CSV or Parquet file, compressed or not.
    source
        Source of the pipeline, whose missing codes apply to the file as well.
    columns
        Columns to read. A column whose texts are all numbers is numeric.
    sample
        Column of the identifiers; None is that of the pipeline.
    nominal
        Columns that are nominal even if their texts are numbers.

    Raises
    ------
    SourceError
        If the file cannot be read, lacks a column, or has several rows for a sample.
    """
    key = sample or source.sample
    assert key is not None
    found = find_sources(path)
    fields = {"path": path, "layout": "wide", "sample": key, "missing": source.missing}
    config, _ = sniff_source(found, make_source(fields), fields)
    wanted = list(dict.fromkeys([key, *columns]))
    names, parts, n_skipped = list[pa.BinaryArray](), list[list[pa.Array]](), 0
    for each in found:
        header = read_columns(each, config)
        if absent := [name for name in wanted if name not in header]:
            near = list_near(absent[0], header)
            raise SourceError(
                f"{each.name} has no column {absent[0]!r}"
                + (f"; did you mean {near}?" if near else f"; it has {header[:12]}")
            )
        for raw in read_rows(each, config, wanted):
            identifiers = read_identifiers(raw.batch.column(0))
            kept = pa.array(~(identifiers.absent | identifiers.undecodable))
            n_skipped += len(raw.ragged) + len(kept) - pc.sum(kept).as_py()
            names.append(identifiers.texts.filter(kept))
            texts = [read_texts(raw.batch.column(wanted.index(name))) for name in columns]
            parts.append([text.filter(kept) for text in texts])
    whole = pa.chunked_array(names, pa.binary()).combine_chunks()
    if n_again := len(whole) - len(whole.unique()):
        raise SourceError(
            f"{path} has {n_again} rows more than samples; pass one row for each sample"
        )
    missing = pa.array(sorted({*source.missing, ""}), pa.string())
    table = {}
    for place, name in enumerate(columns):
        chunks = [part[place] for part in parts]
        column = pc.utf8_trim_whitespace(pa.chunked_array(chunks, pa.string()).combine_chunks())
        column = pc.if_else(pc.is_in(column, missing), None, column)
        table[name] = column if name in nominal else _take_numbers(column)
    return SampleTable(whole, pa.table(table), n_skipped)


def _take_numbers(column: pa.StringArray) -> pa.Array:
    """Convert texts to numbers if all are numbers; else return the texts."""
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        return column
