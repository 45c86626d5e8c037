from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, SchemaError, SparseBlock
from pmflib.families.traits import TraitModel
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.passes import PassModel, TraitSums, sum_traits
from tests.families.traits.planted_traits import draw_samples, make_schema, plant_traits, traits_of

QUICK: dict[str, Any] = {"dimensions": 1, "shrinkage": 1.0, "passes": 10, "n_states": 50}


def find_angle(found, true):
    """Largest angle, radians, by which directions of slopes, centred by variable, are off those of the truth."""
    orthonormal = [np.linalg.qr(each)[0] for each in (found, true)]
    least = np.linalg.svd(orthonormal[0].T @ orthonormal[1])[1].min()
    return np.arccos(min(least, 1.0))


def centre(model):
    offsets = model.schema.offsets
    means = np.add.reduceat(model.slopes, offsets[:-1]) / np.diff(offsets)[:, None]
    return model.slopes - np.repeat(means, np.diff(offsets), axis=0)


def test_fit_traits__recovers_planted_directions_and_likelihood():
    truth = plant_traits([4] * 20, 2, 1)
    codes, traits = draw_samples(truth, 3000, 2, missing=0.3)
    test, _ = draw_samples(truth, 500, 3, missing=0.3)
    result = pmf.families.fit_traits(
        codes, truth.schema, dimensions=2, shrinkage=1.0, passes=40, n_states=100
    )
    fitted = traits_of(result.model)
    # both of the planted directions are among those of the biases and the dimensions
    assert find_angle(centre(fitted), centre(truth)) < 0.15
    lost = truth.log_prob(test).mean() - fitted.log_prob(test).mean()
    assert -0.02 < lost < 0.08
    scores = result.model.traits(codes).scores
    explained = scores @ np.linalg.lstsq(scores, traits, rcond=None)[0]
    assert all(np.corrcoef(explained[:, f], traits[:, f])[0, 1] > 0.85 for f in range(2))


def test_fit_traits__recovers_nominal_levels():
    truth = plant_traits([3] * 16, 1, 4, nominal=range(16))
    codes, traits = draw_samples(truth, 2000, 5)
    result = pmf.families.fit_traits(
        codes, truth.schema, dimensions=1, shrinkage=1.0, passes=40, n_states=50
    )
    assert traits_of(result.model).n_traits == 1
    scores = result.model.traits(codes)
    correlation = np.corrcoef(scores.scores[:, 0], traits[:, 0])[0, 1]
    # the truth itself has .90
    assert abs(correlation) > 0.88
    # standard errors are what scores are off
    off = np.sign(correlation) * scores.scores[:, 0] - traits[:, 0]
    assert np.sqrt(np.mean(scores.errors**2)) == pytest.approx(off.std(), rel=0.1)


def test_fit_traits__chooses_by_held_out_cells():
    truth = plant_traits([5] * 12, 1, 6)
    codes, _ = draw_samples(truth, 400, 7, missing=0.2)
    result = pmf.families.fit_traits(codes, truth.schema)
    assert [each.unit for each in result.comparisons] == ["cell", "cell"]
    settings = result.model.origin
    assert settings["dimensions"] <= 4
    assert result.model.rank in (100, 300, 1000)
    alone = {each.settings["dimensions"]: each.score for each in result.comparisons[0].points}
    assert max(alone.values()) == alone[settings["dimensions"]] or settings["shrinkage"] != 0.9


def test_fit_traits__predicts_held_out_cells_nearly_as_the_truth():
    truth = plant_traits([5] * 30, 2, 8, size=0.5)
    codes, _ = draw_samples(truth, 800, 9, missing=0.5)
    whole, _ = draw_samples(truth, 800, 9)
    hidden = codes < 0
    model = pmf.families.fit_traits(
        codes, truth.schema, dimensions=2, passes=20, n_states=300
    ).model
    cells = np.nonzero(hidden)
    own = np.arange(cells[0].size), whole[cells]
    fitted, known = (
        np.log(each.predict_cells(DenseBlock(codes), *cells)[own]).mean()
        for each in (traits_of(model), truth)
    )
    assert known - fitted < 0.03
    # the states alone say nearly the same
    posteriors = model.posterior(codes)
    states = [
        np.log((posteriors[hidden[:, j]] * model.factor(j)[whole[hidden[:, j], j]]).sum(axis=1))
        for j in range(30)
    ]
    assert fitted - np.concatenate(states).mean() < 0.02


@pytest.mark.parametrize("cardinalities", [[1, 3], [2, 2], [5, 1, 1], [1], [3]])
def test_fit_traits__of_few_variables_and_levels(cardinalities):
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(size, size=30) for size in cardinalities], axis=1)
    for nominal in ((), range(len(cardinalities))):
        model = pmf.families.fit_traits(codes, make_schema(cardinalities, nominal)).model
        assert np.isfinite(model.log_prob(codes)).all()
        chances = model.predict_proba(codes, 0)
        assert chances.mean(axis=0) == pytest.approx(
            np.bincount(codes[:, 0], minlength=cardinalities[0]) / 30, abs=0.12
        )


def test_fit_traits__of_many_nominal_levels():
    truth = plant_traits([12] * 8, 1, 10, nominal=range(8))
    codes, _ = draw_samples(truth, 1500, 11)
    model = pmf.families.fit_traits(codes, truth.schema, **QUICK | {"passes": 30}).model
    scores, known = model.traits(codes).scores[:, 0], truth.score_traits(codes).scores[:, 0]
    assert abs(np.corrcoef(scores, known)[0, 1]) > 0.98


def test_fit_traits__of_variables_and_rows_never_observed():
    truth = plant_traits([3] * 5, 1, 12)
    codes, _ = draw_samples(truth, 100, 13)
    codes[:, 2] = -1
    codes[::4] = -1
    model = pmf.families.fit_traits(codes, truth.schema, **QUICK).model
    assert model.predict_proba(codes, 2).sum(axis=1) == pytest.approx(1)
    assert np.isfinite(model.factors).all()
    nothing = pmf.families.fit_traits(np.full((3, 5), -1, np.int8), truth.schema)
    assert nothing.model.log_prob(codes[1:2])[0] < 0


def test_fit_traits__of_level_indices_is_that_of_codes():
    truth = plant_traits([4] * 6, 1, 14)
    codes, _ = draw_samples(truth, 80, 15, missing=0.4)
    by_codes = pmf.families.fit_traits(codes, truth.schema, **QUICK).model
    block = DenseBlock(codes).to_sparse(truth.schema.offsets)
    by_block = pmf.families.fit_traits(block, truth.schema, **QUICK).model
    assert np.array_equal(by_codes.factors, by_block.factors)


def test_fit_traits__weights_are_repeated_rows():
    truth = plant_traits([4] * 6, 1, 16)
    codes, _ = draw_samples(truth, 60, 17)
    block = DenseBlock(codes).to_sparse(truth.schema.offsets)
    twice = SparseBlock(block.indptr, block.indices, np.full(60, 2.0))
    options = QUICK | {"passes": 12}
    weighted = traits_of(pmf.families.fit_traits(twice, truth.schema, **options).model)
    again = pmf.families.fit_traits(np.repeat(codes, 2, axis=0), truth.schema, **options)
    repeated = traits_of(again.model)
    assert weighted.base == pytest.approx(repeated.base, abs=1e-6)
    assert weighted.slopes == pytest.approx(repeated.slopes, abs=1e-6)


def test_fit_traits__of_a_table_infers_the_schema():
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=200)
    table = {
        name: np.where(rng.random(200) < 0.9, side, 1 - side).tolist() for name in ("a", "b", "c")
    }
    model = pmf.families.fit_traits(table, **QUICK).model
    assert model.schema.names == ("a", "b", "c")
    assert model.predict({"b": [1], "c": [1]}, "a").tolist() == [1]


def test_fit_traits__same_seed_same_bits_whatever_the_blocks_are_worked_on_by(monkeypatch):
    truth = plant_traits([4] * 8, 2, 18)
    codes, _ = draw_samples(truth, 300, 19, missing=0.2)
    monkeypatch.setattr("pmflib.families.traits.samples.BLOCK_CELLS", 200)
    models = []
    for n_threads in (1, 4):
        monkeypatch.setattr("pmflib.em.block_source.count_processors", lambda n=n_threads: n)
        models.append(
            pmf.families.fit_traits(codes, truth.schema, passes=8, n_states=100, rng=3).model
        )
    assert np.array_equal(models[0].factors, models[1].factors)
    assert np.array_equal(traits_of(models[0]).slopes, traits_of(models[1]).slopes)
    other = pmf.families.fit_traits(codes, truth.schema, passes=8, n_states=100, rng=4).model
    assert not np.array_equal(models[0].factors, other.factors)


def test_trait_sums__are_additive():
    truth = plant_traits([4, 3, 2], 2, 20, nominal=(1,))
    codes, _ = draw_samples(truth, 60, 21, missing=0.3)
    block = DenseBlock(codes).to_sparse(truth.schema.offsets)
    counts = np.bincount(block.indices, minlength=9).astype(float)
    scores = LevelScores.make(truth.schema, counts)
    values = np.random.default_rng(0).normal(0, 0.5, (scores.kinds.size, 3))

    def add(start, stop):
        return sum_traits([block.cut(start, stop)], PassModel(scores, values))

    whole, parts = add(0, 60), TraitSums.merge([add(0, 7), add(7, 7), add(7, 60)])
    for name in ("gradients", "curvatures", "moments", "log_likelihood"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))


@pytest.mark.parametrize("nominal", [(), range(8)])
def test_trait_sums__gradient_vanishes_at_the_truth(nominal):
    schema = make_schema([4] * 8, nominal)
    scores = LevelScores.make(schema, np.ones(32))
    rng = np.random.default_rng(22)
    values = rng.normal(0, 0.6, (scores.kinds.size, 2))
    truth = TraitModel(schema, *scores.spread(values), np.zeros(1), np.eye(1))
    codes, _ = draw_samples(truth, 20_000, 23)
    block = DenseBlock(codes).to_sparse(schema.offsets)
    at_truth = sum_traits([block], PassModel(scores, values))
    off = sum_traits([block], PassModel(scores, values * 1.1))
    errors = np.abs(at_truth.gradients).max() / 20_000
    assert errors < 0.02
    assert np.abs(off.gradients).max() / 20_000 > 1.5 * errors
    assert at_truth.log_likelihood > off.log_likelihood
    # a person's traits are those of the fold-in
    folded = truth.score_traits(codes)
    assert at_truth.moments[1] == pytest.approx(folded.scores.sum(), abs=20)
    assert at_truth.log_likelihood == pytest.approx(truth.log_prob(codes).sum(), rel=1e-4)


def test_fit_traits__refuses_what_it_cannot_fit():
    codes = np.zeros((4, 2), np.int8)
    with pytest.raises(pmf.PmfError, match="samples"):
        pmf.families.fit_traits(codes[:0], make_schema([2, 2]))
    with pytest.raises(pmf.PmfError, match="dimensions"):
        pmf.families.fit_traits(codes, make_schema([2, 2]), dimensions=-1)
    with pytest.raises(pmf.PmfError, match="shrinkage"):
        pmf.families.fit_traits(codes, make_schema([2, 2]), shrinkage=1.5)
    with pytest.raises(pmf.PmfError, match="n_states"):
        pmf.families.fit_traits(codes, make_schema([2, 2]), n_states="many")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="Schema"):
        pmf.families.fit_traits(codes, [2, 2])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="schema"):
        pmf.families.fit_traits(DenseBlock(codes).to_sparse(np.array([0, 2, 4])))


@pytest.mark.parametrize("fit", [pmf.families.fit_traits, pmf.families.fit_item_responses])
def test_criteria_of_a_weighted_fit_are_refused_without_the_weights(fit):
    codes = np.random.default_rng(0).integers(0, 2, (60, 3))
    options = {} if fit is pmf.families.fit_item_responses else {"dimensions": 1, "n_states": 3}
    schema = pmf.Schema.from_cardinalities([2, 2, 2])
    result = fit(codes, schema=schema, weight=np.arange(1.0, 61.0), **options)
    assert result.model.origin["n_effective"] == pytest.approx(45, abs=1)
    with pytest.raises(pmf.PmfError, match=r"without weights.*result\.training"):
        result.criteria(codes)
    assert "n_effective" not in fit(codes, schema=schema, **options).model.origin
