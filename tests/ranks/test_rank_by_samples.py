import numpy as np
import pytest

import pmflib as pmf
from pmflib.errors import PmfError, RankError
from pmflib.model.sampling import sample_codes
from pmflib.ranks.by_samples import select_rank_by_samples
from pmflib.synthetic.planted_models import published_factors


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
    # one doubling more after the first without gain
    assert [point.settings["rank"] for point in choice.curve] == [3, 3, 6, 6, 12, 12]
    mine = max(choice.curve[:2], key=lambda point: point.score)
    assert mine.settings == {"rank": choice.rank, "pseudo_count": choice.pseudo_count}
    assert mine is choice.ranks.chosen
    assert mine.below_best <= mine.error
    assert min(point.below_best for point in choice.curve) == 0
    assert choice.reason.startswith(f"rank 3, pseudo-count {choice.pseudo_count:g}: ")


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
    assert choice.reason.endswith("; ranks above 1 were not tried: 1 is the largest")


def test_select_rank_by_samples__refuses(drawn):
    codes, held_out, counts = drawn
    with pytest.raises(RankError, match=r"first is 0, outside \[1, 512\]"):
        select_rank_by_samples(codes, held_out, counts, first=0)
    with pytest.raises(PmfError, match="pseudo_counts is empty"):
        select_rank_by_samples(codes, held_out, counts, first=1, pseudo_counts=[])
    with pytest.raises(PmfError, match="held_out has no rows"):
        select_rank_by_samples(codes, held_out[:0], counts, first=1)
