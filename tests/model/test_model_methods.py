"""Methods of models that rooms above and features offer by name."""

import copy
import pickle

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import Offers, StoreError, hooks
from pmflib.model import find_methods, joint_pmf

MODEL = pmf.JointPMF(np.ones(1), np.full((4, 1), 0.5), pmf.Schema.from_cardinalities([2, 2]))


def test_methods__are_bound_to_copies_and_to_what_was_pickled():
    for model in (MODEL, copy.copy(MODEL), copy.deepcopy(MODEL), pickle.loads(pickle.dumps(MODEL))):
        name = model.schema.names[0]
        assert "0.5" in repr(model.ask(f"P({name}=1)"))


def test_methods__are_listed_and_have_names_of_their_own():
    assert set(find_methods()) <= set(dir(MODEL))
    assert not any(hasattr(pmf.JointPMF, name) for name in find_methods())


def test_methods__unknown_names_are_refused_as_elsewhere():
    with pytest.raises(AttributeError, match="'JointPMF' object has no attribute 'rakes'"):
        MODEL.rakes  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(MODEL, "_ask")


def test_methods__one_that_the_model_has_itself_is_refused(monkeypatch):
    offered = Offers({"sample": "pmflib.nowhere:sample"})
    monkeypatch.setattr(joint_pmf, "find_offers", lambda hook: offered)
    with pytest.raises(pmf.PmfError, match="'sample'"):
        dir(MODEL)


def test_load__a_kind_whose_feature_is_not_there_is_refused(tmp_path, monkeypatch):
    class Marked(pmf.JointPMF, mark="colour=red"):
        def list_parts(self):
            return {}, {"colour": "red"}

    Marked(MODEL.prior, MODEL.factors, MODEL.schema).save(tmp_path / "model")
    monkeypatch.delitem(joint_pmf.CLASSES, "colour=red")
    with pytest.raises(StoreError, match="a model of colour 'red', which is not known here"):
        pmf.JointPMF.load(tmp_path / "model")


def test_find_offers__rooms_of_the_core_are_asked_as_features_are():
    assert hooks.find_offers("model_methods").places["ask"] == "pmflib.answering.answering:ask"
