"""Fits of traits to stored samples are those of the same samples in memory, however they are worked on."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.em import StoredBlocks
from pmflib.families.traits.em import Traits
from pmflib.families.traits.samples import count_levels, cut_people, draw_people
from pmflib.families.traits.traits import plan_fit_traits
from pmflib.store import iterate_blocks, sample_blocks
from tests.families.traits.planted_traits import draw_samples, plant_traits, traits_of
from tests.stored_samples import write_partition

TRUTH = plant_traits([4] * 6, 1, 1)
SCHEMA = TRUTH.schema
QUICK: dict[str, Any] = {"dimensions": 1, "shrinkage": 1.0, "passes": 5, "n_states": 20}


@pytest.fixture(params=["dense", "sparse"])
def blocks(request, tmp_path):
    codes, _ = draw_samples(TRUTH, 300, 2, missing=0.4)
    codes[::50] = -1
    is_sparse = request.param == "sparse"
    return write_partition(tmp_path, codes, SCHEMA, sparse=is_sparse, block_rows=40)


def read_codes(blocks):
    parts = [block.to_codes(SCHEMA.offsets) for block in iterate_blocks(blocks)]
    return np.concatenate(parts)


def are_equal(one, other):
    arrays = [
        (one.factors, other.factors),
        *((getattr(m, n) for m in (traits_of(one), traits_of(other))) for n in ("base", "slopes")),
    ]
    return all(np.array_equal(*pair) for pair in arrays)


def test_fit_traits__of_stored_samples_has_the_bits_of_the_same_block_in_memory(tmp_path):
    codes, _ = draw_samples(TRUTH, 300, 2, missing=0.4)
    blocks = write_partition(tmp_path, codes, SCHEMA, block_rows=1000, n_folds=1)
    stored = pmf.families.fit_traits(pmf.em.StoredSamples(blocks, SCHEMA), **QUICK, rng=3)
    loaded = pmf.families.fit_traits(codes, SCHEMA, **QUICK, rng=3)
    assert are_equal(stored.model, loaded.model)
    assert stored.log_likelihoods == loaded.log_likelihoods


def test_fit_traits__of_several_stored_blocks_is_that_of_memory_but_for_rounding(blocks):
    samples = pmf.em.StoredSamples(blocks, SCHEMA)
    stored = pmf.families.fit_traits(samples, passes=5, rng=3)
    loaded = pmf.families.fit_traits(read_codes(blocks), SCHEMA, passes=5, rng=3)
    assert stored.notes == loaded.notes
    assert stored.model.origin == loaded.model.origin
    assert stored.model.factors == pytest.approx(loaded.model.factors, rel=1e-6)
    assert stored.log_likelihoods == pytest.approx(loaded.log_likelihoods)


@pytest.mark.parametrize("spare_bytes", [0, 1 << 30])
def test_fit_traits__same_bits_on_workers_kept_or_read_again(
    thread_client, blocks, spare_bytes, monkeypatch
):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    alone = pmf.families.fit_traits(pmf.em.StoredSamples(blocks, SCHEMA), **QUICK).model
    samples = pmf.em.StoredSamples(blocks, SCHEMA, thread_client, spare_bytes)
    assert are_equal(pmf.families.fit_traits(samples, **QUICK).model, alone)


def test_fit_traits__of_a_long_log_chooses_by_some_people_and_fits_all(blocks, monkeypatch):
    monkeypatch.setattr("pmflib.families.traits.traits.CHOICE_CELLS", 200)
    grids: dict[str, Any] = {"dimensions": 1, "shrinkage": 1.0, "n_states": 20}
    results = [
        pmf.families.fit_traits(each, SCHEMA, **grids)
        for each in (pmf.em.StoredSamples(blocks, SCHEMA), read_codes(blocks))
    ]
    # a tenth of the cells of so many people that they have 200
    (comparison,) = results[0].comparisons
    assert len(comparison.points) == 4
    assert results[0].notes == results[1].notes
    assert len({result.best_pass for result in results}) == 1
    fewer = pmf.families.fit_traits(read_codes(blocks)[:60], SCHEMA, **QUICK)
    assert results[0].loss_history[0] != fewer.loss_history[0]


def test_draw__of_stored_people_is_that_of_memory(blocks, monkeypatch):
    codes = read_codes(blocks)
    loaded = cut_people(DenseBlock(codes).to_sparse(SCHEMA.offsets), SCHEMA)
    counts = count_levels(loaded)
    assert counts.n_people == np.count_nonzero((codes >= 0).any(axis=1))
    for size in (1 << 22, 1):
        monkeypatch.setattr(sample_blocks, "MIN_GROUP", size)
        stored = pmf.em.StoredSamples(blocks, SCHEMA)
        assert np.array_equal(count_levels(stored).levels, counts.levels)
        for requested in (0, 1, 7, 5000):
            found, expected = (draw_people(each, requested, counts, 5) for each in (stored, loaded))
            assert np.array_equal(found.indptr, expected.indptr)
            assert np.array_equal(found.indices, expected.indices)
            assert found.n_rows == min(requested, counts.n_people)
    # the first of many are the few
    few, many = (draw_people(loaded, requested, counts, 5) for requested in (7, 50))
    assert np.array_equal(many.cut(0, 7).indices, few.indices)


def test_fit_traits__goes_on_from_a_checkpoint_to_the_same_bits(blocks, tmp_path, monkeypatch):
    samples, folder = pmf.em.StoredSamples(blocks, SCHEMA), tmp_path / "work"
    options: dict[str, Any] = {"dimensions": 1, "shrinkage": 1.0, "n_states": 20}
    whole = pmf.families.fit_traits(samples, **options)
    start, passes = Traits.start, []

    def interrupt(self, source, state):
        # the choice passes over people in memory
        passes.extend([state] if isinstance(source, StoredBlocks) else [])
        if len(passes) == 3:
            raise KeyboardInterrupt
        return start(self, source, state)

    def refuse(*arguments):
        raise AssertionError("chosen again")

    monkeypatch.setattr(Traits, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pmf.families.fit_traits(samples, **options, checkpoint=folder)
    monkeypatch.setattr("pmflib.families.traits.traits.choose_settings", refuse)
    again = pmf.families.fit_traits(samples, **options, checkpoint=folder)
    assert len(passes) == 1 + whole.best_pass
    assert are_equal(again.model, whole.model)
    assert (again.notes, again.log_likelihoods) == (whole.notes, whole.log_likelihoods)
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        pmf.families.fit_traits(samples, **options, rng=1, checkpoint=folder)


def test_fit_traits__of_no_stored_samples_is_refused():
    with pytest.raises(pmf.PmfError, match="samples"):
        pmf.families.fit_traits(pmf.em.StoredSamples([], SCHEMA))


def test_plan_fit_traits__does_not_grow_with_the_samples(blocks, tmp_path):
    few = pmf.em.StoredSamples(blocks[:2], SCHEMA)
    plan = plan_fit_traits(few)
    many = plan_fit_traits(pmf.em.StoredSamples([*blocks] * 2000, SCHEMA))
    assert sum(many.client_parts.values()) < 10 * (1 << 30)
    more = plan_fit_traits(pmf.em.StoredSamples([*blocks] * 8000, SCHEMA))
    assert more.needed - many.needed < many.needed // 10
    assert plan_fit_traits(few, n_threads=4).needed > 2 * plan.needed
    assert plan_fit_traits(few, dimensions=1).needed < plan.needed
