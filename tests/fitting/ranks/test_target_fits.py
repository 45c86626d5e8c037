from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.blocks import DenseBlock
from pmflib.core.defaults import FIT_SAMPLES, FIT_TARGET
from pmflib.counting.marginals import estimate_singles
from pmflib.fitting.ranks.by_samples import compare_on_samples
from pmflib.fitting.ranks.choice import RankProgress
from pmflib.fitting.ranks.sample_fits import RankSamples, TargetFits
from pmflib.fitting.target_fit import TARGET_WORK

SCHEMA = pmf.Schema.from_cardinalities([2, 3, 3, 2])


@pytest.fixture
def samples():
    """The target is whether two others are equal, which no pair of variables shows."""
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, n, 800) for n in (2, 3, 3, 2)], axis=1).astype(np.int8)
    codes[:, 0] = codes[:, 1] == codes[:, 2]
    counts = pmf.count_pairs(codes[:600], SCHEMA)
    positions = np.arange(4)
    return RankSamples(
        SCHEMA,
        DenseBlock(codes[:600]),
        DenseBlock(codes[600:]),
        counts,
        positions,
        estimate_singles(counts),
        target=0,
    )


def choose(samples, fits, **options):
    return compare_on_samples(
        [samples], first=1, pseudo_counts=[1.0], max_rank=64, for_target=fits, **options
    )


def test_compare_on_samples__a_rank_above_that_of_pairs_for_a_target(samples):
    fits = TargetFits.plan(samples, 600, samples.n_observed, FIT_SAMPLES)
    assert fits is not None
    assert (fits.least, fits.most) == (2, TARGET_WORK // 2400)
    choice = choose(samples, fits)
    assert [point.settings["rank"] for point in choice.curve][:3] == [2, 4, 8]
    assert choice.rank >= 4
    assert choice.ranks.chosen is choice.ranks.best
    assert choice.pseudo_count in FIT_TARGET
    by_em = compare_on_samples([samples], first=1, pseudo_counts=[1.0], max_rank=8)
    assert choice.ranks.best.score > by_em.ranks.best.score + 0.02
    # the rule is certain
    assert choice.ranks.best.score > -0.1
    assert choice == choose(samples, fits)


def test_compare_on_samples__em_follows_where_fits_for_the_target_are_too_large(samples):
    fits = TargetFits(samples, (1.0,), least=2, most=3)
    heard: list[RankProgress] = []
    choice = choose(samples, fits, on_progress=heard.append)
    ranks = [point.settings["rank"] for point in choice.curve]
    assert ranks[:4] == [2, 4, 8, 16]
    assert choice.rank == choice.ranks.best.settings["rank"]
    assert heard[0].doing == "rank 2, for its target"
    assert heard[-1].ranks == tuple(ranks)


def test_compare_on_samples__a_budget_ends_the_doubling_for_a_target(samples):
    fits = TargetFits(samples, (1.0,), least=2, most=1000)
    choice = choose(samples, fits, budget=1e-6)
    assert choice.rank == 2
    assert "ranks above 2 were not tried: rank 4 would take" in choice.reason
    bounded = compare_on_samples(
        [samples], first=1, pseudo_counts=[1.0], max_rank=2, for_target=fits
    )
    assert bounded.reason.endswith("ranks above 2 were not tried: 2 is the largest")


def test_fit_for_target__kept_fits_are_gone_on_from(samples, tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.fitting.ranks.fit_runs.KEPT_SECONDS", 0.0)
    fits = TargetFits(samples, (1.0,), least=2, most=1000)
    first = choose(samples, fits, checkpoint=tmp_path)
    assert (tmp_path / "target-2.npz").exists()

    def refuse(_: Any) -> None:
        raise AssertionError("it was kept")

    monkeypatch.setattr("pmflib.fitting.ranks.by_samples.fit_for_target", refuse)
    assert choose(samples, fits, checkpoint=tmp_path) == first


def test_plan__large_fits_are_not_for_the_target(samples):
    assert TargetFits.plan(samples, 10**9, 4 * 10**9, FIT_SAMPLES) is None
    assert TargetFits.plan(samples, 600, TARGET_WORK, FIT_SAMPLES) is None
