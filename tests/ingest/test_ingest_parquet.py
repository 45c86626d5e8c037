import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.base import SourceError
from pmflib.ingest import SourceOptions, find_sources, read_columns, read_rows, readers

WIDE = SourceOptions(path="x", layout="wide")


def read(path, columns, config=WIDE):
    (source,) = find_sources(str(path))
    return list(read_rows(source, config, columns))


def test_read_rows__requested_columns_in_their_order_and_numbered(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PARQUET_ROWS", 64)
    table = pa.table({"a": np.arange(500), "b": [f"t{n}" for n in range(500)], "c": [0] * 500})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=170)
    parts = read(tmp_path / "x.parquet", ["b", "a"])
    assert len(parts) > 1
    assert np.concatenate([part.rows for part in parts]).tolist() == list(range(1, 501))
    whole = pa.Table.from_batches([part.batch for part in parts])
    assert whole.equals(table.select(["b", "a"]))


def test_read_rows__dictionaries_views_nulls_and_fine_times(tmp_path):
    when = pa.array([1_577_836_800_000_000_123, None, 0], pa.timestamp("ns"))
    table = pa.table(
        {
            "d": pa.array(["x", None, "y"]).dictionary_encode(),
            "v": pa.array(["x", None, "y"], pa.string_view()),
            "n": pa.nulls(3),
            "t": when,
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    (part,) = read(tmp_path / "x.parquet", ["d", "v", "n", "t"])
    got = part.batch.to_pydict()
    assert got["d"] == got["v"] == ["x", None, "y"]
    assert got["n"] == [None] * 3
    assert got["t"] == [datetime.datetime(2020, 1, 1), None, datetime.datetime(1970, 1, 1)]


def test_read_rows__texts_are_coded_and_nested_columns_refused(tmp_path):
    table = pa.table({"a": ["x", "y", "x"], "b": [{"c": 1}] * 3, "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "x.parquet")
    (source,) = find_sources(str(tmp_path / "x.parquet"))
    (part,) = read_rows(source, WIDE, ["a", "n"], coded=["a", "n"])
    assert pa.types.is_dictionary(part.batch.schema.field("a").type)
    assert part.batch.to_pydict() == {"a": ["x", "y", "x"], "n": [1, 2, 3]}
    with pytest.raises(SourceError, match="column 'b'"):
        list(read_rows(source, WIDE, ["a", "b"], coded=["a", "b"]))


def test_read_rows__no_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "x.pq")
    assert sum(part.batch.num_rows for part in read(tmp_path / "x.pq", ["a"])) == 0


def test_read_rows__format_is_configured(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.data")
    forced = SourceOptions(path="x", layout="wide", format="parquet")
    (part,) = read(tmp_path / "x.data", ["a"], forced)
    assert part.batch.to_pydict() == {"a": [1]}
    (source,) = find_sources(str(tmp_path))
    assert read_columns(source, forced) == ["a"]


@pytest.mark.parametrize("keep", [3, 200, -4])
def test_read_rows__cut_short(tmp_path, keep):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": np.arange(1000)}), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=r"x\.parquet"):
        read(path, ["a"])


def test_read_rows__damaged_inside(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [f"text {n}" for n in range(50_000)]}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[1000:3000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.parquet: .*row 1 "):
        read(path, ["a"])


def test_read_rows__csv_named_parquet(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"a,b\n1,2\n" * 100)
    with pytest.raises(SourceError, match=r"source\.format"):
        read(tmp_path / "x.parquet", ["a"])


def test_read_rows__columns_absent_twice_or_nested(tmp_path):
    path = tmp_path / "x.parquet"
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, path)
    with pytest.raises(SourceError, match="column 'a'"):
        read(path, ["a"])
    pq.write_table(pa.table({"user_id": [[1, 2]]}), path)
    with pytest.raises(SourceError, match="'user'"):
        read(path, ["user"])
    with pytest.raises(SourceError, match="column 'user_id'"):
        read(path, ["user_id"])


def test_read_rows__rows_that_no_file_of_its_size_holds(tmp_path):
    zeros = pa.DictionaryArray.from_arrays(np.zeros(8_000_000, np.int8), ["x"])
    pq.write_table(pa.table({"a": zeros}), tmp_path / "a.parquet")
    (source,) = find_sources(str(tmp_path / "a.parquet"))
    with pytest.raises(SourceError, match="8,000,000 rows"):
        next(read_rows(source, SourceOptions(path="x", layout="wide"), ["a"]))


def test_read_rows__a_page_that_expands(tmp_path):
    text = pa.table({"a": ["y" * 300_000_000]})
    pq.write_table(text, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    (source,) = find_sources(str(tmp_path / "a.parquet"))
    with pytest.raises(SourceError, match="row group"):
        next(read_rows(source, SourceOptions(path="x", layout="wide"), ["a"]))
