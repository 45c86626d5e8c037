import pytest

from pmflib.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import read_run, write_run

MODEL = Reference("model", "i", "d", "model/d")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_write_run__replaces_the_record_of_its_pipeline_alone(store):
    assert read_run(store, "größe") is None
    write_run(store, "größe", {"live": MODEL}, {"score": 1.5})
    write_run(store, "other", {}, {})
    assert read_run(store, "größe") == ({"live": MODEL}, {"score": 1.5})
    write_run(store, "größe", {"fit": MODEL}, {})
    assert read_run(store, "größe") == ({"fit": MODEL}, {})
    assert read_run(store, "other") == ({}, {})
    assert len(list((store.root / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"stages": {}}', b'{"stages": [], "facts": {}}']
)
def test_read_run__refuses_a_damaged_record(store, content):
    write_run(store, "p", {}, {})
    (store.root / "runs" / "p.json").write_bytes(content)
    with pytest.raises(
        StoreError, match=r"record runs/p.json is damaged .*; run the pipeline again"
    ):
        read_run(store, "p")
