"""Writer of partitions of samples, in blocks of a single fold each: see `pmflib.store.sample_blocks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, DenseBlock, SparseBlock, concatenate_blocks
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    COLUMN_ROWS,
    REPLICATES,
    SAMPLE_COUNTS,
    SUMS,
    choose_block_rows,
    choose_replicate_rows,
    pack_sums,
    sum_units,
)
from pmflib.store.zarr_arrays import create_array, create_group


@dataclass(frozen=True)
class WrittenSamples:
    """Numbers of written samples, observed cells and blocks."""

    samples: int
    observed: int
    blocks: int


class SampleWriter:
    """Writes one partition incrementally, in bounded memory.

    Every block contains samples of one fold, in the order in which they were added. Equal calls of `append` give equal
    bytes.

    Parameters
    ----------
    path
        Folder of the new Zarr group, which must not exist.
    schema
        Schema, stored in the attributes of the group.
    sparse
        Whether to store level indices instead of codes.
    weight_decimals
        Decimals of the sample weights; None without weights.
    attributes
        Additional attributes, plain JSON types.
    block_rows
        Number of rows of a full block; by default about ``BLOCK_BYTES`` of codes.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        sparse: bool,
        weight_decimals: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        block_rows: int | None = None,
    ) -> None:
        self.schema = schema
        self.sparse = sparse
        self._decimals = weight_decimals
        self.block_rows = block_rows or choose_block_rows(schema.n_variables)
        self._attributes = {
            **(attributes or {}),
            "layout": "sparse" if sparse else "dense",
            "missing": -1,
        }
        self._group = create_group(path, {})
        self._pending: dict[int, list[tuple[Block, *tuple[npt.NDArray[Any], ...]]]] = {}
        self._blocks: list[tuple[int, ...]] = []
        self._n_rows = 0
        self._n_observed = 0
        self._arrays: dict[str, Any] = {}

    def append(
        self,
        block: Block,
        folds: IntArray,
        rows: IntArray,
        samples: npt.NDArray[np.object_] | None = None,
        sample_counts: IntArray | None = None,
        units: IntArray | None = None,
        replicates: IntArray | None = None,
    ) -> None:
        """Add samples.

        Parameters
        ----------
        block
            Valid samples, dense or sparse, which are stored in the layout of the writer. Weights are whole numbers of
            units, at most `pmflib.base.weights.LARGEST`.
        folds
            Fold of each sample, shape (n_rows,).
        rows
            Source row of each sample, int64 of shape (n_rows,), -1 if it is not a single one.
        samples
            Identifiers, object array of bytes of shape (n_rows,); None without identifiers.
        sample_counts
            Numbers of encoded source rows and of duplicates among them, int32 of shape (n_rows, 2), or of shape
            (n_rows, 3) with the number of conflicts. None means one row per sample.
        units
            Hashes of stratum and sampling unit, int64 of shape (n_rows, 2); None in all calls without sampling units.
        replicates
            Replicate weights in units, int64 of shape (n_rows, n_replicates); None in all calls without replicates.
        """
        if samples is None:
            samples = np.full(block.n_rows, b"", object)
        if sample_counts is None:
            sample_counts = np.tile(np.array([1, 0], np.int32), (block.n_rows, 1))
        if self.sparse:
            block = block.to_sparse(self.schema.offsets)
        else:
            block = DenseBlock(block.to_codes(self.schema.offsets), block.weights)
        for fold in np.unique(folds):
            mine = np.flatnonzero(folds == fold)
            waiting = self._pending.setdefault(int(fold), [])
            drawn = (
                np.empty((mine.size, 0), np.int64) if each is None else each[mine]
                for each in (units, replicates)
            )
            parts = rows[mine], sample_counts[mine], samples[mine], *drawn
            waiting.append((block.take(mine), *parts))
            if sum(part[0].n_rows for part in waiting) >= self.block_rows:
                self._flush(int(fold), keep_rest=True)

    def _flush(self, fold: int, *, keep_rest: bool) -> None:
        blocks, *columns = zip(*self._pending.pop(fold), strict=True)
        whole = concatenate_blocks(blocks, self.schema.offsets)
        joined = [np.concatenate(parts) for parts in columns]
        stop = whole.n_rows // self.block_rows * self.block_rows if keep_rest else whole.n_rows
        if stop:
            self._write(fold, whole.take(np.arange(stop)), *(each[:stop] for each in joined))
        if stop < whole.n_rows:
            rest = np.arange(stop, whole.n_rows)
            self._pending[fold] = [(whole.take(rest), *(each[stop:] for each in joined))]

    def _write(
        self,
        fold: int,
        samples: Block,
        rows: IntArray,
        sample_counts: IntArray,
        identifiers: npt.NDArray[np.object_],
        units: IntArray,
        replicates: IntArray,
    ) -> None:
        """Write several blocks of one fold at once, as every write of an array costs some milliseconds."""
        ends = [*range(self.block_rows, samples.n_rows, self.block_rows), samples.n_rows]
        if isinstance(samples, SparseBlock):
            self._extend("indices", samples.indices, ("observation",))
            self._extend("indptr", samples.indptr[1:] + self._n_observed, ("sample",))
            observed = np.diff(samples.indptr)
        else:
            observed = np.count_nonzero(samples.codes >= 0, axis=1)
            codes, chunk_rows = samples.codes, self.block_rows
            self._extend("codes", codes, ("sample", "variable"), chunk_rows=chunk_rows)
        self._extend("row", rows, ("sample",))
        if self._decimals is not None:
            assert samples.weights is not None
            self._extend("weight", samples.weights.astype(np.int64), ("sample",))
        if units.shape[1]:
            self._extend("units", units, ("sample", "stratum unit"))
        if n := replicates.shape[1]:
            dims, chunk_rows = ("sample", "replicate"), choose_replicate_rows(n)
            self._extend(REPLICATES, replicates, dims, chunk_rows=chunk_rows)
        whole = np.insert(sample_counts, 2, observed, axis=1).astype(np.int32)
        self._extend("tally", whole, ("sample", " ".join(SAMPLE_COUNTS[: whole.shape[1]])))
        lengths = np.fromiter(map(len, identifiers), np.int32, len(identifiers))
        self._extend("sample_length", lengths, ("sample",))
        self._extend("sample_bytes", np.frombuffer(b"".join(identifiers), np.uint8), ("byte",))
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            block = samples.take(np.arange(start, stop))
            first = self._n_rows
            self._n_rows += block.n_rows
            self._n_observed += block.n_observed
            sums: tuple[int, ...] = ()
            if self._decimals is not None:
                assert block.weights is not None
                sums = pack_sums(sum_units(block.weights.astype(np.int64), self._decimals))
            row = first, self._n_rows, fold, block.n_observed, block.nbytes, *sums
            self._blocks.append(row)

    def _extend(
        self,
        name: str,
        values: npt.NDArray[Any],
        dims: Sequence[str],
        *,
        chunk_rows: int = COLUMN_ROWS,
    ) -> None:
        if name not in self._arrays:
            shape = (0, *values.shape[1:])
            self._arrays[name] = create_array(
                self._group, name, shape, values.dtype, dims, chunk_rows=chunk_rows
            )
        if values.shape[0]:
            self._arrays[name].append(values)

    def close(self) -> WrittenSamples:
        """Write the remaining samples."""
        for fold in sorted(self._pending):
            self._flush(fold, keep_rest=False)
        if not self._blocks:
            # an empty partition has empty arrays
            codes = np.empty((0, self.schema.n_variables), self.schema.code_dtype)
            empty = DenseBlock(codes, None if self._decimals is None else np.empty(0))
            block = empty.to_sparse(self.schema.offsets) if self.sparse else empty
            nothing = (
                np.empty(0, np.int64),
                np.empty((0, 2), np.int32),
                np.empty(0, object),
                np.empty((0, 0), np.int64),
                np.empty((0, 0), np.int64),
            )
            self._write(0, block, *nothing)
            self._blocks.clear()
        names = "start stop fold observed nbytes"
        names += "" if self._decimals is None else f" {' '.join(SUMS)}"
        table = np.array(self._blocks, np.int64).reshape(-1, len(names.split()))
        blocks = create_array(
            self._group,
            "blocks",
            table.shape,
            table.dtype,
            ("block", names),
        )
        if table.size:
            blocks[...] = table
        # last, as Zarr reads the attributes again whenever an array is created
        self._group.update_attributes({**self._attributes, "schema": self.schema.to_json()})
        return WrittenSamples(self._n_rows, self._n_observed, len(self._blocks))
