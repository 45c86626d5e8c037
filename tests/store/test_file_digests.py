import json
import os

import pytest

from pmflib.base import StoreError
from pmflib.store import (
    LIST_FILE,
    Store,
    check_artefact,
    check_file,
    digest_file,
    digest_tree,
    find_changes,
    name_content,
    read_checked,
)
from pmflib.store.file_digests import check_files, digest_list, read_list


@pytest.fixture
def artefact(tmp_path):
    """Give the folder of an artefact of three files, two of them of one name."""

    def write(folder, work):
        (folder / "deep" / "more").mkdir(parents=True)
        (folder / "deep.json").write_text("1")
        (folder / "deep" / "text").write_text("hello")
        (folder / "deep" / "more" / "text").write_text("world")
        return {}

    store = Store(tmp_path / "store")
    return store.locate(
        store.build("thing", inputs={}, options={}, version=1, write=write).reference
    )


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_list__names_every_file_and_is_no_part_of_the_content(artefact):
    listed = json.loads((artefact / LIST_FILE).read_text())
    assert sorted(listed) == ["deep.json", "deep/more/text", "deep/text"]
    assert listed["deep/text"] == digest_file(artefact / "deep" / "text")
    assert digest_list(listed) == digest_tree(artefact)
    assert digest_tree(artefact).startswith(artefact.name)
    assert read_list(artefact) == listed
    assert find_changes(artefact) == []
    check_artefact(artefact)


def test_read_checked__whole_file(artefact):
    assert read_checked(artefact / "deep" / "text") == b"hello"
    check_file(artefact / "deep" / "text")
    check_files(artefact, "text")
    check_files(artefact / "deep", "text")


@pytest.mark.parametrize("damage", ["flip", "drop", "add"])
def test_check__damaged_file_is_named_with_its_artefact_and_the_remedy(artefact, damage):
    file = artefact / "deep" / "text"
    if damage == "flip":
        flip(file)
    elif damage == "drop":
        file.unlink()
    else:
        file = artefact / "deep" / "other"
        file.write_text("hello")
    location = f"thing/{artefact.name}"
    match = rf"'deep/{file.name}' of artefact {location}"
    for check in (read_checked, check_file):
        with pytest.raises(StoreError, match=match):
            check(file)
    with pytest.raises(StoreError, match=match):
        check_artefact(artefact)
    assert find_changes(artefact) == [f"deep/{file.name}"]
    # other files can still be read
    assert read_checked(artefact / "deep.json") == b"1"
    check_files(artefact / "deep" / "more", "text")
    if damage != "add":
        with pytest.raises(StoreError, match=match):
            check_files(artefact / "deep", "text")


def test_check__list_that_is_not_what_the_folder_is_named_after(artefact):
    path = artefact / LIST_FILE
    whole = path.read_text()
    assert read_checked(artefact / "deep.json") == b"1"
    # a file and its line in the list, changed together
    (artefact / "deep.json").write_text("2")
    listed = json.loads(whole) | {"deep.json": digest_file(artefact / "deep.json")}
    contents = [json.dumps(listed), whole[:-9], "[]", "", "[" * 50_000, '{"deep.json": 1}', "{}"]
    for content in contents:
        path.write_text(content)
        with pytest.raises(StoreError, match=f"thing/{artefact.name}"):
            read_checked(artefact / "deep.json")
    path.unlink()
    with pytest.raises(StoreError, match=artefact.name):
        read_checked(artefact / "deep.json")
    with pytest.raises(StoreError, match=artefact.name):
        read_list(artefact)


def test_read_list__is_authenticated_once(artefact, monkeypatch):
    read_list(artefact)
    monkeypatch.setattr("pmflib.store.file_digests.digest_list", lambda digests: "")
    read_list(artefact)
    os.utime(artefact / LIST_FILE, (1, 1))
    with pytest.raises(StoreError, match=artefact.name):
        read_list(artefact)


def test_read_checked__file_in_no_artefact(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    assert read_checked(file) == b"mine"
    check_file(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        read_checked(tmp_path / "absent")


def test_name_content__is_the_same_in_every_store(artefact, tmp_path):
    name = name_content(artefact / "deep" / "text")
    assert name == f"thing/{artefact.name}/deep/text"
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "thing" / artefact.name / "deep" / "text"
    assert name_content(moved) == name
    # outside artefacts, a path says which file it is
    assert name_content(tmp_path / "x") != name_content(tmp_path / "y")
    assert name_content(tmp_path / "x") == str((tmp_path / "x").resolve())
