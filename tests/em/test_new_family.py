"""What a new family of models takes: its statistics, its update and its arrays on disk, in `guessing_family`."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import LIMITS
from pmflib.em import BlocksInMemory, run_em
from pmflib.store import sample_blocks
from tests.em.guessing_family import Guessing
from tests.stored_samples import write_partition

SCHEMA = pmf.Schema.from_cardinalities([3, 2, 4, 3, 3, 4])
PMFS = [np.array([0.85, *[0.15 / (size - 1)] * (size - 1)]) for size in SCHEMA.cardinalities]
FEW = LIMITS._replace(max_passes=6, tol=0.0)


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(0)
    guesses = rng.random(600) < 0.3
    known = np.column_stack(
        [rng.choice(probabilities.size, 600, p=probabilities) for probabilities in PMFS]
    )
    random = np.column_stack([rng.integers(0, size, 600) for size in SCHEMA.cardinalities])
    found = np.where(guesses[:, None], random, known)
    found[rng.random(found.shape) < 0.1] = -1
    return found.astype(np.int8)


@pytest.fixture
def stored(codes, tmp_path, monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    return pmf.em.StoredSamples(write_partition(tmp_path, codes, SCHEMA, block_rows=40), SCHEMA)


def fit_guessing(source, limits=LIMITS, folder=None, on_pass=None):
    family = Guessing(source.offsets)
    path = None if folder is None else folder / "guessing.npz"
    kept = family.open_checkpoint(path, source)
    start = family.begin()
    return run_em(family, source, start, limits=limits, checkpoint=kept, on_pass=on_pass)


def are_equal(one, other):
    return (
        one.parameters[0] == other.parameters[0]
        and one.parameters[1].tobytes() == other.parameters[1].tobytes()
        and one.log_likelihoods == other.log_likelihoods
    )


def test_new_family__in_memory_finds_who_guesses(codes):
    source = BlocksInMemory.cut(codes, SCHEMA.offsets, 1)
    found = fit_guessing(source)
    assert found.parameters[0] == pytest.approx(0.3, abs=0.06)
    assert found.parameters[1] == pytest.approx(np.concatenate(PMFS), abs=0.06)
    assert np.all(np.diff(found.log_likelihoods) > -1e-12)
    mean = source.score([found.parameters], Guessing.score_under)
    assert mean >= found.log_likelihoods[-1]
    other = 0.5, found.parameters[1]
    compared = source.compare([found.parameters], [other], Guessing.score_under)
    assert compared.mean > 0


@pytest.mark.parametrize("spare_bytes", [0, 1 << 30])
def test_new_family__stored_samples_same_bits_on_workers(codes, stored, thread_client, spare_bytes):
    alone = fit_guessing(stored, FEW)
    mapped = stored.with_client(thread_client).with_spare(spare_bytes)
    assert are_equal(fit_guessing(mapped, FEW), alone)
    loaded = fit_guessing(stored.load(1), FEW)
    assert alone.parameters[1] == pytest.approx(loaded.parameters[1], rel=1e-10)


def test_new_family__continues_from_its_checkpoint_and_refuses_another(codes, stored, tmp_path):
    class Stop(Exception):
        pass

    def stop(state):
        if state.n_passes == 3:
            raise Stop

    folder, seen = tmp_path / "work", []
    with pytest.raises(Stop):
        fit_guessing(stored, FEW, folder, stop)
    resumed = fit_guessing(stored, FEW, folder, on_pass=lambda state: seen.append(state.n_passes))
    assert seen == [4, 5, 6]
    assert are_equal(resumed, fit_guessing(stored, FEW))
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        fit_guessing(BlocksInMemory.cut(codes, SCHEMA.offsets, 1), FEW, folder)
