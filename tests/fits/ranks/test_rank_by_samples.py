from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, SchemaError
from pmflib.fits import select_rank_by_samples, split_samples
from pmflib.fits.ranks.sample_fits import N_FOLDS
from pmflib.model import published_factors, sample_codes


@pytest.fixture(scope="module")
def drawn():
    """Samples of a model of three states, held-out samples, and counts of the first."""
    rng = np.random.default_rng(0)
    prior, factors = published_factors(8, 4, 3, rng)
    schema = pmf.Schema.from_cardinalities([4] * 8)
    codes = sample_codes(prior, factors, schema.offsets, 6000, rng, observed=0.8)
    return codes[:4000], codes[4000:], pmf.count_pairs(codes[:4000], schema)


def test_select_rank_by_samples__stays_where_more_states_do_not_help(drawn):
    codes, held_out, counts = drawn
    choice = select_rank_by_samples(codes, held_out, counts, first=3)
    assert choice.rank == 3
    # one doubling more after the first without gain, and the next less, to see that it is worse
    assert [point.settings["rank"] for point in choice.curve] == [2, 2, 3, 3, 6, 6, 12, 12]
    mine = max(choice.curve[2:4], key=lambda point: point.score)
    assert mine.settings == {"rank": choice.rank, "pseudo_count": choice.pseudo_count}
    assert mine is choice.ranks.chosen
    assert mine.below_best <= mine.error
    assert min(point.below_best for point in choice.curve) == 0


def test_select_rank_by_samples__goes_up_where_they_do_and_repeats_itself(drawn):
    codes, held_out, counts = drawn
    choice = select_rank_by_samples(codes, held_out, counts, first=1, pseudo_counts=[1.0])
    assert choice.rank >= 2
    assert choice.curve[0].below_best > choice.curve[0].error > 0
    assert choice == select_rank_by_samples(codes, held_out, counts, first=1, pseudo_counts=[1.0])


def test_select_rank_by_samples__ends_at_its_limit(drawn):
    codes, held_out, counts = drawn
    choice = select_rank_by_samples(codes, held_out, counts, first=1, max_rank=1)
    assert choice.rank == 1


def test_select_rank_by_samples__a_rank_between_two_doublings():
    rng = np.random.default_rng(5)
    factors = np.concatenate([rng.dirichlet(np.full(3, 0.5), 5).T for _ in range(10)])
    schema = pmf.Schema.from_cardinalities([3] * 10)
    codes = sample_codes(np.full(5, 0.2), factors, schema.offsets, 5000, rng)
    counts = pmf.count_pairs(codes[:4000], schema)
    choice = select_rank_by_samples(codes[:4000], codes[4000:], counts, first=2)
    assert choice.rank == 5
    ranks = [each.settings["rank"] for each in choice.curve]
    assert ranks == sorted(ranks)
    assert {2, 4, 5, 6, 8} <= {*ranks}
    bounded = select_rank_by_samples(
        codes[:4000], codes[4000:], counts, first=2, max_rank=8, budget=1e-6
    )
    assert len(bounded.curve) < len(choice.curve)


def test_split_samples__each_fold_of_few_samples_is_held_out():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (500, 4))
    block = DenseBlock(codes)
    schema = pmf.Schema.from_cardinalities([3] * 4)
    splits = split_samples(block, None, schema)
    held_out = np.concatenate([each.held_out.codes for each in splits])
    assert len(splits) == N_FOLDS
    assert sorted(map(tuple, held_out)) == sorted(map(tuple, codes))
    assert all(len(each.block) + len(each.held_out) == 500 for each in splits)
    assert len(split_samples(block, block[:50], schema)) == 1
    assert len(split_samples(block, block[:50], schema, pools=True)) == N_FOLDS
    assert not split_samples(block[:10], None, schema)
    assert not split_samples(DenseBlock(codes[:, :1]), None, pmf.Schema.from_cardinalities([3]))


def test_select_rank_by_samples__a_target_decides(drawn):
    rng = np.random.default_rng(1)
    # the target is a coin that the first variable shows; eight more depend on a state of four levels
    coin, state = rng.integers(2, size=(3000, 1)), rng.integers(4, size=(3000, 1))
    shown = np.where(rng.random((3000, 1)) < 0.9, coin, 1 - coin)
    others = np.where(rng.random((3000, 8)) < 0.8, state, rng.integers(4, size=(3000, 8)))
    codes = np.concatenate([coin, shown, others], axis=1)
    counts = pmf.count_pairs(codes[:2000], [2, 2] + [4] * 8)
    options: Any = {"first": 8, "pseudo_counts": [1.0], "max_rank": 16}
    of_all = select_rank_by_samples(codes[:2000], codes[2000:], counts, **options)
    of_target = select_rank_by_samples(codes[:2000], codes[2000:], counts, target=0, **options)
    assert of_all.rank >= 8
    # log-likelihood of the target alone, nats: a coin shown in nine of ten cases
    assert all(-0.5 < point.score < -0.25 for point in of_target.curve)
    assert all(point.score < -5 for point in of_all.curve)
    with pytest.raises(SchemaError, match="variable 10"):
        select_rank_by_samples(codes, codes, counts, target=10, **options)
    hidden = codes[2000:].copy()
    hidden[:, 0] = -1
    with pytest.raises(pmf.PmfError, match="target"):
        select_rank_by_samples(codes, hidden, counts, target=0, **options)


def test_select_rank_by_samples__averages_are_scored_as_such(drawn):
    codes, held_out, counts = drawn
    options: Any = {"first": 3, "pseudo_counts": [1.0], "max_rank": 3}
    single = select_rank_by_samples(codes[:300], held_out, counts, **options)
    average = select_rank_by_samples(codes[:300], held_out, counts, members=9, **options)
    four = select_rank_by_samples(codes[:300], held_out, counts, members=4, **options)
    assert average == four
    assert average.ranks.chosen.score != single.ranks.chosen.score
    with pytest.raises(pmf.PmfError, match="members"):
        select_rank_by_samples(codes, held_out, counts, members=0, **options)
