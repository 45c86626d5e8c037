from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import PreparedStart, StoredCounts
from pmflib.store import sample_blocks
from tests.factories import same_fit
from tests.stored_samples import split_folds, write_partition


@pytest.fixture
def split(codes, truth, tmp_path):
    """Blocks of two training folds and of one that is held out, and the codes of each."""
    blocks = write_partition(tmp_path, codes[:900], truth.schema, block_rows=50)
    parts = split_folds(blocks, truth.schema, 2)
    return parts, [part.read_codes() for part in parts]


def test_fit_em__stored_samples_give_the_model_of_samples_in_memory(split, truth):
    (training, held_out), (codes, others) = split
    options: dict[str, Any] = {"pseudo_count": 0.5, "max_passes": 40, "patience": 3}
    stored = pmf.fit_em(training, truth, validation=held_out, **options)
    loaded = pmf.fit_em(codes, truth, validation=others, **options)
    mixed = pmf.fit_em(training, truth, validation=others, **options)
    for found in (stored, mixed):
        np.testing.assert_allclose(found.model.factors, loaded.model.factors, rtol=1e-9)
        assert found.held_out == pytest.approx(loaded.held_out, rel=1e-12)
        assert found.log_likelihoods == pytest.approx(loaded.log_likelihoods, rel=1e-12)
        assert (found.best_pass, found.method) == (loaded.best_pass, "given+em")


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_fit_em__stored_samples_same_bits_on_threads(thread_client, split, monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    # large fits alone are worth workers
    monkeypatch.setattr("pmflib.fits.em_fit.LOCAL_WORK", 0)
    training, held_out = split[0]
    options: dict[str, Any] = {"rank": 2, "members": 2, "max_passes": 4}
    alone = pmf.fit_em(training, validation=held_out, **options)
    mapped = pmf.fit_em(
        training.with_client(thread_client),
        validation=held_out.with_client(thread_client).with_spare(1 << 30),
        **options,
    )
    assert same_fit(alone, mapped)


def test_fit_em__starts_from_what_fit_made_of_stored_counts(split, truth, tmp_path):
    training, held_out = split[0]
    counts = training.count_pairs()
    start = pmf.fit(counts, 2)
    counts.save(tmp_path / "pairs")
    options: dict[str, Any] = {
        "rank": 2,
        "validation": held_out,
        "max_passes": 60,
        "rng": 5,
        "pseudo_count": 0.5,
    }
    given = pmf.fit_em(
        training,
        start=PreparedStart("auto", StoredCounts(tmp_path / "pairs"), start.model),
        **options,
    )
    assert start.method in given.method or given.method == "random+em"
    # a seed gives stored samples the same starts, be they handed over or not
    prepared = PreparedStart(model=start.model)
    assert same_fit(given, pmf.fit_em(training, start=prepared, **options))


def test_fit_em__no_stored_samples_to_score_on_choose_nothing(split, truth):
    training = split[0][0]
    nothing = pmf.em.StoredSamples([], truth.schema)
    options: dict[str, Any] = {"rank": 2, "start": "random", "max_passes": 2000}
    result = pmf.fit_em(training, validation=nothing, **options)
    assert (result.held_out, result.notes) == ((), ())
    assert result.model.origin["pseudo_count"] == 1.0
    assert same_fit(result, pmf.fit_em(training, **options))


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.parametrize("stored", [False, True])
def test_fit_em__continues_from_its_checkpoint(split, stored, tmp_path):
    class Stop(Exception):
        pass

    def stop(run, state):
        if (run, state.n_passes) == ("members", 3):
            raise Stop

    training, held_out = split[0] if stored else split[1]
    options: dict[str, Any] = {
        "rank": 2,
        "members": 2,
        "validation": held_out,
        "tol": 0.0,
        "max_passes": 8,
    }
    options["pseudo_count"] = 0.5
    whole = pmf.fit_em(training, **options)
    with pytest.raises(Stop):
        pmf.fit_em(training, checkpoint=tmp_path / "work", on_pass=stop, **options)
    passes = []
    resumed = pmf.fit_em(
        training,
        checkpoint=tmp_path / "work",
        on_pass=lambda run, state: passes.append((run, state.n_passes)),
        **options,
    )
    assert passes == [("members", n) for n in range(4, 9)]
    assert same_fit(resumed, whole)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.parametrize("stored", [False, True])
def test_fit_em__refuses_the_checkpoint_of_another_fit(split, truth, stored, tmp_path):
    training, held_out = split[0] if stored else split[1]
    options: dict[str, Any] = {"checkpoint": tmp_path / "work", "max_passes": 3, "rank": 2}
    options |= {"schema": truth.schema, "pseudo_count": 0.5, "start": "random", "rng": 1}
    pmf.fit_em(training, validation=held_out, **options)
    # the same with other limits goes on
    pmf.fit_em(training, validation=held_out, **options | {"max_passes": 4})
    fewer = pmf.em.StoredSamples(training.blocks[:-1], truth.schema) if stored else training[:-1]
    changes: list[tuple[Any, Any, dict[str, Any]]] = [
        (fewer, held_out, {}),
        (training, training, {}),
        (training, held_out, {"rng": 2}),
        (training, held_out, {"target": 0}),
    ]
    for samples, validation, change in changes:
        with pytest.raises(pmf.PmfError, match="checkpoint"):
            pmf.fit_em(samples, validation=validation, **options | change)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_fit_em__refuses_the_checkpoint_of_a_fit_from_other_counts(split, tmp_path):
    (training, held_out), (codes, _) = split
    schema = training.schema
    counts = [pmf.count_pairs(part, schema) for part in (codes[:150], codes[150:])]
    options: dict[str, Any] = {"rank": 2, "pseudo_count": 0.5, "max_passes": 3}
    options |= {"validation": held_out, "checkpoint": tmp_path / "work"}
    pmf.fit_em(training, start=PreparedStart(counts=counts[0]), **options)
    pmf.fit_em(training, start=PreparedStart(counts=counts[0]), **options)
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        pmf.fit_em(training, start=PreparedStart(counts=counts[1]), **options)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.needs("families.forests")
def test_fit_em__refuses_the_checkpoint_of_a_fit_with_other_shrinkage_of_forests(split, tmp_path):
    (training, held_out), _ = split
    options: dict[str, Any] = {"validation": held_out, "max_passes": 3}
    start = pmf.fit_em(training, rank=2, dependence="tree", **options).model
    options |= {"checkpoint": tmp_path / "work"}
    pmf.fit_em(training, start, **options)
    start = replace(start, origin=start.origin.add(edge_pseudo_count=3.25))
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        pmf.fit_em(training, start, **options)


def test_fit_em__refuses_a_prepared_start_of_samples_in_memory(codes, truth):
    with pytest.raises(pmf.PmfError, match="start"):
        pmf.fit_em(codes, rank=2, start=PreparedStart(model=truth))


@pytest.mark.parametrize("stored", [False, True])
def test_distil__one_model_near_the_average(split, stored):
    (training, held_out), (_, others) = split
    average = pmf.fit_em(training, rank=3, members=3, validation=held_out, pseudo_count=0.5)
    options: dict[str, Any] = {
        "validation": held_out if stored else others,
        "n_samples": 3000,
        "pseudo_count": 0.5,
    }
    result = pmf.fits.distil(average.model, 3, target="v1", **options)
    assert result.model.rank == 3
    assert "final" not in result.model.origin
    plain = pmf.fits.distil(average.model, 3, **options)
    gap = average.model.log_prob(others).mean() - plain.model.log_prob(others).mean()
    assert max(plain.held_out) == pytest.approx(plain.model.log_prob(others).mean(), rel=1e-9)
    assert gap < 0.02


def test_distil__same_seed_same_model(truth, codes):
    options: dict[str, Any] = {"validation": codes[:200], "n_samples": 1000}
    one, same, other = (pmf.fits.distil(truth, 2, seed=seed, **options) for seed in (1, 1, 2))
    assert isinstance(one.model, pmf.JointPMF)
    assert same_fit(one, same)
    assert not np.array_equal(one.model.factors, other.model.factors)
