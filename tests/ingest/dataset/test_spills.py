import numpy as np
import pyarrow as pa
import pytest

from pmflib.base.errors import StoreError
from pmflib.ingest.dataset import spills
from pmflib.ingest.dataset.identifiers import find_buckets, make_keys, read_identifiers
from pmflib.ingest.dataset.spills import (
    INDEX_FILE,
    KEYS_FILE,
    ROWS_FILE,
    Spill,
    SpillWriter,
)

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
    monkeypatch.setattr(spills, "PAGE_ROWS", 16)


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
    spill, read = Spill(tmp_path / "spill", {}), []
    n_pages = len(list(spill.read_pages()))
    # how much of the file is read, which the rows do not show
    plain = Spill._read_page
    monkeypatch.setattr(Spill, "_read_page", lambda *of: read.append(1) or plain(*of))
    rows = spill.read_samples(chosen)["row"].to_numpy()
    assert sorted(rows) == np.flatnonzero(np.isin(keys, chosen)).tolist()
    assert 0 < len(read) < n_pages / 2
    read.clear()
    assert spill.read_samples(chosen[:0]).num_rows == 0
    assert read == []


def test_spill__one_that_was_not_closed_is_refused(tmp_path):
    tmp_path.joinpath("spill").mkdir()
    with pytest.raises(KeyError), SpillWriter(tmp_path / "spill", FIELDS, 2):
        raise KeyError
    with pytest.raises(StoreError, match="spill"):
        Spill(tmp_path / "spill", {})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [ROWS_FILE, KEYS_FILE, INDEX_FILE])
def test_spill__one_flipped_bit_is_noticed(tmp_path, names, name):
    write(tmp_path / "spill", names)
    file = tmp_path / "spill" / name
    content = file.read_bytes()
    rng = np.random.default_rng(1)
    for position in [0, len(content) - 1, *rng.integers(0, len(content), 40).tolist()]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(damaged))
        spill = Spill(tmp_path / "spill", {})
        with pytest.raises(StoreError, match="spill"):
            [spill.read_keys(), spill.read_buckets(0, 4)]
    file.write_bytes(content[:-1])
    spill = Spill(tmp_path / "spill", {})
    with pytest.raises(StoreError, match="spill"):
        [spill.read_keys(), spill.read_buckets(0, 4)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n_buckets", [1, 4, 64, 150])
def test_spill__some_buckets_take_their_sections_alone(tmp_path, names, n_buckets):
    keys = write(tmp_path / "spill", names, n_buckets)
    spill = Spill(tmp_path / "spill", {})
    start, stop = n_buckets // 2, n_buckets // 2 + max(1, n_buckets // 40)
    whole = spill.read_buckets(0, n_buckets)["row"].to_numpy()
    inside = (find_buckets(keys) >= start) & (find_buckets(keys) < stop)
    rows = spill.read_buckets(start, stop)["row"].to_numpy()
    assert sorted(rows) == np.flatnonzero(inside).tolist()
    assert rows.tolist() == [row for row in whole.tolist() if inside[row]]
    index = bytearray((tmp_path / "spill" / INDEX_FILE).read_bytes())
    index[-1] ^= 1
    (tmp_path / "spill" / INDEX_FILE).write_bytes(index)
    last = stop == n_buckets
    if not last:
        assert spill.read_buckets(start, stop)["row"].to_pylist() == rows.tolist()
    with pytest.raises(StoreError, match="index"):
        spill.read_buckets(n_buckets - 1, n_buckets)
