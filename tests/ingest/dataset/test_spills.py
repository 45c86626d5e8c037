from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from pmflib.base import StoreError
from pmflib.ingest import Spill, make_keys, read_identifiers
from pmflib.ingest.dataset import spills
from pmflib.ingest.dataset.identifiers import find_buckets, list_keys
from pmflib.ingest.dataset.spills import SpillWriter, list_ranges
from pmflib.store import read_batches

FIELDS = pa.schema([("sample", pa.binary()), ("row", pa.int64())])


def write(folder, names, n_buckets=4, batch_rows=50):
    """Spill numbered rows of named samples; return each row's key."""
    folder.mkdir()
    keys = []
    with SpillWriter(folder, FIELDS, n_buckets) as spill:
        spill.metadata["layout"] = "test"
        for start in range(0, len(names), batch_rows):
            part = names[start : start + batch_rows]
            identifiers = read_identifiers(pa.array(part))
            numbers = pa.array(np.arange(start, start + len(part)))
            batch = pa.RecordBatch.from_arrays([identifiers.texts, numbers], schema=FIELDS)
            spill.append(identifiers.hashes, batch)
            keys.append(make_keys(identifiers.hashes, n_buckets))
    return np.concatenate(keys)


@pytest.fixture
def names():
    return [f"s{n}" for n in np.random.default_rng(0).integers(0, 60, 500)]


@pytest.fixture(params=[1 << 20, 2000])
def small(monkeypatch, request):
    monkeypatch.setattr(spills, "SPILL_BYTES", request.param)
    for name, size in {"GROUP_ROWS": 16, "BATCH_ROWS": 32, "FILE_BUCKETS": 2}.items():
        monkeypatch.setattr(spills, name, size)
    monkeypatch.setattr(spills, "FILE_ROWS", 10)


@pytest.mark.usefixtures("small")
def test_spill__buckets_hold_every_row_once_and_samples_in_order(tmp_path, names):
    keys = write(tmp_path / "spill", names)
    spill = Spill(tmp_path / "spill", {"layout": "test"})
    seen = []
    for bucket in range(4):
        rows = spill.read_buckets(bucket, bucket + 1)["row"].to_numpy()
        assert set(find_buckets(keys[rows]).tolist()) <= {bucket}
        for key in np.unique(keys[rows]):
            mine = rows[keys[rows] == key]
            assert mine.tolist() == sorted(mine)
        seen += rows.tolist()
    assert sorted(seen) == list(range(500))
    assert spill.read_keys().tolist() == sorted(set(keys.tolist()))


@pytest.mark.usefixtures("small")
def test_spill__rows_of_some_samples(tmp_path, names, monkeypatch):
    keys = write(tmp_path / "spill", names)
    chosen = np.unique(keys)[[3, 17]]
    spill, batches = Spill(tmp_path / "spill", {}), []

    # how much of the files is read, which the rows do not show
    def note(*of, **options):
        for batch in read_batches(*of, **options):
            batches.append(batch)
            yield batch

    monkeypatch.setattr(spills, "read_batches", note)
    rows = spill.read_samples(chosen)["row"].to_numpy()
    assert sorted(rows) == np.flatnonzero(np.isin(keys, chosen)).tolist()
    assert sum(batch.num_rows for batch in batches) < 400
    nothing = spill.read_samples(chosen[:0])
    assert (nothing.num_rows, nothing.schema) == (0, FIELDS)


@pytest.mark.usefixtures("small")
def test_spill__rows_of_some_times(tmp_path):
    fields = pa.schema([*FIELDS, ("time", pa.float64())])
    times = np.random.default_rng(2).integers(0, 50, 400).astype(float)
    identifiers = read_identifiers(pa.array([f"s{n % 70}" for n in range(400)]))
    arrays = [identifiers.texts, pa.array(np.arange(400)), pa.array(times)]
    tmp_path.joinpath("spill").mkdir()
    with SpillWriter(tmp_path / "spill", fields, 4) as writer:
        for start in range(0, 400, 40):
            batch = pa.RecordBatch.from_arrays(arrays, schema=fields).slice(start, 40)
            writer.append(identifiers.hashes[start : start + 40], batch)
    keys = make_keys(identifiers.hashes, 4)
    spill = Spill(tmp_path / "spill", {})
    inside = (times >= 20) & (times < 30)
    assert spill.count_rows(20) == np.count_nonzero(times < 20)
    assert spill.read_keys_between(20, 30).tolist() == np.unique(keys[inside]).tolist()
    assert spill.read_keys(after=350).tolist() == np.unique(keys[351:]).tolist()
    late = Spill(tmp_path / "spill", {}, since=30).read_buckets(0, 4)["row"].to_numpy()
    assert sorted(late) == np.flatnonzero(times >= 30).tolist()


def test_spill__one_that_was_not_closed_is_refused(tmp_path):
    tmp_path.joinpath("spill").mkdir()
    with pytest.raises(KeyError), SpillWriter(tmp_path / "spill", FIELDS, 2):
        raise KeyError
    with pytest.raises(StoreError, match="an earlier version wrote it, or it was lost"):
        Spill(tmp_path / "spill", {})


@pytest.mark.usefixtures("small")
def test_spill__one_flipped_bit_is_noticed(tmp_path, names):
    write(tmp_path / "spill", names)
    rng = np.random.default_rng(1)
    spill = Spill(tmp_path / "spill", {})
    whole = spill.read_buckets(0, 4)
    for file in (tmp_path / "spill").glob("*.parquet"):
        content = file.read_bytes()
        for position in [len(content) - 1, *rng.integers(4, len(content), 60).tolist()]:
            damaged = bytearray(content)
            damaged[position] ^= 1 << int(rng.integers(8))
            file.write_bytes(bytes(damaged))
            # statistics in the header of a page are not read
            with suppress(StoreError):
                assert spill.read_buckets(0, 4) == whole
        file.write_bytes(content[:-1])
        with pytest.raises(StoreError, match="spill"):
            spill.read_keys()
        file.write_bytes(content)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n_buckets", [1, 4, 64, 150])
def test_spill__some_buckets_take_their_files_alone(tmp_path, names, n_buckets):
    keys = write(tmp_path / "spill", names, n_buckets)
    spill = Spill(tmp_path / "spill", {})
    start, stop = n_buckets // 2, n_buckets // 2 + max(1, n_buckets // 40)
    whole = spill.read_buckets(0, n_buckets)["row"].to_numpy()
    inside = (find_buckets(keys) >= start) & (find_buckets(keys) < stop)
    rows = spill.read_buckets(start, stop)["row"].to_numpy()
    assert sorted(rows) == np.flatnonzero(inside).tolist()
    assert rows.tolist() == [row for row in whole.tolist() if inside[row]]
    files = sorted((tmp_path / "spill").glob("*.parquet"))
    first_of_last, _ = list_ranges(n_buckets, len(files))[-1]
    damaged = bytearray(files[-1].read_bytes())
    damaged[-1] ^= 1
    files[-1].write_bytes(damaged)
    if list_keys(stop)[0] <= first_of_last:
        assert spill.read_buckets(start, stop)["row"].to_pylist() == rows.tolist()
    with pytest.raises(StoreError, match="footer"):
        spill.read_buckets(n_buckets - 1, n_buckets)
