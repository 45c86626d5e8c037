import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import WorkBudget, select_rank_by_samples
from pmflib.fits.ranks import fit_runs
from pmflib.model import published_factors, sample_codes


@pytest.fixture(scope="module")
def drawn():
    """Samples of a model of three states, held-out samples, and counts of the first."""
    rng = np.random.default_rng(0)
    prior, factors = published_factors(8, 4, 3, rng)
    schema = pmf.Schema.from_cardinalities([4] * 8)
    codes = sample_codes(prior, factors, schema.offsets, 3000, rng, observed=0.8)
    return codes[:2000], codes[2000:], pmf.count_pairs(codes[:2000], schema)


class Killed(BaseException):
    """What ends a choice in the tests: no error that code might catch."""


def choose(way, drawn, **options):
    codes, held_out, counts = drawn
    if way == "pairs":
        return pmf.fits.select_rank(counts, **options)
    return select_rank_by_samples(codes, held_out, counts, first=2, **options)


@pytest.mark.parametrize("way", ["pairs", "samples"])
def test_fit_once__a_choice_that_was_killed_goes_on_to_the_same_bits(
    drawn, tmp_path, monkeypatch, way
):
    monkeypatch.setattr(fit_runs, "KEPT_SECONDS", 0.0)
    whole = choose(way, drawn)
    done = []

    def kill(progress):
        if progress.done == 3:
            raise Killed

    with pytest.raises(Killed):
        choose(way, drawn, checkpoint=tmp_path, on_progress=kill)
    kept = sorted(tmp_path.glob("*.npz"))
    assert len(kept) == 3
    times = [path.stat().st_mtime_ns for path in kept]
    assert choose(way, drawn, checkpoint=tmp_path, on_progress=done.append) == whole
    # those that were kept are read, and not made again
    assert [path.stat().st_mtime_ns for path in kept] == times
    assert done[-1].done == done[-1].total > 3


def test_fit_once__fits_of_another_choice_and_damaged_ones_are_made_again(
    drawn, tmp_path, monkeypatch
):
    monkeypatch.setattr(fit_runs, "KEPT_SECONDS", 0.0)
    choose("samples", drawn, checkpoint=tmp_path, rng=1)
    whole = choose("samples", drawn, rng=2)
    assert choose("samples", drawn, checkpoint=tmp_path, rng=2) == whole
    next(iter(tmp_path.glob("*.npz"))).write_bytes(b"damaged")
    assert choose("samples", drawn, checkpoint=tmp_path, rng=2) == whole


@pytest.mark.parametrize("way", ["pairs", "samples"])
def test_do__same_bits_on_workers(drawn, thread_client, monkeypatch, way):
    monkeypatch.setattr(fit_runs, "PARALLEL_SECONDS", 0.0)
    assert choose(way, drawn, client=thread_client) == choose(way, drawn)


@pytest.mark.parametrize("way", ["pairs", "samples"])
def test_do__progress_names_ranks_and_counts_fits(drawn, way):
    heard = []
    choose(way, drawn, on_progress=heard.append)
    assert {each.criterion for each in heard} == {way}
    done = [each.done for each in heard]
    assert done == sorted(done)
    assert all(each.done <= each.total for each in heard)
    assert heard[0].seconds_left is None
    assert heard[-1].seconds_left == 0


def test_select_rank__a_small_budget_leaves_ranks_out_and_does_not_depend_on_the_clock(drawn):
    counts = drawn[2]
    choice = pmf.fits.select_rank(counts, budget=1e-6)
    assert len(choice.curve) == 2
    assert choice == pmf.fits.select_rank(counts, budget=1e-6)
    assert len(pmf.fits.select_rank(counts).curve) > 2


def test_select_rank_by_samples__a_small_budget_leaves_ranks_out(drawn):
    codes, held_out, counts = drawn
    choice = select_rank_by_samples(codes, held_out, counts, first=1, budget=1e-6)
    assert choice.rank == 1


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_work_budget__refuses(limit):
    with pytest.raises(pmf.PmfError, match="budget"):
        WorkBudget(limit)
