"""Batches of Parquet files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.store import read_batches


def write(path, sizes):
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    start = 0
    with pq.ParquetWriter(path, schema) as writer:
        for size in sizes:
            numbers = range(start, start + size)
            columns = [list(numbers), [f"{number:040}" for number in numbers]]
            writer.write_table(pa.table(columns, schema=schema))
            start += size
    return path


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 0, 2, 7, 1, 1, 1], [40], [1] * 30])
@pytest.mark.parametrize("n_rows", [1, 4, 100])
def test_read_batches__has_all_rows_in_order(tmp_path, sizes, n_rows):
    file = pq.ParquetFile(write(tmp_path / "a.parquet", sizes))
    batches = list(read_batches(file, n_rows))
    assert [row for batch in batches for row in batch["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(0 < batch.num_rows <= n_rows for batch in batches)


def test_read_batches__of_some_groups_and_columns(tmp_path):
    file = pq.ParquetFile(write(tmp_path / "a.parquet", [2, 3, 4]))
    (batch,) = read_batches(file, 10, groups=range(1, 3), columns=["n"])
    assert batch.to_pydict() == {"n": list(range(2, 9))}
    assert list(read_batches(file, 10, groups=range(0))) == []


def test_read_batches__memory_does_not_grow_with_the_row_groups_that_are_read(tmp_path):
    draw = np.random.default_rng(0)
    names = [f"q{number}" for number in range(20)]
    schema = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in names])
    levels = pa.array(["agree", "neither", "disagree"])
    peaks = []
    for n_groups in (10, 100):
        path = tmp_path / f"{n_groups}.parquet"
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(n_groups):
                codes = draw.integers(0, 3, (20, 5000)).astype(np.int32)
                columns = [pa.DictionaryArray.from_arrays(own, levels) for own in codes]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        del columns
        before, allocated, n_rows = pa.total_allocated_bytes(), [], 0
        with pq.ParquetFile(path) as file:
            for batch in read_batches(file, 1000):
                n_rows += batch.num_rows
                allocated.append(pa.total_allocated_bytes() - before)
        del batch
        assert n_rows == 5000 * n_groups
        peaks.append(max(allocated))
    assert peaks[1] < 1.5 * peaks[0]
