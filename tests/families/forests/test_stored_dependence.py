from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import MemoryPlanError
from pmflib.families.forests import TreePMF, dependence
from pmflib.fits import PreparedStart
from pmflib.model import digest_model
from pmflib.store import sample_blocks
from tests.factories import same_fit
from tests.families.forests.test_dependence import plant
from tests.stored_samples import split_folds, write_partition

OPTIONS: dict[str, Any] = {"rank": 2, "pseudo_count": 0.5, "start": "random", "max_passes": 12}

pytestmark = [
    pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning"),
    pytest.mark.usefixtures("few_starts"),
]


@pytest.fixture(scope="module")
def truth():
    return plant(0.6)


@pytest.fixture
def split(truth, tmp_path):
    """Two training folds and one that is held out, stored, and how to read them."""
    blocks = write_partition(tmp_path, truth.sample(1500, 1), truth.schema, block_rows=100)
    return split_folds(blocks, truth.schema, 2)


@pytest.fixture
def _few_in_memory(monkeypatch):
    """The search has 300 samples, and all others are passed over."""
    monkeypatch.setattr(dependence, "SEARCH_WORK", 0)
    monkeypatch.setattr(dependence, "START_ROWS", 300)
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)


def test_fit_em__stored_samples_that_fit_in_memory_are_fitted_as_those_in_memory(split):
    training, held_out = split
    stored = pmf.fit_em(training, validation=held_out, dependence="auto", **OPTIONS)
    assert isinstance(stored.model, TreePMF)
    assert {each[:2] for each in stored.model.edges()} == {(f"v{k}", f"v{k + 1}") for k in range(5)}
    mixed = pmf.fit_em(training, validation=held_out.read_codes(), dependence="auto", **OPTIONS)
    assert same_fit(stored, mixed)
    loaded = pmf.fit_em(
        training.read_codes(),
        schema=training.schema,
        validation=held_out,
        dependence="auto",
        **OPTIONS,
    )
    assert max(stored.held_out) == pytest.approx(max(loaded.held_out), abs=0.02)


@pytest.mark.usefixtures("_few_in_memory")
def test_fit_em__passes_over_stored_samples_follow_the_search(split, truth):
    training, held_out = split
    found = pmf.fit_em(training, validation=held_out, dependence="auto", **OPTIONS)
    assert isinstance(found.model, TreePMF)
    assert 1 <= len(found.log_likelihoods) <= OPTIONS["max_passes"]
    assert {each[:2] for each in found.model.edges()} == {(f"v{k}", f"v{k + 1}") for k in range(5)}
    fresh = truth.sample(4000, 2)
    assert found.model.log_prob(fresh).mean() > truth.log_prob(fresh).mean() - 0.05


@pytest.mark.usefixtures("_few_in_memory")
def test_fit_em__forests_of_stored_samples_same_bits_on_workers(thread_client, split):
    training, held_out = split
    alone = pmf.fit_em(training, validation=held_out, dependence="tree", **OPTIONS)
    for spare_bytes in (0, 1 << 30):
        mapped = pmf.fit_em(
            training.with_client(thread_client).with_spare(spare_bytes),
            validation=held_out.with_client(thread_client).with_spare(spare_bytes),
            dependence="tree",
            **OPTIONS,
        )
        assert same_fit(alone, mapped)


@pytest.mark.slow
@pytest.mark.usefixtures("_few_in_memory")
def test_fit_em__forests_continue_from_a_checkpoint(split, tmp_path):
    class Stop(Exception):
        pass

    def stop(run, state):
        if (run, state.n_passes) == ("forests 1", 3):
            raise Stop

    training, held_out = split
    options: dict[str, Any] = OPTIONS | {"members": 2, "validation": held_out, "dependence": "tree"}
    whole = pmf.fit_em(training, **options)
    assert whole.model.origin["average"] == 2
    with pytest.raises(Stop):
        pmf.fit_em(training, checkpoint=tmp_path / "work", on_pass=stop, **options)
    passes = []
    resumed = pmf.fit_em(
        training,
        checkpoint=tmp_path / "work",
        on_pass=lambda run, state: passes.append((run, state.n_passes)),
        **options,
    )
    assert passes[0] == ("forests 1", 4)
    assert same_fit(resumed, whole)


@pytest.mark.usefixtures("_few_in_memory")
def test_fit_em__forests_of_stored_samples_without_any_held_out(split):
    training = split[0]
    kept = pmf.fit_em(training, dependence="auto", **OPTIONS)
    assert not isinstance(kept.model, TreePMF)
    forced = pmf.fit_em(training, dependence="tree", **OPTIONS)
    assert isinstance(forced.model, TreePMF)
    assert forced.model.forest.n_edges >= 5


def test_fit_em__auto_leaves_large_tables_alone_and_tree_refuses_them(split, monkeypatch):
    training, held_out = split
    monkeypatch.setattr("pmflib.families.forests.em.PAIR_BYTES", 100)
    kept = pmf.fit_em(training, validation=held_out, dependence="auto", **OPTIONS)
    assert not isinstance(kept.model, TreePMF)
    counts = training.count_pairs()
    monkeypatch.setattr("pmflib.cluster.memory.find_memory_limit", lambda: 1000)
    options = OPTIONS | {"start": PreparedStart(OPTIONS["start"], counts)}
    with pytest.raises(MemoryPlanError):
        pmf.fit_em(training, validation=held_out, dependence="tree", **options)


def test_fit_em__auto_finds_no_forest_in_stored_samples_without_one(tmp_path):
    plain = plant(0.0)
    blocks = write_partition(tmp_path, plain.sample(900, 1), plain.schema, block_rows=100)
    training, held_out = split_folds(blocks, plain.schema, 2)
    found = pmf.fit_em(training, validation=held_out, dependence="auto", **OPTIONS)
    without = pmf.fit_em(training, validation=held_out, **OPTIONS)
    assert digest_model(found.model) == digest_model(without.model)
    assert np.isfinite(found.held_out).all()


@pytest.mark.usefixtures("_few_in_memory")
def test_fit_em__refines_a_model_with_forests_over_stored_samples(thread_client, split, truth):
    training, held_out = split
    loaded = pmf.fit_em(training.read_codes(), truth, validation=held_out, max_passes=5)
    alone = pmf.fit_em(training, truth, validation=held_out, max_passes=5)
    assert alone.held_out == pytest.approx(loaded.held_out, rel=1e-9)
    np.testing.assert_allclose(alone.model.factors, loaded.model.factors, rtol=1e-7)
    mapped = pmf.fit_em(
        training.with_client(thread_client),
        truth,
        validation=held_out.with_client(thread_client),
        max_passes=5,
    )
    assert same_fit(alone, mapped)
