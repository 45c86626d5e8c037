import numpy as np
import pytest

from pmflib.base import Limits, PseudoCounts
from pmflib.em import BlocksInMemory, LatentClasses, SideBySide, run_em
from pmflib.families.forests import Forests, TreeOptions, TreeParameters
from tests.em.guessing_family import Guessing
from tests.reference import make_codes, make_model, offsets_of

CARDINALITIES = [3, 2, 4, 2]
OFFSETS = offsets_of(CARDINALITIES)
CODES = make_codes(np.random.default_rng(0), 300, CARDINALITIES)
TRAINING, HELD_OUT = (
    BlocksInMemory.cut(part, OFFSETS, 10_000) for part in (CODES[:200], CODES[200:])
)
SHAPE = PseudoCounts.shaped_by(np.full(11, 1 / 11), OFFSETS, 0.5)
SEEN = np.concatenate([np.full(n, 1 / n) for n in CARDINALITIES])


def begin_runs():
    """Families with their first states: two members of classes, guessing, and forests, which need searches."""
    rng = np.random.default_rng(1)
    classes = LatentClasses(OFFSETS, SHAPE, 2)
    guessing = Guessing(OFFSETS)
    forests = Forests(OFFSETS, TreeOptions(), PseudoCounts.shaped_by(SEEN, OFFSETS, 0.5))
    start = TreeParameters.plain(*make_model(rng, CARDINALITIES, 2), OFFSETS)
    models = [make_model(rng, CARDINALITIES, 3) for _ in range(2)]
    return [
        (classes, classes.begin(models)),
        (guessing, guessing.begin()),
        (forests, forests.begin(start, 2)),
    ]


def run_both(held_out, limits, path=None, most=30):
    """Run all side by side."""
    families, states = zip(*begin_runs(), strict=True)
    family = SideBySide(OFFSETS, families, limits, held_out)
    checkpoint = family.open_checkpoint(path, TRAINING)
    state = run_em(
        family,
        TRAINING,
        family.begin(states),
        limits=Limits(most, 0.0, 1),
        checkpoint=checkpoint,
    )
    return families, state


def test_side_by_side__each_run_is_as_it_is_alone():
    limits = [Limits(4, 0.0, 9), Limits(6, 0.0, 9), Limits(9, 0.0, 9)]
    _, state = run_both(None, limits)
    assert state.n_passes == 9
    for (family, start), found, most in zip(begin_runs(), state.parameters, limits, strict=True):
        alone = run_em(family, TRAINING, start, limits=most)
        assert found.n_passes == most.max_passes
        packed, expected = family.pack(found.parameters), family.pack(alone.parameters)
        for name, array in expected.items():
            np.testing.assert_allclose(packed[name], array, rtol=1e-9)


def test_side_by_side__each_run_is_stopped_by_its_own_held_out_score():
    limits = [Limits(30, 1e-5, 2)] * 3
    families, state = run_both(HELD_OUT, limits)
    for family, found in zip(families, state.parameters, strict=True):
        # forests count as better only by more than the tolerance
        highest = max(found.held_out)
        assert found.held_out[found.best_pass] >= highest - 1e-5 * abs(highest)
        best = family.score(HELD_OUT, found.best)
        assert best == pytest.approx(found.held_out[found.best_pass])


def test_side_by_side__resumes_from_a_checkpoint_with_equal_bits(tmp_path):
    limits = [Limits(12, 1e-5, 3)] * 3
    run_both(HELD_OUT, limits, tmp_path / "state.npz", most=4)
    families, resumed = run_both(HELD_OUT, limits, tmp_path / "state.npz")
    _, whole = run_both(HELD_OUT, limits)
    for family, found, expected in zip(families, resumed.parameters, whole.parameters, strict=True):
        assert found.held_out == expected.held_out
        for name, array in family.pack(expected.best).items():
            assert family.pack(found.best)[name].tobytes() == array.tobytes()


def test_side_by_side__runs_without_passes_keep_their_start():
    _, state = run_both(HELD_OUT, [Limits(0, 0.0, 1)] * 3)
    assert state.n_passes == 0
    for (family, start), found in zip(begin_runs(), state.parameters, strict=True):
        for name, array in family.pack(start.parameters).items():
            assert family.pack(found.best)[name].tobytes() == array.tobytes()
