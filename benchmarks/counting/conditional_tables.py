"""Tables of some variables among samples that meet conditions: one pass over blocks, against filters of tables.

    python -m benchmarks.counting.conditional_tables  # ten million rows on disk, a thousand tables of a million
    python -m benchmarks.counting.conditional_tables --short  # seconds

Rows are drawn: 30 variables, most of 8 levels, one of 100. "stored" counts three tables under two or three conditions,
reading included, from a store and from a Parquet file of the same codes; all read warm files, in as many threads as
they like. "many" counts tables of one variable under one to three conditions from what is in memory. "wide" counts them
from level indices of a long log, of which little is observed. Printed are medians of seconds by the clock and of CPU
seconds of the process, of methods that take turns; and what the plan of pmflib says that its work takes one core. X
marks a time extrapolated from fewer tables. Tables are compared before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pmflib.core.blocks import DenseBlock
from pmflib.counting.conditional_tables import count_tables
from pmflib.counting.stored_conditionals import count_stored_tables
from pmflib.counting.table_requests import TableRequest
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockReference, choose_block_rows, list_blocks, read_blocks
from pmflib.store.sample_writer import SampleWriter

CARDINALITIES = [2, 5, 8, 8, 100, 15, 30, *[8] * 23]
"""Levels of the variables: the last 23 are sometimes missing."""
STORED = [
    TableRequest((0, 1), ((5, (3,)), (4, tuple(range(60, 100))), (6, (1, 2)))),
    TableRequest((2,), ((5, (3,)), (3, (1, 2)))),
    TableRequest((0, 7), ((4, tuple(range(30, 40))), (2, (5,)))),
]
DRAWN_ROWS = 1_000_000
PEER_TABLES = 20
"""Tables that a peer counts of many: the time of all is extrapolated."""
WIDE = 2000
"""Variables of the long log, of which a sample has one in 20."""

Method = Callable[[Sequence[TableRequest]], list[np.ndarray]]


def draw_codes(n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Codes of the variables, independent and uniform."""
    columns = [
        rng.integers(0 if j < 7 else -1, size, n_rows) for j, size in enumerate(CARDINALITIES)
    ]
    return np.column_stack([column.astype(np.int8) for column in columns])


def write_rows(folder: Path, n_rows: int, schema: Schema) -> list[BlockReference]:
    """Write the same rows as blocks and as a Parquet file."""
    rng = np.random.default_rng(0)
    path = folder / "0123456789abcdef01234567" / "samples"
    writer = SampleWriter(path, schema, sparse=False)
    columns = pa.schema([(f"v{j}", pa.int8()) for j in range(schema.n_variables)])
    with pq.ParquetWriter(folder / "rows.parquet", columns) as file:
        for start in range(0, n_rows, DRAWN_ROWS):
            codes = draw_codes(min(DRAWN_ROWS, n_rows - start), rng)
            rows = np.arange(start, start + len(codes))
            writer.append(DenseBlock(codes), np.zeros_like(rows), rows)
            file.write_table(to_arrow(codes))
    writer.close()
    return list_blocks(path)


def to_arrow(codes: np.ndarray) -> pa.Table:
    """Columns of codes."""
    return pa.table({f"v{j}": column for j, column in enumerate(codes.T.copy())})


def draw_requests(n: int, schema: Schema, rng: np.random.Generator) -> list[TableRequest]:
    """Tables of one variable of 8 levels, under one to three conditions of up to half the levels of a variable."""
    eight = np.flatnonzero(schema.cardinalities == 8)
    requests = []
    for _ in range(n):
        target = int(rng.choice(eight))
        others = np.setdiff1d(np.arange(schema.n_variables), target)
        conditions = []
        for position in rng.choice(others, rng.integers(1, 4), replace=False).tolist():
            size = schema.cardinalities[position]
            codes = rng.choice(size, rng.integers(1, max(2, size // 2 + 1)), replace=False)
            conditions.append((position, tuple(codes.tolist())))
        requests.append(TableRequest((target,), tuple(conditions)))
    return requests


def fill_table(
    schema: Schema, request: TableRequest, cells: np.ndarray, counts: object
) -> np.ndarray:
    """Table of the cells that a peer has found, (n_cells, n_targets), and their counts; missing is left out."""
    table = np.zeros(tuple(schema.cardinalities[list(request.targets)]), np.int64)
    observed = (cells >= 0).all(axis=1)
    table[tuple(cells[observed].T)] = np.asarray(counts)[observed]
    return table


def count_frame(
    schema: Schema, frame: pd.DataFrame, requests: Sequence[TableRequest]
) -> list[np.ndarray]:
    """Filter a frame and count values, table by table."""
    tables = []
    for request in requests:
        met = np.ones(len(frame), bool)
        for position, codes in request.given:
            met &= frame[f"v{position}"].isin(codes).to_numpy()
        seen = frame.loc[met, [f"v{j}" for j in request.targets]].value_counts()
        cells = seen.index.to_frame().to_numpy()
        tables.append(fill_table(schema, request, cells, seen))
    return tables


def count_file_with_pandas(
    schema: Schema, path: Path, requests: Sequence[TableRequest]
) -> list[np.ndarray]:
    """Read the columns that are needed, once, and filter the frame."""
    positions = sorted(set().union(*(request.positions for request in requests)))
    frame = pd.read_parquet(path, columns=[f"v{j}" for j in positions])
    return count_frame(schema, frame, requests)


def count_arrow(
    schema: Schema, source: Path | pa.Table, requests: Sequence[TableRequest]
) -> list[np.ndarray]:
    """Filter a file, or a table in memory, and group what is left, table by table."""
    tables = []
    for request in requests:
        names = [f"v{j}" for j in request.targets]
        met = pc.scalar(True)
        for position, codes in request.given:
            met &= pc.field(f"v{position}").isin(pa.array(codes, pa.int8()))
        if isinstance(source, Path):
            kept = ds.dataset(source).to_table(columns=names, filter=met)
        else:
            kept = source.select([f"v{j}" for j in sorted(request.positions)]).filter(met)
        seen = kept.group_by(names).aggregate([([], "count_all")])
        cells = np.column_stack([seen[name].to_numpy() for name in names])
        tables.append(fill_table(schema, request, cells, seen["count_all"].to_numpy()))
    return tables


def compare(
    title: str,
    methods: dict[str, Method],
    requests: Sequence[TableRequest],
    repeats: int,
    n_of_peers: int,
) -> None:
    """Count by turns, check that tables agree, and print medians; the first method is pmflib's."""
    print(title)
    expected = next(iter(methods.values()))(requests)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, count in methods.items():
            mine = requests if name == "pmflib" else requests[:n_of_peers]
            clock, spent = time.perf_counter(), time.process_time()
            found = count(mine)
            factor = len(requests) / len(mine)
            elapsed = time.perf_counter() - clock, time.process_time() - spent
            times[name].append((factor * elapsed[0], factor * elapsed[1]))
            for table, other in zip(found, expected, strict=False):
                np.testing.assert_array_equal(table, other)
    own = [statistics.median(column) for column in zip(*times["pmflib"], strict=True)]
    for name, measured in times.items():
        clock, spent = (statistics.median(column) for column in zip(*measured, strict=True))
        mark = " X" if name != "pmflib" and n_of_peers < len(requests) else ""
        ratio = f"  CPU {spent / own[1]:6.1f}x" if name != "pmflib" else ""
        print(f"  {name:16} {clock:8.2f} s  CPU {spent:8.2f} s{mark:2}{ratio}")


def main() -> None:
    """Draw, count and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e7, help="rows on disk")
    parser.add_argument("--requests", type=int, default=1000, help="tables of the rows in memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="a tenth of the rows and tables")
    options = parser.parse_args()
    n_rows = int(options.rows) // (10 if options.short else 1)
    n_requests = options.requests // (10 if options.short else 1)
    schema = Schema.from_cardinalities(CARDINALITIES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks = write_rows(folder, n_rows, schema)
        file = folder / "rows.parquet"
        stored: dict[str, Method] = {
            "pmflib": lambda requests: count_stored_tables(blocks, schema, requests).tables,
            "pyarrow, file": partial(count_arrow, schema, file),
            "pandas, file": partial(count_file_with_pandas, schema, file),
        }
        compare(
            f"stored: 3 tables of {n_rows:,} rows", stored, STORED, options.repeats, len(STORED)
        )
        print(
            f"  planned          {count_stored_tables(blocks, schema, STORED).seconds:8.2f} s of one core"
        )

        few = blocks[: 1 + DRAWN_ROWS // choose_block_rows(schema.n_variables)]
        loaded = list(read_blocks(few))
        codes = np.concatenate([block.to_codes(schema.offsets) for block in loaded])
        requests = draw_requests(n_requests, schema, np.random.default_rng(1))
        table = to_arrow(codes)
        memory: dict[str, Method] = {
            "pmflib": partial(count_tables, loaded, schema),
            "pyarrow": partial(count_arrow, schema, table),
            "pandas": partial(count_frame, schema, table.to_pandas()),
        }
        compare(
            f"many: {n_requests:,} tables of {len(codes):,} rows",
            memory,
            requests,
            options.repeats,
            PEER_TABLES,
        )
        counted = count_stored_tables(few, schema, requests)
        print(f"  planned          {counted.seconds:8.2f} s of one core, reading included")

    wide = Schema.from_cardinalities([8] * WIDE)
    rng = np.random.default_rng(2)
    n_log = n_rows // 100
    step = choose_block_rows(WIDE)
    log = []
    for start in range(0, n_log, step):
        shape = (min(step, n_log - start), WIDE)
        drawn = np.where(rng.random(shape) < 0.05, rng.integers(0, 8, shape), -1)
        log.append(DenseBlock(drawn.astype(np.int8)).to_sparse(wide.offsets))
    requests = draw_requests(n_requests, wide, rng)
    title = f"wide: {n_requests:,} tables of {n_log:,} rows of {WIDE:,} variables, 5 % observed"
    compare(title, {"pmflib": partial(count_tables, log, wide)}, requests, options.repeats, 0)


if __name__ == "__main__":
    main()
