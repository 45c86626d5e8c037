"""Buckets: samples with identifiers are dealt to them by a hash, and sorted within them by a key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pmflib.hashing import HashArray
from pmflib.ingest.sources import Source

BUCKET_BYTES = 16 << 20
"""Raw CSV that is dealt to one bucket, bytes: the second pass holds one bucket in memory."""
MAX_BUCKETS = 4096
"""Buckets of a dataset, at most: beyond, buckets are larger."""
LEAST_GROUPS = 16
"""Groups that buckets are assembled in, at least, where there are as many buckets: small data are still shared out."""
HASH_BITS = 30
"""Bits of a sample's hash in its key, below those of its bucket. Keys of 42 bits leave room for the place of a row in a
64-bit integer, and one sort of integers then sorts rows by sample. That two samples share a key is rare, and costs
nothing but that the one is read where the other is looked for."""


def choose_buckets(total_bytes: int, n_folds: int) -> int:
    """Choose the number of buckets for an amount of raw CSV: about ``BUCKET_BYTES`` each.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_folds
        Folds; bucket b belongs to fold b % n_folds.

    Returns
    -------
    A multiple of n_folds, at least n_folds, at most the largest multiple up to 4096.
    """
    needed = -(-total_bytes // BUCKET_BYTES)
    most = max(1, MAX_BUCKETS // n_folds)
    return n_folds * min(most, max(1, -(-needed // n_folds)))


def group_buckets(total_bytes: int, n_buckets: int) -> list[tuple[int, int]]:
    """Choose which buckets are assembled together, by one task into one partition: about ``BUCKET_BYTES`` of raw CSV.

    Buckets that were chosen for the data are as large, and assembled one by one; smaller ones, of a configured number
    or that of an earlier dataset, are not, for every task opens the spills of all files.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_buckets
        Buckets of the dataset.

    Returns
    -------
    First bucket of each group and the one after its last, in order; sizes differ by one at most. The number of groups
    is the number of partitions of a fresh dataset, and with that of files it gives the number of spill openings.
    """
    wanted = max(LEAST_GROUPS, -(-total_bytes // BUCKET_BYTES))
    n_groups = min(n_buckets, wanted)
    edges = [n_buckets * place // n_groups for place in range(n_groups + 1)]
    return list(pairwise(edges))


def estimate_csv_bytes(sources: Sequence[Source]) -> int:
    """Estimate the size that sources would have as plain CSV: packed bytes count five times, Parquet three times."""
    total = 0
    for source in sources:
        name = source.name.lower()
        packed = name.endswith((".gz", ".bz2", ".xz", ".zst"))
        factor = 5 if packed else 3 if name.endswith((".parquet", ".pq")) else 1
        total += factor * source.size
    return total


def make_keys(hashes: HashArray, n_buckets: int) -> HashArray:
    """Keys of samples: the bucket, and below it the upper bits of the hash.

    Parameters
    ----------
    hashes
        uint64 of shape (n_rows,): hashes of identifiers.
    n_buckets
        Buckets of the dataset, at most ``MAX_BUCKETS``.

    Returns
    -------
    uint64 of shape (n_rows,), below 2**42.
    """
    buckets = hashes % np.uint64(n_buckets)
    return (buckets << np.uint64(HASH_BITS)) | (hashes >> np.uint64(64 - HASH_BITS))


def find_buckets(keys: HashArray) -> HashArray:
    """Bucket of each key."""
    return keys >> np.uint64(HASH_BITS)


def list_keys(bucket: int) -> tuple[int, int]:
    """First and last key that samples of a bucket may have."""
    return bucket << HASH_BITS, ((bucket + 1) << HASH_BITS) - 1
