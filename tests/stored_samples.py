"""Partitions of samples on disk, for the tests of what reads them."""

import numpy as np

from pmflib.base import DenseBlock
from pmflib.em import StoredSamples
from pmflib.store import SampleWriter, list_blocks


def write_partition(folder, codes, schema, *, sparse=False, block_rows=7, n_folds=3):
    """Write samples as published partitions are, in a folder named by a digest; return the blocks."""
    path = folder / "0123456789abcdef01234567" / "samples"
    writer = SampleWriter(path, schema, sparse=sparse, block_rows=block_rows)
    rows = np.arange(len(codes))
    writer.append(DenseBlock(codes), rows % n_folds, rows)
    writer.close()
    return list_blocks(path)


def split_folds(blocks, schema, held_out=0):
    """Stored samples of all folds but one, and of that one."""
    parts = [b for b in blocks if b.fold != held_out], [b for b in blocks if b.fold == held_out]
    return [StoredSamples(part, schema) for part in parts]
