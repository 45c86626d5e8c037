"""The origin of a model: typed facts that keep their order."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.model import ModelOrigin


@dataclass(frozen=True)
class Own:
    passes: int
    depth: int


FACTS = {"method": "deep", "depth": 3, "pseudo_count": 2, "passes": 9, "final": True, "average": 4}


def test_model_origin__is_the_mapping_it_is_made_of():
    origin = ModelOrigin.of(FACTS)
    assert json.dumps(dict(origin)) == json.dumps(FACTS)
    assert repr(origin) == repr(FACTS)
    assert origin == FACTS
    assert ModelOrigin.of(origin) is origin
    with pytest.raises(KeyError):
        origin["best"]


def test_model_origin__fields_have_types_and_others_a_place():
    origin = ModelOrigin.of(FACTS)
    assert (origin.method, origin.n_members, origin.best) == ("deep", 4, None)
    assert origin.extra == {"depth": 3}
    assert origin.select(Own) == Own(9, 3)
    with pytest.raises(ValueError, match=r"Own lacks \['depth'\]"):
        origin.drop("depth").select(Own)


def test_model_origin__facts_are_added_behind_and_dropped():
    origin = ModelOrigin.of(FACTS).add(raked=True, depth=4).drop("final", "average")
    assert list(origin.items()) == [
        *[("method", "deep"), ("depth", 4), ("pseudo_count", 2), ("passes", 9), ("raked", True)]
    ]
    assert origin.n_members == 1


def test_model_origin__is_saved_as_it_is_and_checked_when_loaded(tmp_path):
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")),))
    facts: Any = FACTS
    model = pmf.JointPMF(np.ones(1), np.full((2, 1), 0.5), schema, facts)
    assert isinstance(model.origin, ModelOrigin)
    model.save(tmp_path / "model")
    assert json.dumps(dict(pmf.JointPMF.load(tmp_path / "model").origin)) == json.dumps(FACTS)
    wrong = pmf.JointPMF(
        np.ones(1), np.full((2, 1), 0.5), schema, ModelOrigin.of({"passes": "many"})
    )
    wrong.save(tmp_path / "wrong")
    with pytest.raises(StoreError, match=r"ModelOrigin\.passes is 'many', expected int"):
        pmf.JointPMF.load(tmp_path / "wrong")
