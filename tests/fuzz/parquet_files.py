"""Parquet files whose columns are of any type that Arrow can write."""

from __future__ import annotations

import datetime
import decimal
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

N_ROWS = 60


def _draw(rng: random.Random, *values: object) -> list[object]:
    return [rng.choice(values) for _ in range(N_ROWS)]


def _timestamps(unit: str, zone: str | None, *values: int) -> Callable[[random.Random], pa.Array]:
    return lambda rng: pa.array(_draw(rng, *values, None), pa.int64()).cast(
        pa.timestamp(unit, zone)
    )


COLUMNS: dict[str, Callable[[random.Random], pa.Array]] = {
    "text": lambda rng: pa.array(_draw(rng, "x", "y", "z", None)),
    "odd text": lambda rng: pa.array(_draw(rng, "\x1b[31m", "[/]", ":smile:", "\u202e", "x\x00y")),
    "large text": lambda rng: pa.array(_draw(rng, "x", "y"), pa.large_string()),
    "text view": lambda rng: pa.array(_draw(rng, "x", "y"), pa.string_view()),
    "bytes": lambda rng: pa.array(_draw(rng, b"x", b"\xff", None)),
    "fixed bytes": lambda rng: pa.array(_draw(rng, b"xy", b"\xff\x00"), pa.binary(2)),
    "integers": lambda rng: pa.array(_draw(rng, 1, 2, None, -(2**63), 2**63 - 1)),
    "unsigned": lambda rng: pa.array(_draw(rng, 1, 2**64 - 1), pa.uint64()),
    "floats": lambda rng: pa.array(_draw(rng, 1.0, float("nan"), float("inf"), -1e308, None)),
    "halves": lambda rng: pa.array(_draw(rng, 1.0, 2.0), pa.float32()).cast(pa.float16()),
    "booleans": lambda rng: pa.array(_draw(rng, True, False, None)),
    "nulls": lambda rng: pa.nulls(N_ROWS),
    "decimals": lambda rng: pa.array(
        _draw(rng, decimal.Decimal("1.50"), decimal.Decimal(10) ** 30), pa.decimal128(38, 2)
    ),
    "wide decimals": lambda rng: pa.array(_draw(rng, decimal.Decimal(10) ** 60), pa.decimal256(76)),
    "dates": lambda rng: pa.array(_draw(rng, 0, 2**31 - 1, -(2**31)), pa.int32()).cast(pa.date32()),
    "times": lambda rng: pa.array(_draw(rng, datetime.time(1, 2), None), pa.time64("us")),
    "seconds": _timestamps("s", None, 0, 2**40, -(2**40)),
    "microseconds": _timestamps("us", None, 0, 2**62, -(2**62)),
    "nanoseconds": _timestamps("ns", "Europe/Berlin", 0, 2**62),
    "unknown zone": _timestamps("us", "Nowhere/Nothing", 0, 10**15),
    "far zone": _timestamps("us", "+14:00", 2**62, 0),
    "durations": lambda rng: pa.array(_draw(rng, 1, 2**62), pa.int64()).cast(pa.duration("us")),
    "identifiers": lambda rng: pa.ExtensionArray.from_storage(
        pa.uuid(),
        pa.array(_draw(rng, uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes), pa.binary(16)),
    ),
    "small booleans": lambda rng: pa.ExtensionArray.from_storage(
        pa.bool8(), pa.array(_draw(rng, 0, 1, None), pa.int8())
    ),
    "documents": lambda rng: pa.ExtensionArray.from_storage(
        pa.json_(), pa.array(_draw(rng, "{}", '{"a": 1}'))
    ),
    "lists": lambda rng: pa.array(_draw(rng, [1], [], None), pa.list_(pa.int64())),
    "records": lambda rng: pa.array(_draw(rng, {"a": 1}, None)),
    "maps": lambda rng: pa.array(_draw(rng, [("a", 1)], None), pa.map_(pa.string(), pa.int64())),
    "dictionary": lambda rng: pa.array(_draw(rng, "x", "y", None)).dictionary_encode(),
    "dictionary of bytes": lambda rng: pa.array(_draw(rng, b"x", b"\xff")).dictionary_encode(),
    "dictionary of times": lambda rng: _timestamps("us", "Nowhere/Nothing", 0, 2**62)(
        rng
    ).dictionary_encode(),
    "dictionary of decimals": lambda rng: pa.array(
        _draw(rng, decimal.Decimal("1.5"), decimal.Decimal("2.5"))
    ).dictionary_encode(),
}
"""What a column may hold, by a word for it."""


def write_odd_parquet(path: Path, rng: random.Random) -> None:
    """Write columns a, b, c of drawn types; sometimes none of them, no row, or no group of rows."""
    kind = rng.random()
    if kind < 0.04:
        pq.write_table(pa.table({}), path)
        return
    drawn = [rng.choice(list(COLUMNS.values()))(rng) for _ in range(3)]
    if rng.random() < 0.5:
        drawn[1] = COLUMNS["text"](rng)
    names = rng.choice((("a", "b", "c"), ("a", "b", "c"), ("a", "a", "b"), ("a", "b", "\x1b[31m")))
    table = pa.Table.from_arrays(drawn, names=list(names))
    if kind < 0.08:
        table = table.slice(0, 0)
    if kind < 0.12:
        pq.ParquetWriter(path, table.schema).close()
        return
    pq.write_table(table, path, row_group_size=rng.choice((1, 7, N_ROWS)))
