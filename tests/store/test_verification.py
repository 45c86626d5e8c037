import pytest

from pmflib.store.artefacts import Store
from pmflib.store.verification import find_damage


@pytest.fixture
def store(tmp_path):
    """Give a store of two artefacts with two files each, and a raw source."""
    store = Store(tmp_path / "store")

    def write(text):
        def fill(folder, work):
            (folder / "deep").mkdir()
            (folder / "deep" / "table.parquet").write_text(text)
            (folder / "meta.json").write_text("{}")
            return {}

        return fill

    for text in ("one", "two"):
        store.build("thing", inputs={}, options={"text": text}, version=1, write=write(text))
    store.record_source("raw.csv", "d" * 64, {})
    return store


def test_find_damage__whole_store(store):
    assert find_damage(store) == (2, [])


def test_find_damage__empty_store(tmp_path):
    assert find_damage(Store(tmp_path)) == (0, [])


@pytest.mark.parametrize("damage", ["flip", "drop", "add", "rename"])
def test_find_damage__one_folder(store, damage):
    folder = sorted((store.root / "thing").iterdir())[1]
    file = folder / "deep" / "table.parquet"
    if damage == "flip":
        content = bytearray(file.read_bytes())
        content[1] ^= 1
        file.write_bytes(content)
    elif damage == "drop":
        file.unlink()
    elif damage == "add":
        (folder / "more").write_text("")
    else:
        file.rename(folder / "table.parquet")
    assert find_damage(store) == (1, [folder])


def test_find_damage__artefact_that_is_gone_is_made_again_and_no_damage(store):
    folder = sorted((store.root / "thing").iterdir())[0]
    folder.rename(store.root / "elsewhere")
    assert find_damage(store) == (1, [])
