import functools
from typing import Any

import pytest

import pmflib as pmf
from pmflib.cluster import open_client, start_workers
from pmflib.store import sample_blocks
from pmflib_tasks.config import ClusterConfig
from tests.factories import same_fit
from tests.stored_samples import split_folds, write_partition

pytestmark = pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")


@pytest.fixture
def _large_fits_of_many_groups(monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    monkeypatch.setattr("pmflib.fits.em_fit.LOCAL_WORK", 0)


@pytest.fixture(scope="module")
def split(codes, truth, tmp_path_factory):
    blocks = write_partition(
        tmp_path_factory.mktemp("split"), codes[:900], truth.schema, block_rows=75
    )
    return split_folds(blocks, truth.schema, 2)


OPTIONS: dict[str, Any] = {"rank": 2, "max_passes": 6, "tol": 0.0}


def fit_on(client, split, **options):
    training, held_out = (part.with_client(client).with_spare(1 << 30) for part in split)
    return pmf.fit_em(training, validation=held_out, **OPTIONS | options)


@pytest.fixture(scope="module")
def fit_alone(split):
    """Give a function that fits without workers, once for all tests that compare with it."""
    found = {}

    def fit(**options):
        key = tuple(sorted(options.items()))
        if key not in found:
            found[key] = fit_on(None, split, **options)
        return found[key]

    return fit


@pytest.mark.usefixtures("_large_fits_of_many_groups")
@pytest.mark.parametrize("accelerate", [False, True])
def test_fit_em__the_next_pass_is_made_while_a_model_is_scored(
    thread_client, split, monkeypatch, accelerate
):
    options = {"pseudo_count": 0.5, "accelerate": accelerate, "max_passes": 40, "tol": 1e-4}
    options["start"] = "random"
    options["patience"] = 3
    states = {}
    alone = fit_on(None, split, **options, on_pass=lambda *pass_: states.update([pass_]))
    n_passes = sum(state.n_passes for state in states.values())
    n_early = sum(state.n_passes < 40 for state in states.values())
    calls = {"start": 0, "ahead": 0, "wait": 0}
    start_each, score, is_scoring = pmf.em.StoredSamples.start_each, pmf.em.StoredSamples.score, []

    def count_start(self, *arguments, **named):
        calls["start"] += 1
        calls["ahead"] += bool(is_scoring)
        return functools.partial(count_wait, start_each(self, *arguments, **named))

    def count_wait(wait):
        calls["wait"] += 1
        return wait()

    def note_score(self, *arguments, **named):
        is_scoring.append(True)
        try:
            return score(self, *arguments, **named)
        finally:
            is_scoring.pop()

    monkeypatch.setattr(pmf.em.StoredSamples, "start_each", count_start)
    monkeypatch.setattr(pmf.em.StoredSamples, "score", note_score)
    ahead = fit_on(thread_client, split, **options)
    assert same_fit(alone, ahead)
    assert n_early
    # none is started in vain
    assert calls["wait"] == calls["start"]
    assert calls["ahead"] > n_passes / 2
    # one more for the model that is taken: how far another pass would go
    assert calls["start"] == n_passes + 1


@pytest.mark.usefixtures("_large_fits_of_many_groups")
@pytest.mark.parametrize(("workers", "processes"), [(1, False), (5, False), (2, True)])
def test_fit_em__same_bits_on_any_workers(split, fit_alone, workers, processes):
    options = {"max_passes": 3, "start": "random", "pseudo_count": 0.3, "members": 2}
    alone = fit_alone(**options)
    cluster = ClusterConfig(workers=workers, processes=processes)
    with start_workers(cluster) as address, open_client(address) as client:
        assert same_fit(fit_on(client, split, **options), alone)


@pytest.mark.usefixtures("_large_fits_of_many_groups")
def test_fit_em__continues_from_checkpoints_on_workers(thread_client, split, fit_alone, tmp_path):
    class Stop(Exception):
        pass

    def stop(run, state):
        if (run, state.n_passes) == ("random-0.3", 3):
            raise Stop

    whole = fit_alone(start="random")
    with pytest.raises(Stop):
        fit_on(thread_client, split, start="random", checkpoint=tmp_path / "work", on_pass=stop)
    passes = []
    resumed = fit_on(
        thread_client,
        split,
        start="random",
        checkpoint=tmp_path / "work",
        on_pass=lambda run, state: passes.append((run, state.n_passes)),
    )
    assert ("random-0.3", 3) not in passes
    assert ("random-0.3", 4) in passes
    assert same_fit(resumed, whole)
