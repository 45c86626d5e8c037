"""Figures show what they are given: data of artists, labels, and texts as they are."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot

import pmflib as pmf
from pmflib.apps import crowd
from pmflib.base import (
    DIVERGING,
    SchemaError,
    plot_calibration,
    plot_confusion_matrix,
    plot_gains,
    write_text,
)
from pmflib.counts import plot_missingness, plot_support
from pmflib.fits import plot_passes, plot_residual_pairs, plot_residuals
from pmflib.inference.three_steps import classify
from pmflib.model import measure_associations

SCHEMA = pmf.Schema(
    (
        pmf.Variable("price $5 & $6", ("low", "high")),
        pmf.Variable("b", ("x", "y", "z")),
        pmf.Variable("c", ("p", "q")),
    )
)
FACTORS = np.array(
    [[0.9, 0.2], [0.1, 0.8], [0.7, 0.1], [0.2, 0.2], [0.1, 0.7], [0.5, 0.5], [0.5, 0.5]]
)


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


@pytest.fixture
def model():
    return pmf.JointPMF(np.array([0.3, 0.7]), FACTORS, SCHEMA)


def texts_of(labels):
    return [label.get_text() for label in labels]


def widths_of(ax):
    return [patch.get_width() for patch in ax.patches]


def test_plot_profiles__a_row_per_level_and_a_mark_per_state_with_intervals(model):
    ends = SimpleNamespace(lower=FACTORS - 0.05, upper=FACTORS + 0.1)
    ax = model.plot_profiles(errors={"factors": ends})
    # of two levels the second alone
    assert texts_of(ax.get_yticklabels()) == [
        "price $5 & $6 = high",
        "b = x",
        "b = y",
        "b = z",
        "c = q",
    ]
    marks = [line for line in ax.lines if line.get_marker() in "os"]
    assert np.allclose(marks[0].get_xdata(), 100 * FACTORS[[1, 2, 3, 4, 6], 1])
    assert texts_of(ax.get_legend().get_texts())[0].startswith("state 1, ")
    drawn = np.array(ax.collections[0].get_segments())[:, :, 0]
    assert np.allclose(drawn[:, 1], 100 * ends.upper[[1, 2, 3, 4, 6], 1])
    assert len(model.plot_profiles(variables=["c"]).get_yticklabels()) == 1
    other = SimpleNamespace(lower=FACTORS[:, :1], upper=FACTORS[:, :1])
    with pytest.raises(pmf.PmfError, match="errors"):
        model.plot_profiles(errors={"factors": other})


def test_plot_residuals__cells_below_the_diagonal_with_what_is_beyond_chance_outlined():
    found = np.array([[np.nan, 30.0, 1.2], [30.0, np.nan, np.nan], [1.2, np.nan, np.nan]])
    ax = plot_residuals(["a", "b", "c"], found, found > 20)
    assert texts_of(ax.texts) == ["30", "1.2", ""]
    assert [(each.get_x(), each.get_y()) for each in ax.patches] == [(-0.46, 0.54)]
    with pytest.raises(pmf.PmfError):
        plot_residuals(["a"], np.zeros((1, 1)), np.zeros((1, 1), bool))


def test_plot_residuals__of_a_result_has_the_order_of_the_schema():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (400, 4))
    codes[:, 3] = np.where(rng.random(400) < 0.6, codes[:, 1], codes[:, 3])
    result = pmf.fit_em(codes, rank=1, schema=pmf.Schema.from_cardinalities([2] * 4))
    ax = result.plot_residuals()
    assert texts_of(ax.get_yticklabels()) == ["v0", "v1", "v2", "v3"]
    # row of the later variable, column of the earlier
    assert [(each.get_x(), each.get_y()) for each in ax.patches] == [(0.54, 2.54)]


def test_plot_residual_pairs__a_bar_per_pair():
    ax = plot_residual_pairs([("a", "b"), ("a", "c")], [9.0, 0.5], [True, False])
    assert widths_of(ax) == [9.0, 0.5]
    assert texts_of(ax.get_yticklabels()) == ["a and b", "a and c"]


def test_plot_certainty__bars_are_all_rows(model):
    codes = model.sample(500, 0)
    ax = classify(model, codes).plot()
    assert np.isclose(sum(patch.get_height() for patch in ax.patches), 100)
    named = texts_of(ax.get_legend().get_texts())
    assert sorted(each for each in named if each.startswith("class")) == ["class 0", "class 1"]


def test_plot_states__a_row_per_level_and_a_column_per_state(model):
    ax = model.plot_states(per_state=2)
    names = texts_of(ax.get_yticklabels())
    assert names == ["price $5 & $6 = high", "b = z", "price $5 & $6 = low", "b = x"]
    assert texts_of(ax.get_xticklabels()) == ["1\n70 %", "0\n30 %"]
    assert texts_of(ax.texts)[:4] == ["80", "10", "70", "10"]
    colours = [matplotlib.colors.to_hex(each) for each in ax.collections[0].get_facecolors()]
    # as probable again and more is blue, and as many times less brown
    assert len(colours) == 8
    assert colours[1] in DIVERGING[:2]
    assert colours[5] in DIVERGING[-3:]
    ax.figure.canvas.draw()


def test_plot_states__nothing_distinguishes_a_single_state():
    alone = pmf.JointPMF(np.ones(1), FACTORS[:, :1], SCHEMA)
    assert texts_of(alone.plot_states().texts) == ["No level distinguishes a state."]
    with pytest.raises(pmf.PmfError, match="per_state"):
        alone.plot_states(per_state=0)


def test_plot_associations__largest_first(model):
    ax = model.plot_associations(most=2)
    found = measure_associations(model)
    assert texts_of(ax.get_yticklabels())[0] == "price $5 & $6 and b"
    assert widths_of(ax)[0] == pytest.approx(found.mutual_information[0, 1])
    assert len(ax.patches) == 2
    with pytest.raises(pmf.PmfError, match="most"):
        model.plot_associations(most=0)


def test_plot_marginal__alone_and_given(model):
    ax = model.plot_marginal("b")
    np.testing.assert_allclose(widths_of(ax), 100 * model.marginal(["b"]))
    assert texts_of(ax.get_yticklabels()) == ["x", "y", "z"]
    ax = model.plot_marginal("b", given={"price $5 & $6": "low"})
    given = 100 * model.marginal(["b"], {"price $5 & $6": "low"})
    np.testing.assert_allclose(widths_of(ax)[:3], given)
    assert texts_of(ax.get_legend().get_texts())[0] == "given price $5 & $6=low"
    ax.figure.canvas.draw()
    with pytest.raises(SchemaError):
        model.plot_marginal("nothing")


def test_plot_convergence__both_curves_and_the_pass_taken():
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, (600, 1))
    codes = np.where(rng.random((600, 6)) < 0.85, side, 1 - side).astype(np.int8)
    schema = pmf.Schema.from_cardinalities([2] * 6)
    start = pmf.fit(pmf.count_pairs(codes[:500], schema), rank=2)
    ax = start.plot_convergence()
    assert ax.lines[0].get_ydata().tolist() == list(start.loss_history)
    result = pmf.fit_em(codes[:500], start.model, validation=codes[500:])
    ax = result.plot_convergence()
    assert ax.lines[0].get_ydata().tolist() == list(result.log_likelihoods)
    assert ax.get_xlabel() == "pass of EM"
    choice = pmf.fits.select_rank(pmf.count_pairs(codes, schema, n_folds=8))
    figure = choice.plot()
    assert f"chosen: {choice.rank}" in texts_of(figure.texts)
    assert set(figure.lines[0].get_xdata()) == {
        int(point.settings["rank"]) for point in choice.curve
    }
    assert max(figure.lines[0].get_ydata()) == 0


def test_plot_passes__of_a_result_alone():
    ax = plot_passes([-9.0, -5.0, -4.0], [-4.5], 2)
    assert ax.lines[1].get_xydata().tolist() == [[2, -4.5]]
    assert len(plot_passes([-3.0]).lines) == 1


def test_plot_support__pairs_by_how_many_hold_them():
    codes = np.array([[0, 1, -1]] * 7 + [[1, -1, 0]] * 2)
    counts = pmf.count_pairs(codes, [2, 2, 2])
    ax = counts.plot_support()
    assert sum(patch.get_height() for patch in ax.patches) == 2
    assert "1 pairs without samples" in texts_of(ax.get_legend().get_texts())
    wide = plot_support(np.array([[0, 3, 900], [3, 0, 4], [900, 4, 0]]))
    assert wide.get_xscale() == "log"
    with pytest.raises(pmf.PmfError):
        plot_support(np.array([[4]]))


def test_plot_missingness__bars_of_few_and_a_curve_of_many():
    ax = plot_missingness(["a", "b", "c"], [0.1, 0.5, 0.0])
    assert texts_of(ax.get_yticklabels()) == ["b", "a", "c"]
    assert widths_of(ax) == [50, 10, 0]
    many = plot_missingness([f"v{j}" for j in range(60)], np.linspace(0, 1, 60))
    assert not many.patches
    assert many.get_ylim() == (0, 100)
    with pytest.raises(pmf.PmfError, match="shares"):
        plot_missingness(["a", "b"], [0.5])


def test_plot_calibration__points_and_diagonal():
    bins = [{"probability": 0.4, "accuracy": 0.5, "accuracy_error": 0.1}]
    ax = plot_calibration(bins)
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [100, 100]]
    assert [40, 50] in [list(each) for line in ax.lines for each in line.get_xydata()]


def test_plot_gains__losses_have_another_colour():
    ax = plot_gains(["a", "b"], [0.2, -0.1], [0.01, None])
    assert widths_of(ax) == [0.2, -0.1]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()


def test_plot_confusion_matrix__shares_of_rows():
    ax = plot_confusion_matrix([[3, 1], [0, 0]], ["x", "y"])
    assert texts_of(ax.texts) == ["75", "25", "0", "0"]


def test_aggregation__plots_of_workers():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 60)
    rows = [
        (task, worker, truth[task] if rng.random() < skill else 1 - truth[task])
        for task in range(60)
        for worker, skill in (("ann", 0.95), ("bob", 0.9), ("cy", 0.6))
    ]
    columns = dict(
        zip(("task", "worker", "label"), map(list, zip(*rows, strict=True)), strict=True)
    )
    found = crowd.aggregate(columns)
    ax = found.plot_confusion("bob")
    shares = 100 * found.confusion[1].T
    assert texts_of(ax.texts) == [f"{share:.0f}" for share in shares.ravel()]
    assert ax.get_title(loc="left").startswith("bob: accuracy")
    points = found.plot_skills().lines[0].get_xydata()
    np.testing.assert_allclose(points[:, 1], 100 * found.accuracy)
    assert points[:, 0].tolist() == [60, 60, 60]
    with pytest.raises(pmf.PmfError, match="bob"):
        found.plot_confusion("bobb")


def test_aggregation__reliability_by_labels_that_it_was_not_given():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 200)
    rows = [
        (task, worker, truth[task] if rng.random() < 0.7 else 1 - truth[task])
        for task in range(200)
        for worker in range(4)
    ]
    labels = dict(zip(("task", "worker", "label"), zip(*rows, strict=True), strict=True))
    given = {task: int(truth[task]) for task in range(50)}
    found = crowd.aggregate(labels, known=given)
    known = dict(enumerate(truth.tolist()))
    before, after = (
        each.lines[0].get_xydata() for each in found.plot_reliability(known).containers
    )
    right = found.codes[50:] == truth[50:]
    for points, sure in ((before, found.posterior.max(axis=1)), (after, found.confidence)):
        assert len(points) == 10
        assert points[:, 0].mean() == pytest.approx(100 * sure[50:].mean())
        assert points[:, 1].mean() == pytest.approx(100 * right.mean())
    with pytest.raises(pmf.PmfError):
        found.plot_reliability(given)


def test_open_axes__those_given_are_drawn_on(model):
    figure, axes = pyplot.subplots(1, 2)
    assert model.plot_states(ax=axes[1]) is axes[1]
    assert not axes[0].texts
    assert figure.axes == list(axes)


def test_write_text__visible_and_short():
    assert write_text("a\x1bb\n") == "a\\x1bb\\n"
    assert write_text("x" * 60) == "x" * 41 + "…"


def test_open_axes__without_matplotlib_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import numpy as np, pmflib as pmf\n"
        "model = pmf.JointPMF(np.ones(1), np.ones((1, 1)), pmf.Schema.from_cardinalities([1]))\n"
        "try:\n    model.plot_marginal(0)\nexcept pmf.PmfError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pmflib[plot]'" in done.stdout
