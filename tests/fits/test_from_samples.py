import re
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import FIT_SAMPLES, SchemaError
from pmflib.em import split_members

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
    with pytest.warns(pmf.errors.ConvergenceWarning, match="max_passes"):
        result = pmf.fit_em(codes, rank=2, max_passes=1)
    assert not result.converged
    # the warning points at the line that called
    with pytest.warns(pmf.errors.ConvergenceWarning) as caught:
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


@pytest.mark.needs("surveys.drafting")
def test_fit_em__tables_are_encoded():
    table = {"a": ["x", "y", "x", None] * 5, "b": [1, 2, 1, 2] * 5}
    result = pmf.fit_em(table, rank=1)
    assert result.model.schema.names == ("a", "b")
    held_out = {"a": ["x", "y"], "b": [1, None]}
    start = result.model
    assert len(pmf.fit_em(table, start, validation=held_out, patience=1).held_out) >= 2


def test_fit_em__reads_levels_off_the_samples():
    # in 8 bits, in which 127 + 1 overflows
    codes = np.stack([np.arange(128), np.full(128, -1)], axis=1).astype(np.int8)
    result = pmf.fit_em(codes, rank=1, max_passes=0)
    assert result.model.schema.cardinalities.tolist() == [128, 1]


DRAFTING = pytest.mark.needs("surveys.drafting")
NOTHING, ONE_CELL = np.zeros((0, 1), int), np.zeros((1, 1), int)
NO_ROWS: dict[str, Any] = {"rank": 1, "schema": pmf.Schema.from_cardinalities([2])}


@pytest.mark.parametrize(
    ("codes", "arguments", "named"),
    [
        (ONE_CELL, {"members": 2}, "rank"),
        pytest.param(np.zeros((0, 2), int), {"rank": 1}, "array", marks=DRAFTING),
        pytest.param(
            np.array([[0.0, np.nan]]), {"rank": 1}, "column 1 of the array", marks=DRAFTING
        ),
        pytest.param(np.zeros(3, int), {"rank": 1}, "array", marks=DRAFTING),
        (ONE_CELL, {"rank": 1, "pseudo_count": -1.0}, "pseudo_count"),
        (ONE_CELL, {"rank": 1, "max_passes": -1}, "max_passes"),
        # few samples, of which runs to choose by have limits of their own
        (np.zeros((1, 2), int), {"rank": 2, "tol": -1.0}, "tol"),
        (ONE_CELL, {"rank": 1, "validation": NOTHING}, "validation"),
        (NOTHING, NO_ROWS, "codes"),
    ],
)
def test_fit_em__refuses(codes, arguments, named):
    with pytest.raises(pmf.PmfError, match=named):
        pmf.fit_em(codes, **arguments)


def test_fit_em__refuses_a_model_and_a_rank(truth, codes):
    with pytest.raises(pmf.PmfError, match="model"):
        pmf.fit_em(codes, truth, rank=2)


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
    assert int(str(result.model.origin["best"])) >= 4


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
    for seed in range(5):
        one = pmf.fit_em(few, start="random", rng=seed, **options).model
        assert one.log_prob(few).mean() < level + 1e-3


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_fit_em__method_names_what_ran(codes):
    counts = pmf.count_pairs(codes[:300], [3, 2, 4, 3])
    pairs = pmf.fit(counts, 3).method
    assert re.fullmatch(r"(symnmf|spa|random)\+opt", pairs)
    options: dict[str, Any] = {"rank": 3, "pseudo_count": 1.0, "max_passes": 2}
    several = pmf.fit_em(codes[:300], **options)
    assert re.fullmatch(r"(symnmf|spa|random)\+opt/merged/random\+em", several.method)
    assert several.model.origin["method"] == several.method
    assert pmf.fit_em(codes[:300], start="spa", **options | {"rank": 2}).method == "spa+em"


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
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
    joint = pmf.fit_em(train, **options)
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
        with pytest.raises(pmf.PmfError, match="model"):
            pmf.fit_em(codes, each)
    distilled = pmf.fit_em(model.sample(2000, rng=0), rank=2, validation=codes[400:600])
    assert distilled.model.rank == 2
    assert "final" not in distilled.model.origin


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rank": 2, "members": 0}, "members"),
        ({"rank": 2, "members": 2, "start": "spa"}, "start"),
        ({"members": 2}, "members"),
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
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("u", "v"))))
    with pytest.warns(pmf.errors.RankWarning, match="rank"):
        pmf.fit_em(table, rank=5, schema=schema, max_passes=0, start="random", pseudo_count=1.0)
    counts = pmf.count_pairs(table, schema)
    with pytest.warns(pmf.errors.RankWarning, match="rank"):
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


@pytest.mark.parametrize("rank", ["auto", 1])
def test_fit_em__one_variable_has_its_counted_shares(rank):
    schema = pmf.Schema.from_cardinalities([3])
    for seed in range(5):
        codes = np.random.default_rng(seed).integers(0, 3, (200, 1))
        model = pmf.fit_em(codes, rank=rank, schema=schema, rng=seed).model
        counted = np.bincount(codes[:, 0], minlength=3) / 200
        np.testing.assert_allclose(model.predict_proba(np.array([[-1]]), 0)[0], counted, atol=5e-5)


def test_fit_em__one_variable_of_two_rows_has_their_levels_alike():
    schema = pmf.Schema.from_cardinalities([3])
    model = pmf.fit_em(np.array([[0], [2]]), rank="auto", schema=schema).model
    shares = model.predict_proba(np.array([[-1]]), 0)[0]
    assert shares[0] == pytest.approx(shares[2])
    assert shares[0] > 0.4
