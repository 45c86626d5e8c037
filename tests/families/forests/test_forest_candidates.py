"""Forests of some states as candidates: what chooses them does not score them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.families.forests import TreeParameters, kind
from pmflib.families.forests.tree_fit import MOST_STARTS
from pmflib.fits import WorkBudget, choose_kinds, split_samples
from pmflib.fits.ranks import kinds

SIZES = [3, 2, 2]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


@pytest.fixture
def split():
    codes = np.random.default_rng(0).integers(0, SIZES, (120, 3), np.int8)
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

    monkeypatch.setattr(kind, "TreeFit", LearnsFromChooser)
    found = kind.ForestFits([split], 0, None, WorkBudget(np.inf)).score(1, 0)
    held_out = split.held_out.codes
    assert seen[0][1] == seen[1][1] == MOST_STARTS // 2
    np.testing.assert_allclose(found[1::2], models[0].log_prob(held_out[1::2]))
    np.testing.assert_allclose(found[::2], models[1].log_prob(held_out[::2]))


@pytest.mark.usefixtures("few_starts")
def test_one_held_out_sample_does_both(split):
    alone = replace(split, held_out=split.held_out[:1])
    found = kind.ForestFits([alone], 0, None, WorkBudget(np.inf)).score(1, 0)
    assert found.shape == (1,)
    assert np.isfinite(found).all()


@pytest.fixture
def copied():
    """Pairs of equal columns, which forests explain and a few classes do not."""
    rng = np.random.default_rng(1)
    codes = np.repeat(rng.integers(0, 3, (600, 3)), 2, axis=1)
    moved = rng.random(codes.shape) < 0.1
    codes = np.where(moved, rng.integers(0, 3, codes.shape), codes).astype(np.int8)
    return split_samples(DenseBlock(codes), None, pmf.Schema.from_cardinalities([3] * 6), None)


@pytest.mark.usefixtures("few_starts")
def test_choose_kind__forests_beyond_the_budget_are_left_out_and_said_so(copied):
    assert kinds.choose_kind(copied, choose_kinds("auto")).kind == "forests"
    budget = WorkBudget(1e-6)
    found = kinds.choose_kind(copied, choose_kinds("auto"), budget=budget)
    assert {point.settings["kind"] for point in found.ranks.points} == {"classes"}
    assert "forests" in found.left_out
    assert budget.left < 0


def test_choose_kind__forests_that_are_asked_for_have_at_least_one_candidate(copied):
    found = kinds.choose_kind(copied, choose_kinds("auto"), is_forced=True, budget=1e-6)
    assert (found.kind, found.rank) == ("forests", 1)
    assert "forests" in found.left_out


@pytest.mark.usefixtures("few_starts")
def test_choose_kind__classes_are_doubled_beyond_the_few_where_they_still_gain(monkeypatch):
    rng = np.random.default_rng(2)
    chances = rng.dirichlet(np.full(4, 0.3), (5, 8))
    classes = rng.integers(0, 5, 1500)
    ends = chances[classes].cumsum(axis=2)
    codes = (rng.random((1500, 8, 1)) > ends[..., :-1]).sum(axis=2, dtype=np.int8)
    splits = split_samples(DenseBlock(codes), None, pmf.Schema.from_cardinalities([4] * 8), None)
    monkeypatch.setattr(kinds, "FEW", 2)
    found = kinds.choose_kind(splits, choose_kinds("auto"))
    assert (found.kind, found.rank) == ("classes", 5)
    assert found.is_final
