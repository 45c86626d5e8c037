"""Forests of some states as candidates: what chooses them does not score them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.blocks import DenseBlock
from pmflib.fitting.ranks import kinds
from pmflib.fitting.ranks.sample_fits import split_samples
from pmflib.fitting.tree_fit import MOST_STARTS
from pmflib.model.forests.statistics import TreeParameters

SIZES = [3, 2, 2]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


@pytest.fixture
def split():
    codes = np.random.default_rng(0).integers(0, SIZES, (120, 3))
    return split_samples(DenseBlock(codes[:100]), DenseBlock(codes[100:]), SCHEMA, None)[0]


def test_one_half_of_the_held_out_samples_chooses_and_the_other_is_scored(split, monkeypatch):
    seen, models = [], []

    class LearnsFromChooser:
        """A fit that is as good on the samples that choose as independent variables can be."""

        def __init__(self, training, chooser, *others):
            rows = np.concatenate([block.to_codes(SCHEMA.offsets) for block in chooser.blocks])
            self.codes = rows

        def find_best_start(self, options, most_starts):
            seen.append((sorted(map(tuple, self.codes.tolist())), most_starts))
            factors = np.concatenate(
                [
                    (np.bincount(column, minlength=size) + 1) / (len(column) + size)
                    for column, size in zip(self.codes.T, SIZES, strict=True)
                ]
            )[:, None]
            models.append(pmf.JointPMF(np.ones(1), factors, SCHEMA))
            plain = TreeParameters.plain(np.ones(1), factors, SCHEMA.offsets)
            return SimpleNamespace(parameters=plain)

    monkeypatch.setattr(kinds, "TreeFit", LearnsFromChooser)
    found = kinds._ForestFits([split], 0, None).score(1, 0)
    held_out = split.held_out.codes
    assert seen[0][1] == seen[1][1] == MOST_STARTS // 2
    np.testing.assert_allclose(found[1::2], models[0].log_prob(held_out[1::2]))
    np.testing.assert_allclose(found[::2], models[1].log_prob(held_out[::2]))


def test_one_held_out_sample_does_both(split):
    alone = replace(split, held_out=split.held_out[:1])
    found = kinds._ForestFits([alone], 0, None).score(1, 0)
    assert found.shape == (1,)
    assert np.isfinite(found).all()
