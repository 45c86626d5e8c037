"""Columns of odd types are read, or refused by name."""

import random
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.base import SourceError
from pmflib.ingest import SourceOptions, find_sources, read_rows
from pmflib.schema import find_type_fault, simplify
from tests.fuzz.parquet_files import COLUMNS

REFUSED = {"unknown zone", "lists", "records", "maps"}


@pytest.mark.parametrize("kind", COLUMNS)
def test_read_rows__every_type(kind, tmp_path):
    column = COLUMNS[kind](random.Random(0))
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    (source,) = find_sources(str(tmp_path / "a.parquet"))
    rows = read_rows(source, SourceOptions(path="x", layout="wide"), ["a"])
    if kind in REFUSED:
        with pytest.raises(SourceError, match=r"a\.parquet: column .a."):
            list(rows)
        return
    (raw,) = rows
    assert raw.batch.num_rows == len(column)
    assert raw.batch.column("a").null_count == column.null_count
    codes = pmf.Variable("a", ("x", "y", "true", "1")).encode_column(raw.batch.column("a"))
    assert len(codes) == len(column)


def test_simplify__values():
    identifier = uuid.UUID(int=7)
    storage = pa.array([identifier.bytes, None], pa.binary(16))
    assert simplify(pa.ExtensionArray.from_storage(pa.uuid(), storage)).to_pylist() == [
        str(identifier),
        None,
    ]
    storage = pa.array([0, 1, None], pa.int8())
    assert simplify(pa.ExtensionArray.from_storage(pa.bool8(), storage)).to_pylist() == [
        False,
        True,
        None,
    ]
    # times that Python has are written as ever, also beside one that it has not
    times = pa.array([0, 2**62, None], pa.int64()).cast(pa.timestamp("us", "Europe/Berlin"))
    assert simplify(times).to_pylist() == [
        "1970-01-01 01:00:00+01:00",
        "4611686018427387904 timestamp[us, tz=Europe/Berlin]",
        None,
    ]
    assert simplify(times.slice(0, 1)).equals(times.slice(0, 1))
    long = pa.array([2**62], pa.int64()).cast(pa.duration("s"))
    assert simplify(long).to_pylist() == ["4611686018427387904 duration[s]"]


@pytest.mark.parametrize("zone", ["Nowhere", "../etc/passwd", "a\0b", "", "/"])
def test_find_type_fault__unknown_zone(zone):
    assert "zone" in find_type_fault(pa.timestamp("us", zone or " "))
