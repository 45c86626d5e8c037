from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PseudoCounts
from pmflib.em import ClassState
from pmflib.papers import Acceleration, extrapolate
from pmflib.papers.squarem import SQUAREM
from tests.em.class_runs import run_classes
from tests.reference import make_codes, make_model, offsets_of

CARDINALITIES = [3, 2, 4, 3]
OFFSETS = offsets_of(CARDINALITIES)
PSEUDO_COUNTS = PseudoCounts(np.full(12, 0.1))


def draw_slow_case(seed):
    """Samples of states that are hard to distinguish: EM is slow."""
    rng = np.random.default_rng(seed)
    return make_codes(rng, 400, CARDINALITIES, 0.2), make_model(rng, CARDINALITIES, 3)


def run(case, **options: Any):
    codes, model = case
    options = dict[str, Any](pseudo_counts=PSEUDO_COUNTS, max_passes=4000, tol=1e-9) | options
    return run_classes(codes, options.pop("start", model), OFFSETS, **options)


def test_extrapolate__finds_the_limit_of_a_geometric_path():
    limit = np.array([0.3, 0.7]), np.array([[0.2, 0.6], [0.8, 0.4]])
    path = [
        (limit[0] + c * np.array([0.1, -0.1]), limit[1] + c * np.array([[0.1, 0.2], [-0.1, -0.2]]))
        for c in (0.9, 0.72, 0.576)
    ]
    (prior, factors), step_length = extrapolate(path[0], path[1], path[2], np.array([0, 2]), 100.0)
    assert step_length == pytest.approx(5.0)
    np.testing.assert_allclose(prior, limit[0], rtol=1e-12)
    np.testing.assert_allclose(factors, limit[1], rtol=1e-12)
    # a step length of 1 would be the end of the path
    (prior, _), step_length = extrapolate(path[0], path[1], path[2], np.array([0, 2]), 2.0)
    assert step_length == 2.0
    assert limit[0][0] < prior[0] < path[-1][0][0]


def test_extrapolate__steps_that_grow_lead_nowhere_but_to_the_end():
    path = [(np.array([p, 1 - p]), np.array([[1.0, 1.0]])) for p in (0.1, 0.2, 0.5)]
    found, step_length = extrapolate(path[0], path[1], path[2], np.array([0, 1]), 100.0)
    assert found is path[-1]
    assert step_length == 1.0


def test_extrapolate__stays_among_the_probabilities():
    path = [(np.array([p, 1 - p]), np.array([[p], [1 - p]]) * [[1, 1]]) for p in (0.3, 0.1, 0.02)]
    (prior, factors), _ = extrapolate(path[0], path[1], path[2], np.array([0, 2]), 100.0)
    assert prior.min() > 0
    assert factors.min() > 0
    np.testing.assert_allclose(factors.sum(axis=0), 1.0, rtol=1e-14)
    assert prior.sum() == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_latent_classes__acceleration_never_raises_the_objective(seed):
    state = run(draw_slow_case(seed), accelerate=True, tol=0.0, max_passes=60)
    assert np.all(np.diff(state.loss_history) <= 1e-13)
    # the model at the end is no worse than the last objective noted, though that is of the model before
    final = run_classes(
        draw_slow_case(seed)[0],
        state.parameters,
        OFFSETS,
        pseudo_counts=PSEUDO_COUNTS,
        max_passes=1,
        tol=0.0,
    ).loss_history[0]
    assert final <= state.loss_history[-1] + 1e-13


def test_latent_classes__acceleration_needs_fewer_passes_to_the_same_optimum():
    ratios = []
    for seed in range(12):
        case = draw_slow_case(seed)
        plain, fast = run(case), run(case, accelerate=True)
        if abs(plain.loss_history[-1] - fast.loss_history[-1]) < 1e-6:
            near = max(plain.loss_history[-1], fast.loss_history[-1]) + 1e-6
            ratios.append(
                np.argmax(np.array(plain.loss_history) <= near)
                / np.argmax(np.array(fast.loss_history) <= near)
            )
            assert fast.passes_saved > 0
        assert plain.passes_saved == 0
    assert len(ratios) >= 5
    assert np.median(ratios) > 1.7


def test_latent_classes__rejected_extrapolation_returns_to_plain_em():
    case = draw_slow_case(0)
    plain = run(case, max_passes=3)
    state = run(case, max_passes=2, accelerate=True, tol=0.0)
    assert state.acceleration.fallback is None
    # no pass has judged the extrapolation: the state is that of two plain passes
    np.testing.assert_array_equal(state.parameters[1], run(case, max_passes=2).parameters[1])
    pending = ClassState(
        (np.array([1 - 2e-9, 1e-9, 1e-9]), case[1][1]),
        loss_history=plain.loss_history[:2],
        log_likelihoods=plain.log_likelihoods[:2],
        acceleration=Acceleration(fallback=state.parameters, step_length=8.0, longest=8.0),
    )
    back = run(case, start=pending, max_passes=3, accelerate=True)
    assert back.loss_history == (*plain.loss_history[:2], plain.loss_history[1])
    assert np.array_equal(back.parameters[1], state.parameters[1])
    assert (back.acceleration.longest, back.passes_saved) == (2.0, -1.0)


def test_acceleration__steps_grow_where_their_limit_has_bound():
    model = np.ones(1), np.ones((1, 1))
    bound = Acceleration(fallback=model, step_length=4.0, longest=4.0)
    free = Acceleration(fallback=model, step_length=3.0, longest=4.0)
    losses = (3.0, 2.0)
    assert bound.accepts(2.0, losses)
    assert not bound.accepts(2.1, losses)
    assert not bound.accepts(float("nan"), losses)
    assert bound.accept(0.5, losses).longest == 4.0 * SQUAREM.growth
    assert free.accept(0.5, losses).longest == 4.0
    # it has gained one and a half times as much as the pass before, for one pass
    assert free.accept(0.5, losses).passes_saved == 0.5
    back, shorter = free.reject()
    assert back is model
    assert (shorter.longest, shorter.fallback) == (SQUAREM.least_longest, None)


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("killed_after", [1, 2, 3, 4, 8])
def test_latent_classes__accelerated_continues_from_a_checkpoint_to_the_same_bits(
    tmp_path, killed_after, validated
):
    case = draw_slow_case(1)
    options: dict[str, Any] = {"accelerate": True, "tol": 0.0, "patience": 50}
    if validated:
        options["held_out"] = case[0][:50]
    whole = run(case, max_passes=12, **options)
    path = tmp_path / "state.npz"
    options["path"] = path
    run(case, max_passes=killed_after, **options)
    resumed = run(case, max_passes=12, **options)
    assert resumed.parameters[1].tobytes() == whole.parameters[1].tobytes()
    assert resumed.parameters[0].tobytes() == whole.parameters[0].tobytes()
    assert resumed.loss_history == whole.loss_history
    assert resumed.held_out == whole.held_out
    assert resumed.passes_saved == whole.passes_saved


def test_latent_classes__stops_closer_to_the_optimum_than_by_the_last_change():
    closer = []
    for seed in range(4):
        case = draw_slow_case(seed)
        best = run(case, tol=0.0, max_passes=6000).loss_history[-1]
        tol = 1e-6
        found = np.array(run(case, tol=tol).loss_history)
        changes = np.abs(np.diff(found))
        by_change = found[np.argmax(changes <= tol * np.abs(found[1:])) + 1]
        assert found[-1] - best <= by_change - best
        closer.append((found[-1] - best) / (by_change - best))
    assert np.median(closer) < 0.3


def test_fit_em__reports_what_acceleration_saved():
    codes = draw_slow_case(0)[0]
    options: dict[str, Any] = {
        "rank": 3,
        "start": "random",
        "pseudo_count": 0.1,
        "max_passes": 3000,
        "tol": 1e-8,
    }
    result, plain = pmf.fit_em(codes, accelerate=True, **options), pmf.fit_em(codes, **options)
    assert result.passes_saved > 0
    assert plain.passes_saved == 0
    assert len(result.loss_history) < len(plain.loss_history)
