import re
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.core.errors import SchemaError
from pmflib.em.latent_classes import split_members
from tests.reference import make_codes

CARDINALITIES = [3, 2, 4, 3]


def test_fit_em__raises_the_likelihood_of_its_start(codes):
    start = pmf.fit(pmf.count_pairs(codes, CARDINALITIES), 2).model
    result = pmf.fit_em(codes, start, pseudo_count=0, max_passes=5000)
    assert result.converged
    assert result.method == "given+em"
    assert result.model.log_prob(codes).mean() > start.log_prob(codes).mean()
    # the history ends before the last pass, which can only have lowered the loss
    assert -result.model.log_prob(codes).mean() <= result.loss_history[-1] + 1e-12
    assert result.best_pass == len(result.loss_history) == result.model.origin["passes"]


def test_fit_em__warns_when_it_stops_at_its_limit(codes):
    with pytest.warns(
        pmf.ConvergenceWarning, match="EM stopped at max_passes=1 before it converged"
    ):
        result = pmf.fit_em(codes, rank=2, max_passes=1)
    assert not result.converged
    # the warning points at the line that called
    with pytest.warns(pmf.ConvergenceWarning) as caught:
        pmf.fit_em(codes, rank=2, max_passes=1)
    assert caught[0].filename == __file__


def test_fit_em__no_pass_gives_back_the_model(truth, codes):
    result = pmf.fit_em(codes, truth, max_passes=0)
    assert np.array_equal(result.model.factors, truth.factors)
    assert result.loss_history == ()


def test_fit_em__validation_keeps_the_best_pass(codes):
    train, held_out = codes[:60], codes[60:160]
    result = pmf.fit_em(
        train,
        rank=8,
        validation=held_out,
        start="random",
        pseudo_count=0.01,
        patience=3,
        max_passes=300,
        rng=1,
    )
    per_row = result.model.log_prob(held_out).mean()
    assert per_row == pytest.approx(max(result.held_out), rel=1e-12)
    # of a start that was made nothing is evaluated before the first pass
    assert result.best_pass == int(np.argmax(result.held_out)) + 1
    assert result.best_pass < len(result.loss_history)


def test_fit_em__tables_are_encoded():
    table = {"a": ["x", "y", "x", None] * 5, "b": [1, 2, 1, 2] * 5}
    result = pmf.fit_em(table, rank=1)
    assert result.model.schema.names == ("a", "b")
    held_out = {"a": ["x", "y"], "b": [1, None]}
    start = result.model
    assert len(pmf.fit_em(table, start, validation=held_out, patience=1).held_out) >= 2


def test_fit_em__reads_levels_off_the_samples():
    codes = np.array([[127, -1], [0, -1]], np.int8)
    result = pmf.fit_em(codes, rank=1, max_passes=0)
    assert result.model.schema.cardinalities.tolist() == [128, 1]


@pytest.mark.parametrize(
    ("codes", "arguments", "error", "message"),
    [
        ([[0, 1]], {}, pmf.PmfError, "model is absent and rank is None; give one of the two"),
        (np.zeros((0, 2), int), {"rank": 1}, SchemaError, r"of shape \(0, 2\); codes are integers"),
        (np.array([[0.0, np.nan]]), {"rank": 1}, SchemaError, "codes is an array of float64"),
        (np.zeros(3, int), {"rank": 1}, SchemaError, r"of shape \(3,\)"),
        (
            np.zeros((1, 1), int),
            {"rank": 1, "pseudo_count": -1.0},
            pmf.PmfError,
            "pseudo_count is -1.0",
        ),
        (np.zeros((1, 1), int), {"rank": 1, "max_passes": -1}, pmf.PmfError, "max_passes is -1"),
        # few samples, of which runs to choose by have limits of their own
        (np.zeros((1, 2), int), {"rank": 2, "tol": -1.0}, pmf.PmfError, "tol is -1.0"),
        (
            np.zeros((1, 1), int),
            {"rank": 1, "validation": np.zeros((0, 1), int)},
            pmf.PmfError,
            "validation has no rows",
        ),
        (
            np.zeros((0, 1), int),
            {"rank": 1, "schema": pmf.Schema.from_cardinalities([2])},
            pmf.PmfError,
            "codes has no rows",
        ),
    ],
)
def test_fit_em__refuses(codes, arguments, error, message):
    with pytest.raises(error, match=message):
        pmf.fit_em(codes, **arguments)


def test_fit_em__refuses_a_model_and_a_rank(truth, codes):
    with pytest.raises(pmf.PmfError, match="model is given and rank is 2"):
        pmf.fit_em(codes, truth, rank=2)


def test_fit_em__samples_with_nothing_observed():
    result = pmf.fit_em(np.full((4, 2), -1), rank=1, schema=pmf.Schema.from_cardinalities([2, 3]))
    np.testing.assert_allclose(result.model.factors[:, 0], [1 / 2] * 2 + [1 / 3] * 3)


def test_fit_em__gaps_and_int16_codes():
    codes = make_codes(np.random.default_rng(4), 400, [200, 3], missing=0.5)
    result = pmf.fit_em(codes, rank=2, schema=pmf.Schema.from_cardinalities([200, 3]))
    assert np.all(np.diff(result.loss_history) <= 1e-12)


def test_fit_em__starts_and_pseudo_counts_are_compared_and_all_samples_fitted(codes):
    result = pmf.fit_em(codes[:300], rank=3, max_passes=2000)
    compared = [set(each.points[0].settings) for each in result.comparisons]
    assert compared[:2] == [{"start"}, {"pseudo_count"}]
    assert {point.settings["start"] for point in result.comparisons[0].points} == {
        "auto",
        "random",
        "search",
    }
    assert result.model.rank == 3
    again = pmf.fit_em(codes[:300], rank=3, max_passes=2000)
    assert np.array_equal(result.model.factors, again.model.factors)


def test_fit_em__a_given_pseudo_count_leaves_a_search_for_the_best_optimum(codes):
    result = pmf.fit_em(codes[:300], rank=3, pseudo_count=1.0, max_passes=2000)
    said = re.fullmatch(
        r"the best optimum of (\d+) starts, and of \d+ made of their fits, was found .* in \d+ passes",
        result.notes[-1],
    )
    assert said is not None
    assert int(said[1]) >= 4
    assert result.model.origin["best"] == int(said[1])


def test_fit_em__without_pseudo_counts_the_training_samples_decide(codes):
    """Samples of a level that no training sample has are impossible under every fit: they choose nothing."""
    few, impossible = codes[codes[:, 0] < 2][:60], codes[codes[:, 0] == 2]
    options: dict[str, Any] = {"rank": 4, "pseudo_count": 0.0, "max_passes": 2000}
    options["schema"] = pmf.Schema.from_cardinalities([3, 2, 4, 3])
    whole = pmf.fit_em(few, **options)
    assert whole.held_out == ()
    given = pmf.fit_em(few, validation=impossible, **options)
    assert given.held_out[0] < -100
    level = whole.model.log_prob(few).mean()
    for seed in range(10):
        one = pmf.fit_em(few, start="random", rng=seed, **options).model
        assert one.log_prob(few).mean() < level + 1e-3


@pytest.mark.filterwarnings("ignore::pmflib.core.errors.ConvergenceWarning")
def test_fit_em__method_names_what_ran(codes):
    counts = pmf.count_pairs(codes[:300], [3, 2, 4, 3])
    pairs = pmf.fit(counts, 3).method
    assert re.fullmatch(r"(symnmf|spa|random)\+opt", pairs)
    options: dict[str, Any] = {"rank": 3, "pseudo_count": 1.0, "max_passes": 2}
    several = pmf.fit_em(codes[:300], **options)
    assert re.fullmatch(r"(symnmf|spa|random)\+opt/merged/random\+em", several.method)
    assert several.model.origin["method"] == several.method
    assert pmf.fit_em(codes[:300], start="spa", **options | {"rank": 2}).method == "spa+em"


@pytest.mark.filterwarnings("ignore::pmflib.core.errors.ConvergenceWarning")
def test_fit_em__all_samples_are_fitted_in_the_end(codes):
    """What is held out to choose is not lost: the result is the fit of all samples under what was chosen."""
    few = codes[:400]
    options: dict[str, Any] = {"rank": 2, "start": "random", "rng": 5}
    chosen = pmf.fit_em(few, **options)
    assert len(chosen.held_out) > 1
    pseudo_count = chosen.model.origin["pseudo_count"]
    plain = pmf.fit_em(few, pseudo_count=pseudo_count, max_passes=5000, tol=1e-10, **options)
    assert plain.held_out == ()
    assert chosen.model.log_prob(few).mean() == pytest.approx(
        plain.model.log_prob(few).mean(), abs=1e-3
    )


def test_fit_em__few_samples_hold_nothing_out(codes):
    result = pmf.fit_em(codes[:20], rank=2, max_passes=2000)
    assert "nothing was held out: 20 samples are too few" in result.notes
    assert (result.held_out, result.model.origin["pseudo_count"]) == ((), DEFAULT_PSEUDO_COUNT)


def test_fit_em__plenty_of_samples_leave_nothing_to_choose(codes, monkeypatch):
    monkeypatch.setattr("pmflib.fitting.fit_specifications.PLENTY", 1)
    result = pmf.fit_em(codes, rank=2, max_passes=2000)
    assert any("observed cells leave nothing to choose" in note for note in result.notes)


def test_fit_em__pseudo_counts_are_chosen_on_the_validation_samples(codes):
    train, held_out = codes[:80], codes[1000:]
    given = pmf.fit_em(train, rank=6, validation=held_out, start="random", patience=5)
    fixed = {
        pseudo_count: max(
            pmf.fit_em(
                train,
                rank=6,
                validation=held_out,
                start="random",
                pseudo_count=pseudo_count,
                patience=5,
            ).held_out
        )
        for pseudo_count in FIT_SAMPLES
    }
    (compared,) = (each for each in given.comparisons if "pseudo_count" in each.points[0].settings)
    for point in compared.points:
        assert point.score == pytest.approx(fixed[float(point.settings["pseudo_count"])], rel=1e-12)
    # the largest within a standard error of the best
    near = [each for each in compared.points if each.below_best <= (each.error or 0)]
    largest = max(each.settings["pseudo_count"] for each in near)
    assert given.model.origin["pseudo_count"] == largest


def test_fit_em__target_is_what_held_out_samples_score_by(codes):
    train, held_out = codes[:80], codes[1000:1400]
    options = {"rank": 6, "validation": held_out, "start": "random", "patience": 5}
    result = pmf.fit_em(train, target="v2", **options)
    known = held_out[:, 2] >= 0
    chances = result.model.predict_proba(held_out[known], 2)
    score = np.log(chances[np.arange(known.sum()), held_out[known, 2]]).sum() / len(held_out)
    assert max(result.held_out) == pytest.approx(score, rel=1e-9)
    assert np.array_equal(
        result.model.factors, pmf.fit_em(train, target=2, **options).model.factors
    )
    assert "held out: log-likelihood of 'v2' given the other variables" in result.notes
    joint = pmf.fit_em(train, **options)
    assert not any("given the other variables" in note for note in joint.notes)
    assert max(joint.held_out) == pytest.approx(joint.model.log_prob(held_out).mean(), rel=1e-9)
    with pytest.raises(SchemaError, match="class"):
        pmf.fit_em(train, target="class", **options)


def test_fit_em__average_is_the_mean_of_its_members_probabilities(codes):
    train, held_out = codes[:300], codes[300:600]
    options = {"validation": held_out, "pseudo_count": 0.3, "start": "random", "rng": 4}
    result = pmf.fit_em(train, rank=4, members=3, **options)
    model = result.model
    assert (model.rank, model.origin["average"], model.origin["final"]) == (12, 3, True)
    members = [
        pmf.JointPMF(*each, model.schema) for each in split_members((model.prior, model.factors), 3)
    ]
    np.testing.assert_allclose(
        np.exp(model.log_prob(held_out)),
        np.mean([np.exp(member.log_prob(held_out)) for member in members], axis=0),
        rtol=1e-12,
    )
    assert model.log_prob(held_out).mean() == pytest.approx(max(result.held_out), rel=1e-12)
    assert result.best_pass == int(np.argmax(result.held_out))
    # the mean of probabilities is above the mean of logarithms
    assert max(result.held_out) > np.mean([each.log_prob(held_out).mean() for each in members])


def test_fit_em__average_of_all_samples_is_final(codes, tmp_path):
    model = pmf.fit_em(codes[:400], rank=2, members=2, max_passes=30).model
    assert model.rank == 4
    model.save(tmp_path / "model")
    for each in (model, pmf.JointPMF.load(tmp_path / "model")):
        with pytest.raises(pmf.PmfError, match="model is final, an average of 2 fits"):
            pmf.fit_em(codes, each)
    distilled = pmf.fit_em(model.sample(2000, rng=0), rank=2, validation=codes[400:600])
    assert distilled.model.rank == 2
    assert "final" not in distilled.model.origin


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rank": 2, "members": 0}, "members is 0; give at least 1"),
        ({"rank": 2, "members": 2, "start": "spa"}, "start is 'spa', which gives equal starts"),
        ({"members": 2}, "members is 2 and a model is given"),
    ],
)
def test_fit_em__refuses_members_that_cannot_differ(truth, codes, arguments, match):
    with pytest.raises(pmf.PmfError, match=match):
        pmf.fit_em(codes, None if "rank" in arguments else truth, **arguments)


def test_fit_em__nothing_observed_and_choices_to_make():
    schema = pmf.Schema.from_cardinalities([2, 3])
    result = pmf.fit_em(np.full((100, 2), -1), rank=2, schema=schema)
    np.testing.assert_allclose(result.model.factors[:, 0], [1 / 2] * 2 + [1 / 3] * 3, rtol=0.5)
    assert np.isfinite(result.model.factors).all()


def test_fit_em__rank_above_the_samples_warns_before_it_computes():
    table = {"a": ["x", "y", "x"], "b": ["u", "u", "v"]}
    with pytest.warns(pmf.RankWarning, match="rank is 5, above the 3 samples"):
        pmf.fit_em(table, rank=5, max_passes=0, start="random", pseudo_count=1.0)
    counts = pmf.count_pairs(table, pmf.Schema.infer(table))
    with pytest.warns(pmf.RankWarning, match="above the 3 samples"):
        pmf.fit(counts, 4, method="random")


def test_fit_em__rank_of_numpy(codes):
    schema = pmf.Schema.from_cardinalities([3, 2, 4, 3])
    options: dict[str, Any] = {"schema": schema, "pseudo_count": 1.0}
    ranks: list[Any] = [2, np.int64(2)]
    one, other = (pmf.fit_em(codes[:200], rank=each, **options) for each in ranks)
    assert np.array_equal(one.model.factors, other.model.factors)


@pytest.mark.parametrize(
    "options", [{}, {"pseudo_count": 1.0}, {"validation": True}, {"members": 2}]
)
def test_fit_em__no_pass_is_made_where_none_is_allowed(codes, options):
    given: dict[str, Any] = dict(options)
    if "validation" in given:
        given["validation"] = codes[300:400]
    heard: list[str] = []
    schema = pmf.Schema.from_cardinalities([3, 2, 4, 3])
    result = pmf.fit_em(
        codes[:300],
        rank=3,
        schema=schema,
        max_passes=0,
        on_pass=lambda name, state: heard.append(name),
        **given,
    )
    assert (result.best_pass, result.loss_history, heard) == (0, (), [])


def test_fit_em__dependence_that_cannot_be_compared_is_said(codes):
    schema = pmf.Schema.from_cardinalities([3, 2, 4, 3])
    result = pmf.fit_em(codes[:15], rank="auto", schema=schema, dependence="auto")
    assert any(note.startswith("dependence none: ") for note in result.notes)
