import importlib
import importlib.util
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import pmflib
from pmflib import features
from pmflib.base import ConfigError, PmfError, find_offers
from pmflib.store import write_file


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Give a function that installs features, each a name and the text of its hooks."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(**hooks):
        for name, text in hooks.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("")
            if text:
                (tmp_path / name / "hooks.py").write_text(text)
        monkeypatch.setattr(features, "FEATURES", tuple(hooks))

    return add


def test_offers_are_listed_without_being_loaded(install):
    install(
        toy_reader='HOOKS = {"readers": {".toy": "colorsys:rgb_to_hsv", ".bad": "not_there:read"}}',
        toy_silent="",
    )
    sys.modules.pop("colorsys", None)
    offers = find_offers("readers")
    assert list(offers) == [".toy", ".bad"]
    assert "colorsys" not in sys.modules
    assert offers[".toy"](1.0, 1.0, 1.0) == (0.0, 0.0, 1.0)
    assert find_offers("writers") == {}


def test_a_name_has_one_owner(install):
    install(
        toy_one='HOOKS = {"readers": {".toy": "math:sin"}}',
        toy_other='HOOKS = {"readers": {".toy": "math:cos"}}',
    )
    with pytest.raises(PmfError, match=r"'math:sin' and 'math:cos' are both offered as '\.toy'"):
        find_offers("readers")


TOY = """
import pyarrow.parquet as pq

from pmflib.store.table_files import Writer


def write(path, format, rows, described):
    lines = ["|".join(map(str, row.values())) for row in pq.read_table(rows).to_pylist()]
    path.write_text("\\n".join([format, *lines]))


WRITER = Writer(lambda format: None, write)
"""


def test_a_feature_is_a_folder_and_a_line(install, tmp_path, monkeypatch):
    install(toy_format='HOOKS = {"writers": {".toy": "toy_format.output:WRITER"}}')
    (tmp_path / "toy_format" / "output.py").write_text(TOY)
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    assert write_file(tmp_path / "rows.toy", table.schema, [table]) == 2
    assert (tmp_path / "rows.toy").read_text() == "toy\n1|x\n2|y"
    monkeypatch.setattr(features, "FEATURES", ())
    with pytest.raises(
        ConfigError, match=r"no supported suffix; name a file with one of \.csv, \.parquet$"
    ):
        write_file(tmp_path / "rows.toy", table.schema, [table])


def test_every_offer_of_a_feature_can_be_loaded():
    modules = [f"{each}.hooks" for each in (*features.ROOMS, *features.FEATURES)]
    found = [importlib.import_module(each) for each in modules if importlib.util.find_spec(each)]
    for hook in {hook for module in found for hook in module.HOOKS}:
        assert all(offer is not None for offer in find_offers(hook).values()), hook


def test_features_are_the_folders_of_the_wings():
    root = Path(pmflib.__file__).parent
    wings = ("surveys", "inference", "families", "apps")
    folders = {
        f"pmflib.{wing}.{path.parent.name}"
        for wing in wings
        for path in (root / wing).glob("*/__init__.py")
    }
    assert set(features.FEATURES) == folders
