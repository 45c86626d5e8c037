"""Digests are kept in stores: those of models that were fitted before must stay as they are."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.families.forests import Forest, TreeParameters, TreePMF
from pmflib.families.traits import TraitModel, TraitPMF
from pmflib.model import digest_model

SCHEMA = pmf.Schema.from_cardinalities([2, 3, 2])
PRIOR = np.array([0.25, 0.75])
FACTORS = np.array([[1, 2], [3, 2], [1, 0], [1, 2], [2, 2], [4, 1], [0, 3]]) / 4


def make_plain():
    return pmf.JointPMF(PRIOR, FACTORS, SCHEMA)


def make_with_traits():
    slopes = np.arange(7.0)[:, None] / 8
    traits = TraitModel(SCHEMA, np.arange(7.0) / 4, slopes, np.zeros(1), np.eye(1))
    return TraitPMF(PRIOR, FACTORS, SCHEMA, trait_model=traits)


def make_with_forests():
    forest = Forest(np.array([[-1, 0, -1], [1, -1, 1]], np.int32), SCHEMA.offsets)
    tables = forest.spread_levels(FACTORS)
    return TreePMF.make(TreeParameters(PRIOR, forest, tables), SCHEMA)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (make_plain, "bb5711bf2b378657ae92b14997556a73f733569f1a6a37f0f48055a98cc98135"),
        (make_with_traits, "ddb577930f3b5e27fd22bf5f155dd6ddb73196186d3b4be13b5e0dcd43945ccd"),
        (make_with_forests, "ca4fcd92ff9c80df478ba48e89bc38416a98c2a3e729fdf9b8363fe9462bdca6"),
    ],
)
def test_digest_model__is_what_stores_have(make, expected):
    assert digest_model(make()) == expected
