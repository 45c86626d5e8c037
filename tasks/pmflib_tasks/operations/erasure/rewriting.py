"""Datasets, counts and predictions without erased samples: as they would be had these never been there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.core.arrays import BoolArray, IntArray
from pmflib.core.blocks import SPARSE_BELOW
from pmflib.counting.increments import DatasetChange, Increment, count_stored_changes, take_rows
from pmflib.counting.replicate_counts import count_replicates
from pmflib.counting.stored_tables import PAIRS, StoredTables
from pmflib.ingest.dataset.accounts import (
    Account,
    DatasetAccount,
    StepSummary,
    add_weights,
    carry_account,
    combine_accounts,
)
from pmflib.ingest.dataset.build_steps import ERASURES
from pmflib.ingest.dataset.building import count_outside
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import count_forms, hash_identifiers, read_sample_hashes
from pmflib.ingest.dataset.quarantine import (
    QUARANTINE,
    QUARANTINE_HASHES,
    QuarantineWriter,
    read_part,
)
from pmflib.ingest.dataset.spill_lists import list_spills
from pmflib.ingest.dataset.spilled_rows import unpack_codes
from pmflib.ingest.dataset.spills import Spill, SpillWriter
from pmflib.ingest.options import name_separator
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, number_inputs
from pmflib.store.caches import find_local_path
from pmflib.store.dataset import (
    LEVEL_COUNTS,
    SAMPLES,
    FileStep,
    Layer,
    list_dataset_blocks,
    list_file_steps,
    list_layers,
    open_layer,
    read_content,
    sum_weights,
    write_layers,
)
from pmflib.store.file_digests import check_file
from pmflib.store.sample_blocks import (
    SAMPLE_COUNTS,
    BlockReference,
    add_sums,
    list_blocks,
    read_blocks,
    read_identifier_texts,
    read_replicates,
    read_sample_counts,
    read_sampling_units,
)
from pmflib.store.sample_writer import SampleWriter
from pmflib.store.zarr_arrays import read_arrays
from pmflib_tasks.operations.erasure.holdings import (
    Holdings,
    find_erased_rows,
    find_rejected,
    list_parts,
    read_reading,
)


def rewrite_spill(
    old: Path, entry: Entry, schema: Schema, erased: ErasedSamples, folder: Path
) -> StepSummary:
    """Write a spill again without erased samples.

    Parameters
    ----------
    old, entry
        Folder of the spill, and its entry.
    schema
        Schema of the rows.
    erased
        The erased samples.
    folder
        Existing folder for the new spill.

    Returns
    -------
    The account of its file, in which rows of erased samples are counted as such. Values that count as missing because
    they are no level are not kept one by one: those of erased samples stay in the account.
    """
    spill = Spill(old, {})
    counts = np.load(old / LEVEL_COUNTS, allow_pickle=False)
    writer = SpillWriter(folder, spill.fields, spill.n_buckets)
    writer.metadata = dict(spill.metadata)
    n_gone, forms = 0, Counter(entry.summary["forms"])
    with writer:
        for batch in spill.read_pages():
            hashes = hash_identifiers(batch["sample"])
            gone = erased.find(batch["sample"], hashes)
            if gone.any():
                n_gone += int(np.count_nonzero(gone))
                counts -= _count_levels(batch.filter(pa.array(gone)), schema, counts.size)
                forms -= count_forms(batch["sample"].filter(pa.array(gone)))
                batch, hashes = batch.filter(pa.array(~gone)), hashes[~gone]
            if hashes.size:
                writer.append(hashes, batch)
    np.save(folder / LEVEL_COUNTS, counts)
    delimiter = name_separator(entry.options["source"]["delimiter"])
    rejected = find_rejected(old, int(spill.metadata["identifier"]), delimiter, erased)
    reasons = _rewrite_rejected(old, folder, rejected)
    known = StepSummary.from_json(entry.summary)
    account = replace(
        known.account,
        rows_encoded=known.account.rows_encoded - n_gone,
        rows_erased=known.account.rows_erased + n_gone + int(np.count_nonzero(rejected)),
        reasons=known.account.reasons - reasons,
    )
    return replace(known, account=account, forms=forms)


def rewrite_partition(old: Path, entry: Entry, erased: ErasedSamples, folder: Path) -> StepSummary:
    """Write a partition again without erased samples; the others stay in their folds, and in their order.

    Parameters
    ----------
    old, entry
        Folder of the partition, and its entry.
    erased
        The erased samples.
    folder
        Existing folder for the new partition.

    Returns
    -------
    Its account: see `assemble_buckets`.
    """
    path = old / SAMPLES
    gone, names = find_erased_rows(path, erased)
    kept = ~gone
    rows: IntArray = read_arrays(path, ["row"])[0]["row"]
    schema = Schema.from_json(read_arrays(path, [])[1]["schema"])
    counts, samples = read_sample_counts(path), _read_samples(path)
    sizes, observed = counts[gone].sum(axis=0, dtype=np.int64), int(counts[kept, 2].sum())
    # rows, duplicates and, where there are any, conflicts
    made_of = [0, 1, 3] if counts[:, 3].any() else [0, 1]
    sparse = observed < SPARSE_BELOW * int(kept.sum()) * schema.n_variables
    references = list_blocks(path)
    sums = add_sums(references)
    decimals = None if sums is None else sums.decimals
    writer = SampleWriter(folder / SAMPLES, schema, sparse=sparse, weight_decimals=decimals)
    for reference, block in zip(references, read_blocks(references), strict=True):
        here = np.flatnonzero(kept[reference.start : reference.stop])
        if here.size:
            rows_here = here + reference.start
            folds = np.full(here.size, reference.fold, np.int64)
            drawn = read_sampling_units(reference), read_replicates(reference)
            writer.append(
                block.take(here),
                folds,
                rows[rows_here],
                samples[rows_here],
                counts[rows_here][:, made_of],
                *(None if each is None else each[here] for each in drawn),
            )
    hashes = np.load(old / QUARANTINE_HASHES, allow_pickle=False)
    # the rejected rows of a partition are duplicates or conflicts: each is of a sample that it holds
    mine = np.isin(hashes, hash_identifiers(pa.array(names, pa.binary())))
    mine[mine] = find_rejected(old, *read_reading(entry), erased)[mine]
    reasons = _rewrite_rejected(old, folder, mine)
    np.save(folder / QUARANTINE_HASHES, hashes[~mine])
    known = Account.from_json(entry.summary)
    account = Account(
        known.rows_in - int(sizes[0]),
        known.rows_encoded - int(sizes[0] - sizes[1] - sizes[3]),
        reasons=known.reasons - reasons,
    )
    return StepSummary(account, written=writer.close())


def find_same_rows(old: Path, new: Path, rows: IntArray) -> IntArray:
    """Rows of a partition that was written again: where the samples of some rows of the old one are now, int64."""
    hashes = read_sample_hashes(old)[rows]
    found: IntArray = np.flatnonzero(np.isin(read_sample_hashes(new), hashes)).astype(np.int64)
    return found


def rewrite_predictions(old: Path, erased: ErasedSamples, folder: Path) -> int:
    """Write predictions again without those for erased samples; return the number of the others."""
    n_rows = 0
    for path in sorted(old.glob("*.parquet")):
        check_file(path)
        table = pq.ParquetFile(path)
        with pq.ParquetWriter(folder / path.name, table.schema_arrow, compression="zstd") as writer:
            for group in range(table.num_row_groups):
                rows = table.read_row_group(group, use_threads=False)
                samples = rows["sample"].combine_chunks().cast(pa.binary()).fill_null(b"")
                rows = rows.filter(pa.array(~erased.find(samples, hash_identifiers(samples))))
                if rows.num_rows:
                    writer.write_table(rows)
                    n_rows += rows.num_rows
    return n_rows


def _count_levels(rows: pa.RecordBatch, schema: Schema, n_levels: int) -> IntArray:
    """Number of rows that hold each level."""
    if "level" in rows.schema.names:
        levels = rows["level"].to_numpy()
    else:
        codes = unpack_codes(pa.chunked_array([rows["codes"]]), schema).astype(np.int64)
        levels = np.where(codes < 0, -1, codes + schema.offsets[:-1])
    counts: IntArray = np.bincount(levels[levels >= 0], minlength=n_levels)
    return counts


def _rewrite_rejected(old: Path, folder: Path, gone: BoolArray) -> Counter[str]:
    """Write a quarantine again without some rows; give their number by reason."""
    reasons: Counter[str] = Counter()
    start = 0
    schema = pq.read_schema(old / QUARANTINE)
    with QuarantineWriter(folder / QUARANTINE, schema) as writer:
        for batch in read_part(old / QUARANTINE, None):
            lost = gone[start : start + batch.num_rows]
            start += batch.num_rows
            reasons.update(batch["reason"].filter(pa.array(lost)).to_pylist())
            kept = batch.select(schema.names).filter(pa.array(~lost)).to_pylist()
            writer.add_all(tuple(row.values()) for row in kept)
    return reasons


def _read_samples(path: Path) -> npt.NDArray[np.object_]:
    """Identifiers of a partition's samples, bytes."""
    texts, lengths = read_identifier_texts(path)
    content, ends = texts.tobytes(), np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    out = np.empty(lengths.size, object)
    out[:] = [content[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return out


@dataclass
class Rewriter:
    """Writes datasets and what was made of them again, each part once.

    Parameters
    ----------
    store, erased, found
        The store, the erased samples, and what it holds of them.
    parts
        What has replaced spills and partitions so far, by identity.
    """

    store: Store
    erased: ErasedSamples
    found: Holdings
    parts: dict[str, Entry] = field(default_factory=dict)

    def is_done(self, dataset: Reference) -> bool:
        """Whether a dataset was made without the erased samples."""
        origin = read_content(self.store, dataset)["origin"]
        return bool(origin.get(ERASURES) == self.erased.digest)

    def can_rewrite(self, dataset: Reference) -> bool:
        """Whether all parts of a dataset are in the store, and its samples have identifiers."""
        if self.store.find(dataset.identity) is None:
            return False
        source = read_content(self.store, dataset)["origin"].get("source", {})
        parts = list_parts(self.store, dataset)
        is_complete = all(self.store.find(part.identity) is not None for part in parts)
        return is_complete and source.get("sample") is not None

    def rewrite_dataset(self, dataset: Reference) -> Entry:
        """Write a dataset again without erased samples, and the parts of it that hold some; others are referred to."""
        store, entry = self.store, self._entry(dataset)
        content, layers = read_content(store, dataset), list_layers(store, dataset)
        steps, spills = [], []
        for file in list_file_steps(store, dataset):
            spill = self._rewrite_spill(self._entry(file.step), layers)
            spills.append(spill)
            steps.append(FileStep(file.name, file.source, spill.reference))
        listed = list_spills(store, steps)
        # partitions of the dataset that are written again were made of the new spills
        self.parts[entry.inputs["spills"].identity] = listed
        lost = np.zeros(5, np.int64)
        new_layers = []
        for layer in layers:
            if layer.partition.identity in self.found.erased_rows:
                new_layers.append(self._rewrite_layer(layer))
                lost += self._measure_lost(layer)
            else:
                new_layers.append(layer)
        names = (*SAMPLE_COUNTS, "samples")
        old = DatasetAccount.from_json(content["account"])
        carried = carry_account(old, dict(zip(names, lost.tolist(), strict=True)))
        summaries = [StepSummary.from_json(spill.summary) for spill in spills]
        since = content["origin"].get("since", -math.inf)
        n_outside = count_outside(None, store, spills, since)
        skipped = old.files_skipped
        combined = combine_accounts(summaries, [carried], n_outside, files_skipped=skipped)
        n_blocks = sum(len(layer.blocks) for layer in new_layers)
        account = replace(combined, blocks=n_blocks).to_json()
        origin = {**content["origin"], ERASURES: self.erased.digest}

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            write_layers(folder, new_layers, account, steps, origin)
            return add_weights(account, sum_weights(folder))

        return store.build(
            "dataset",
            inputs={
                "spills": listed.reference,
                **number_inputs("samples", [layer.partition for layer in new_layers]),
            },
            options=entry.options,
            version=entry.version,
            write=write,
        )

    def rewrite_counts(self, dataset: Reference, counts: Reference, new: Entry) -> Entry | None:
        """Write the counts of a dataset again: those of erased samples are subtracted, and full tables are written.

        Returns
        -------
        Their entry; None where the old ones are not in the store: then the next run counts all samples.
        """
        store, entry = self.store, self.store.find(counts.identity)
        if entry is None or entry.inputs["dataset"].digest != dataset.digest:
            return None
        inputs = {"dataset": new.reference}
        if counts.identity not in self.found.counts:
            return store.enter_again(replace(entry, inputs=inputs))
        tables = StoredTables(store.locate(counts) / PAIRS)
        if tables.list_missing():
            return None
        gone = [
            block
            for layer in list_layers(store, dataset)
            if layer.partition.identity in self.found.erased_rows
            for block in self._list_erased(layer)
        ]
        increment = Increment(counts, tables, DatasetChange((), tuple(gone)))

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            summary = count_stored_changes(None, increment, folder / PAIRS, work, in_full=True)
            schema = tables.schema
            if replicates := entry.options.get("replicates"):
                every = list_dataset_blocks(store, new.reference, None)
                count_replicates(None, every, increment, len(replicates), folder, schema)
            return {**summary, "levels": schema.n_levels, "variables": schema.n_variables}

        return store.build(
            "counts", inputs=inputs, options=entry.options, version=entry.version, write=write
        )

    def rewrite_predictions(self, entry: Entry, new: Entry) -> Entry:
        """Write the predictions for a dataset again without those for erased samples."""
        old = self.store.locate(entry.reference)

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            # filled tables have a row for each draw
            n_rows = rewrite_predictions(old, self.erased, folder)
            return {**entry.summary, "samples": n_rows // int(entry.options.get("draws", 1))}

        inputs = {**entry.inputs, "dataset": new.reference}
        return self.store.build(
            "predictions", inputs=inputs, options=entry.options, version=entry.version, write=write
        )

    def _entry(self, reference: Reference) -> Entry:
        return self.found.entries[reference.identity]

    def _rewrite_spill(self, entry: Entry, layers: list[Layer]) -> Entry:
        identity = entry.reference.identity
        if identity in self.parts:
            return self.parts[identity]
        options = {**entry.options, ERASURES: self.erased.digest}
        if identity in self.found.erased_rows:
            old = self.store.locate(entry.reference)
            schema = Schema.from_json(read_arrays(find_local_path(layers[0].path), [])[1]["schema"])

            def write(folder: Path, work: Path) -> Mapping[str, Any]:
                return rewrite_spill(old, entry, schema, self.erased, folder).to_json()

            new = self.store.build(
                "spill", inputs=entry.inputs, options=options, version=entry.version, write=write
            )
        else:
            new = self.store.enter_again(replace(entry, options=options))
        self.parts[identity] = new
        return new

    def _rewrite_partition(self, entry: Entry) -> Entry:
        identity = entry.reference.identity
        if identity not in self.parts:
            old = self.store.locate(entry.reference)

            def write(folder: Path, work: Path) -> Mapping[str, Any]:
                return rewrite_partition(old, entry, self.erased, folder).to_json()

            parts = self.parts
            self.parts[identity] = self.store.build(
                "samples",
                inputs={
                    role: parts[each.identity].reference if each.identity in parts else each
                    for role, each in entry.inputs.items()
                },
                options={**entry.options, ERASURES: self.erased.digest},
                version=entry.version,
                write=write,
            )
        return self.parts[identity]

    def _rewrite_layer(self, layer: Layer) -> Layer:
        new = self._rewrite_partition(self._entry(layer.partition))
        opened = open_layer(self.store, new.reference, (layer.first_key, layer.last_key))
        rows = find_same_rows(
            find_local_path(layer.path), find_local_path(opened.path), layer.superseded
        )
        return opened.supersede(rows) if rows.size else opened

    def _measure_lost(self, layer: Layer) -> np.ndarray[Any, Any]:
        """Sums over the erased samples of a layer: `SAMPLE_COUNTS`, and samples."""
        gone, _ = find_erased_rows(find_local_path(layer.path), self.erased)
        gone[layer.superseded] = False
        lost = read_sample_counts(find_local_path(layer.path))[gone].sum(axis=0, dtype=np.int64)
        return np.append(lost, np.count_nonzero(gone))

    def _list_erased(self, layer: Layer) -> list[BlockReference]:
        """Erased samples of a layer, as references to parts of its blocks."""
        gone, _ = find_erased_rows(find_local_path(layer.path), self.erased)
        gone[layer.superseded] = False
        rows, found = np.flatnonzero(gone), []
        for block in layer.blocks:
            mine = rows[(rows >= block.start) & (rows < block.stop)]
            if mine.size:
                found.append(take_rows(block, mine))
        return found
