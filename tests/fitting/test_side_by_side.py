import functools
import threading
import time
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.cluster.clients import open_client
from pmflib.cluster.workers import start_workers
from pmflib.core.defaults import FIT_SAMPLES
from pmflib.em.latent_classes import ClassState
from pmflib.em.memory import SIDE_THREADS, choose_side_by_side
from pmflib.fitting.fit_specifications import climb, list_certain
from pmflib.fitting.side_by_side import SideBySide
from pmflib.store import sample_blocks
from pmflib_tasks.config import ClusterConfig
from tests.stored_samples import write_partition

pytestmark = pytest.mark.filterwarnings("ignore::pmflib.core.errors.ConvergenceWarning")


@pytest.fixture
def _large_fits_of_many_groups(monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    monkeypatch.setattr("pmflib.fitting.candidates.SMALL_WORK", 0)


@pytest.fixture(scope="module")
def split(codes, truth, tmp_path_factory):
    blocks = write_partition(
        tmp_path_factory.mktemp("split"), codes[:900], truth.schema, block_rows=50
    )
    parts = [block for block in blocks if block.fold < 2], [b for b in blocks if b.fold == 2]
    return [pmf.StoredSamples(part, truth.schema) for part in parts]


OPTIONS: dict[str, Any] = {"rank": 2, "max_passes": 6, "tol": 0.0}


def same_fit(one, other):
    return (
        one.model.factors.tobytes() == other.model.factors.tobytes()
        and one.held_out == other.held_out
        and one.comparisons == other.comparisons
        and one.notes == other.notes
    )


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
@pytest.mark.parametrize("pseudo_count", ["auto", 0.5])
def test_fit_em__same_bits_side_by_side(thread_client, split, fit_alone, monkeypatch, pseudo_count):
    alone = fit_alone(pseudo_count=pseudo_count)
    after_each_other = fit_on(thread_client, split, pseudo_count=pseudo_count)
    monkeypatch.setattr("pmflib.em.memory.SIDE_THREADS", 2)
    seen = []
    beside = fit_on(
        thread_client,
        split,
        pseudo_count=pseudo_count,
        on_pass=lambda run, state: seen.append((run, threading.get_ident())),
    )
    assert same_fit(alone, after_each_other)
    assert same_fit(alone, beside)
    assert len({thread for _, thread in seen}) == 2
    assert threading.get_ident() not in {thread for _, thread in seen}


@pytest.mark.usefixtures("_large_fits_of_many_groups")
@pytest.mark.parametrize(("accelerate", "side_threads"), [(False, 32), (True, 32), (True, 2)])
def test_fit_em__the_next_pass_is_made_while_a_model_is_scored(
    thread_client, split, monkeypatch, accelerate, side_threads
):
    options = {"pseudo_count": 0.5, "accelerate": accelerate, "max_passes": 40, "tol": 1e-4}
    options["patience"] = 3
    states = {}
    alone = fit_on(None, split, **options, on_pass=lambda *pass_: states.update([pass_]))
    n_passes = sum(state.n_passes for state in states.values())
    n_early = sum(state.n_passes < 40 for state in states.values())
    calls = {"start": 0, "ahead": 0, "wait": 0}
    start_each, score, is_scoring = pmf.StoredSamples.start_each, pmf.StoredSamples.score, []

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

    monkeypatch.setattr(pmf.StoredSamples, "start_each", count_start)
    monkeypatch.setattr(pmf.StoredSamples, "score", note_score)
    monkeypatch.setattr("pmflib.em.memory.SIDE_THREADS", side_threads)
    ahead = fit_on(thread_client, split, **options)
    assert same_fit(alone, ahead)
    if side_threads > 2:
        assert n_early
        # none is started in vain
        assert calls["wait"] == calls["start"]
        assert calls["ahead"] > n_passes / 2
        # one more for the model that is taken: how far another pass would go
        assert calls["start"] == n_passes + 1


@pytest.mark.usefixtures("_large_fits_of_many_groups")
@pytest.mark.parametrize(("workers", "processes"), [(1, False), (5, False), (2, True)])
def test_fit_em__same_bits_side_by_side_on_any_workers(
    split, fit_alone, monkeypatch, workers, processes
):
    monkeypatch.setattr("pmflib.em.memory.SIDE_THREADS", 1)
    alone = fit_alone(max_passes=3)
    cluster = ClusterConfig(workers=workers, processes=processes)
    with start_workers(cluster) as address, open_client(address) as client:
        assert same_fit(fit_on(client, split, max_passes=3), alone)


@pytest.mark.usefixtures("_large_fits_of_many_groups")
def test_fit_em__goes_on_from_the_checkpoints_of_runs_side_by_side(
    thread_client, split, fit_alone, monkeypatch, tmp_path
):
    class Stop(Exception):
        pass

    def stop(run, state):
        if (run, state.n_passes) == ("auto-0.3", 3):
            raise Stop

    monkeypatch.setattr("pmflib.em.memory.SIDE_THREADS", 2)
    whole = fit_alone(pseudo_count="auto")
    with pytest.raises(Stop):
        fit_on(thread_client, split, checkpoint=tmp_path / "work", on_pass=stop)
    saved = sorted(path.name for path in (tmp_path / "work").glob("*.npz"))
    assert saved == ["state-auto-0.3.npz", "state-auto-1.npz"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("em-run")]
    passes = []
    resumed = fit_on(
        thread_client,
        split,
        checkpoint=tmp_path / "work",
        on_pass=lambda run, state: passes.append((run, state.n_passes)),
    )
    assert ("auto-0.3", 3) not in passes
    assert ("auto-0.3", 4) in passes
    assert same_fit(resumed, whole)


def test_choose_side_by_side__only_on_many_threads():
    assert [choose_side_by_side(n) for n in (1, 2, SIDE_THREADS - 1)] == [1, 1, 1]
    assert choose_side_by_side(1000) == 2


@pytest.mark.parametrize("values", [(0.7,), (0.1, 0.5), FIT_SAMPLES, (1.0, 2.0)])
@pytest.mark.parametrize("seed", range(5))
def test_list_certain__are_scored_whatever_the_scores_are(values, seed):
    rng = np.random.default_rng(seed)
    scored = list(climb(values, lambda _: float(rng.random())))
    certain = list_certain(values)
    assert scored[: len(certain)] == certain
    assert len(certain) == min(2, len(values))


def make_side_by_side(monkeypatch, n, on_pass=None, fail=""):
    samples = type("Samples", (), {"n_side_by_side": n})()
    runs = pmf_runs(samples, on_pass)
    log: list[tuple[str, str]] = []

    def run(self, name, starts, pseudo_count, *, stop_early=True):
        log.append(("start", name))
        state = ClassState((np.ones(1), np.ones((1, 1))), held_out=(pseudo_count,))
        for _ in range(100):
            time.sleep(0.01)
            if name == fail:
                raise pmf.PmfError("the store is gone")
            if self.on_pass is not None:
                self.on_pass(name, state)
        log.append(("end", name))
        return state

    monkeypatch.setattr("pmflib.em.latent_classes.Runs.run", run)
    return SideBySide(runs, lambda method, number: []), log


def pmf_runs(samples, on_pass):
    from pmflib.em.latent_classes import Runs

    return Runs(samples, None, np.array([0, 1]), np.ones(1), on_pass=on_pass)


def test_side_by_side__runs_that_are_not_needed_end_after_their_pass(monkeypatch):
    side_by_side, log = make_side_by_side(monkeypatch, 2)
    with side_by_side:
        side_by_side.start(("auto", 1.0), ("random", 1.0))
        assert side_by_side.find(("auto", 1.0)).held_out == (1.0,)
        side_by_side.start(("random", 2.0), ("random", 3.0))
        side_by_side.stop_others([("random", 2.0)])
        assert side_by_side.find(("random", 2.0)).held_out == (2.0,)
    assert log[:2] == [("start", "auto-1"), ("start", "random-1")]
    assert ("end", "random-3") not in log


def test_side_by_side__an_error_ends_all_runs_and_is_the_callers(monkeypatch):
    side_by_side, log = make_side_by_side(monkeypatch, 2, fail="random-1")

    def run_both():
        with side_by_side:
            side_by_side.start(("auto", 1.0), ("random", 1.0))
            side_by_side.find(("auto", 1.0))

    with pytest.raises(pmf.PmfError, match="the store is gone"):
        run_both()
    assert ("end", "auto-1") not in log


def test_side_by_side__alone_nothing_is_started_ahead(monkeypatch):
    side_by_side, log = make_side_by_side(monkeypatch, 1)
    with side_by_side:
        side_by_side.start(("auto", 1.0), ("random", 1.0))
        side_by_side.find(("random", 1.0))
    assert log == [("start", "random-1"), ("end", "random-1")]
