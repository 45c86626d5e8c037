from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import FIT_SAMPLES, FIT_TARGET, DenseBlock
from pmflib.counts import estimate_singles
from pmflib.fits import RankSamples, TargetFits, compare_on_samples

SCHEMA = pmf.Schema.from_cardinalities([2, 3, 3, 2])


@pytest.fixture
def samples():
    """The target is whether two others are equal, which no pair of variables shows."""
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, n, 800) for n in (2, 3, 3, 2)], axis=1).astype(np.int8)
    codes[:, 0] = codes[:, 1] == codes[:, 2]
    counts = pmf.count_pairs(codes[:600], SCHEMA)
    return RankSamples(
        SCHEMA,
        DenseBlock(codes[:600]),
        DenseBlock(codes[600:]),
        counts,
        estimate_singles(counts),
        target=0,
    )


def choose(samples, fits, **options):
    return compare_on_samples(
        [samples], first=1, pseudo_counts=[1.0], max_rank=64, for_target=fits, **options
    )


def test_compare_on_samples__a_rank_above_that_of_pairs_for_a_target(samples):
    fits = TargetFits(samples, FIT_SAMPLES)
    assert fits.least == 2
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


def test_fit_for_target__kept_fits_are_gone_on_from(samples, tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.fits.ranks.fit_runs.KEPT_SECONDS", 0.0)
    fits = TargetFits(samples, (1.0,))
    first = choose(samples, fits, checkpoint=tmp_path)
    assert (tmp_path / "target-2.npz").exists()

    def refuse(_: Any) -> None:
        raise AssertionError("it was kept")

    monkeypatch.setattr("pmflib.fits.ranks.by_samples.fit_for_target", refuse)
    assert choose(samples, fits, checkpoint=tmp_path) == first
