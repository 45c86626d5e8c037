"""Datasets, counts and predictions without erased samples, from those that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.counting.increments import Increment
from pmflib.counting.stored_changes import count_stored_changes
from pmflib.counting.stored_tables import PAIRS, StoredTables
from pmflib.erasure.holdings import Holdings, find_in_partition, list_parts
from pmflib.erasure.rewriting import (
    find_same_rows,
    rewrite_partition,
    rewrite_predictions,
    rewrite_spill,
)
from pmflib.ingest.accounts import carry_account, combine_accounts
from pmflib.ingest.build_steps import ERASURES
from pmflib.ingest.erased_samples import ErasedSamples
from pmflib.ingest.spill_lists import list_spills, number_inputs
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import (
    FileStep,
    Layer,
    list_file_steps,
    list_layers,
    open_layer,
    read_content,
    write_layers,
)
from pmflib.store.dataset_changes import DatasetChange, take_rows
from pmflib.store.mirrors import find_place
from pmflib.store.sample_blocks import BlockReference, read_tallies
from pmflib.store.zarr_arrays import read_arrays


@dataclass
class Rewriter:
    """Writes datasets and what was made of them again, each part once.

    Parameters
    ----------
    store, erased, found
        The store, the erased samples, and what it holds of them.
    parts
        What has taken the place of spills and partitions so far, by identity.
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
        held = all(self.store.find(part.identity) is not None for part in parts)
        return held and source.get("sample") is not None

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
        lost = np.zeros(4, np.int64)
        new_layers = []
        for layer in layers:
            if layer.partition.identity in self.found.held:
                new_layers.append(self._rewrite_layer(layer))
                lost += self._measure_lost(layer)
            else:
                new_layers.append(layer)
        names = ("rows", "duplicates", "observed", "samples")
        carried = carry_account(content["account"], dict(zip(names, lost.tolist(), strict=True)))
        account = combine_accounts([spill.summary for spill in spills], [carried])
        account["blocks"] = sum(len(layer.blocks) for layer in new_layers)
        account["files_skipped"] = content["account"]["files_skipped"]
        origin = {**content["origin"], ERASURES: self.erased.digest}

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            write_layers(folder, new_layers, account, steps, origin)
            return account

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
        """Write the counts of a dataset again: those of erased samples are taken away, and full tables are written.

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
            if layer.partition.identity in self.found.held
            for block in self._list_erased(layer)
        ]
        increment = Increment(counts, tables, DatasetChange((), tuple(gone)))

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            facts = count_stored_changes(None, increment, folder / PAIRS, work, in_full=True)
            schema = tables.schema
            return {**facts, "levels": schema.n_levels, "variables": schema.n_variables}

        return store.build(
            "counts", inputs=inputs, options=entry.options, version=entry.version, write=write
        )

    def rewrite_predictions(self, entry: Entry, new: Entry) -> Entry:
        """Write the predictions for a dataset again without those for erased samples."""
        old = self.store.locate(entry.reference)

        def write(folder: Path, work: Path) -> Mapping[str, Any]:
            return {
                **entry.summary,
                "samples": rewrite_predictions(old, self.erased, folder),
            }

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
        if identity in self.found.held:
            old = self.store.locate(entry.reference)
            schema = Schema.from_json(read_arrays(find_place(layers[0].path), [])[1]["schema"])

            def write(folder: Path, work: Path) -> Mapping[str, Any]:
                return rewrite_spill(old, entry, schema, self.erased, folder)

            new = self.store.build(
                "spill",
                inputs=entry.inputs,
                options=options,
                version=entry.version,
                write=write,
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
                return rewrite_partition(old, entry, self.erased, folder)

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
        rows = find_same_rows(find_place(layer.path), find_place(opened.path), layer.superseded)
        return opened.supersede(rows) if rows.size else opened

    def _measure_lost(self, layer: Layer) -> np.ndarray[Any, Any]:
        """Sums over the erased samples of a layer: rows, duplicates, observed cells, samples."""
        gone, _ = find_in_partition(find_place(layer.path), self.erased)
        gone[layer.superseded] = False
        lost = read_tallies(find_place(layer.path))[gone].sum(axis=0, dtype=np.int64)
        return np.append(lost, np.count_nonzero(gone))

    def _list_erased(self, layer: Layer) -> list[BlockReference]:
        """Erased samples of a layer, as references to parts of its blocks."""
        gone, _ = find_in_partition(find_place(layer.path), self.erased)
        gone[layer.superseded] = False
        rows, found = np.flatnonzero(gone), []
        for block in layer.blocks:
            mine = rows[(rows >= block.start) & (rows < block.stop)]
            if mine.size:
                found.append(take_rows(block, mine))
        return found
