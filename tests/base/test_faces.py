"""Public names of a package, imported when they are first used."""

import importlib
import sys
import types

import pytest

from pmflib.base import list_homes, make_face
from tests.faces import find_used, read_faces


@pytest.fixture
def package(monkeypatch):
    module = types.ModuleType("toy_package")
    monkeypatch.setitem(sys.modules, "toy_package", module)
    load, list_names = make_face(
        "toy_package", {"Fraction": "fractions", "missing": "no_such_module"}
    )
    vars(module).update(__getattr__=load, __dir__=list_names)
    return module


def test_make_face__imports_a_name_when_it_is_used(package):
    from fractions import Fraction

    assert "Fraction" not in vars(package)
    assert package.Fraction is Fraction
    assert vars(package)["Fraction"] is Fraction
    assert {"Fraction", "missing", "__name__"} <= set(dir(package))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = package.missing


def test_make_face__an_unknown_name_is_refused_with_a_near_one(package):
    with pytest.raises(
        AttributeError, match=r"module 'toy_package' has no attribute 'Fractoin'.*Fraction"
    ):
        _ = package.Fractoin


def test_list_homes__are_what_features_of_a_wing_offer(monkeypatch):
    assert list_homes("pmflib.families")["fit_traits"] == "pmflib.families.traits.traits"
    assert not any(
        home.startswith("pmflib.surveys") for home in list_homes("pmflib.families").values()
    )
    monkeypatch.setattr("pmflib.features.FEATURES", ())
    assert list_homes("pmflib.families") == {}


def test_faces__have_what_others_use():
    faces = read_faces()
    missing = [
        f"{room}.{name} of {module}"
        for room, homes in find_used().items()
        for name, module in homes.items()
        if faces.get(room, {}).get(name) != module
    ]
    assert not missing, "python -m tests.faces writes them"


@pytest.mark.parametrize("room", sorted(read_faces()))
def test_faces__every_name_is_where_the_stub_says(room):
    face = importlib.import_module(room)
    for name, module in read_faces()[room].items():
        assert getattr(face, name) is getattr(importlib.import_module(module), name)
