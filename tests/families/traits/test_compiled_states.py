import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, StoreError
from pmflib.families.traits import TraitPMF, compile_states
from pmflib.model import ModelOrigin, digest_model
from pmflib_tasks.gate import compare_hidden
from pmflib_tasks.questions import answer_questions
from pmflib_tasks.stages import choose_hidden, score_hidden
from tests.families.traits.planted_traits import draw_samples, make_schema, plant_traits, traits_of


@pytest.fixture(scope="module")
def planted():
    truth = plant_traits([4] * 10, 2, 1)
    codes, _ = draw_samples(truth, 200, 2, missing=0.2)
    return truth, codes


def test_compile_states__are_the_people(planted):
    truth, codes = planted
    model = compile_states(truth, DenseBlock(codes), 200, 0)
    expected = truth.find_factors(truth.score_traits(codes).scores)
    assert model.prior == pytest.approx(1 / 200)
    assert np.sort(model.factors[0]) == pytest.approx(np.sort(expected[0]), abs=1e-6)
    # of fewer states than people, some of them; of more, other points
    few, many = (compile_states(truth, DenseBlock(codes), n, 0) for n in (30, 500))
    assert np.isin(few.factors[0].round(6), expected[0].round(6)).all()
    assert np.unique(many.factors[0]).size > 400


def test_compile_states__of_nobody_are_the_prior():
    truth = plant_traits([3, 3], 1, 3)
    nobody = DenseBlock(np.full((2, 2), -1, np.int8))
    model = compile_states(truth, nobody, 4000, 0)
    expected = truth.predict_proba(nobody.codes, 0)[0]
    assert model.marginal(["v0"]) == pytest.approx(expected, abs=0.02)
    with pytest.raises(pmf.PmfError, match="n_states"):
        compile_states(truth, nobody, 0, 0)


def test_predictions__fold_rows_in(planted):
    truth, codes = planted
    model = compile_states(truth, DenseBlock(codes), 100, 0)
    assert np.array_equal(model.predict_proba(codes, 3), truth.predict_proba(codes, 3))
    expected = truth.predict_proba(codes, 3) @ np.arange(4.0)
    assert model.expected_value(codes, 3) == pytest.approx(expected)
    filled = model.complete(codes)
    assert (filled >= 0).all()
    assert np.array_equal(filled[codes >= 0], codes[codes >= 0])
    row = int(np.flatnonzero(codes[:, 3] < 0)[0])
    assert filled[row, 3] == truth.predict_proba(codes, 3)[row].argmax()


def test_score_hidden__folds_rows_in(planted):
    truth, codes = planted
    model = compile_states(truth, DenseBlock(codes), 100, 0)
    hidden = choose_hidden(codes, np.arange(200), 0.3, 5)
    baseline = np.full(40, 0.25)
    scores = score_hidden(codes, hidden, model, baseline)
    left = np.where(hidden, -1, codes).astype(np.int8)
    cells = np.nonzero(hidden)
    chances = truth.predict_cells(DenseBlock(left), *cells)
    own = chances[np.arange(cells[0].size), codes[cells]]
    assert scores.sums[:, 1].sum() == pytest.approx(np.log(own).sum())
    assert scores.sums[:, 0].sum() == hidden.sum()


def test_answers_and_gates__fold_rows_in(planted):
    truth, codes = planted
    model = compile_states(truth, DenseBlock(codes), 100, 0)
    variables = np.arange(len(codes)) % 10
    truths = codes[np.arange(len(codes)), variables].astype(np.int64)
    answers = answer_questions(codes, variables, truths, model)
    expected = truth.predict_proba(codes, 3) @ np.arange(4.0)
    assert answers["expected"].to_numpy()[variables == 3] == pytest.approx(expected[variables == 3])
    rounds = np.where((np.arange(10) == 3) & (codes >= 0), 0, 1)
    alone = pmf.JointPMF(model.prior, model.factors, model.schema)
    sums = compare_hidden(codes, rounds, 1, model, alone)
    own = codes[:, 3] >= 0
    gains = [
        np.log(each.predict_proba(codes, 3)[own, codes[own, 3]]).sum() for each in (model, alone)
    ]
    assert sums[2] == pytest.approx(gains[0] - gains[1])


def test_traits__of_a_model_without_them_are_refused():
    model = pmf.JointPMF(np.ones(1), np.full((4, 1), 0.5), make_schema([2, 2]))
    with pytest.raises(pmf.PmfError, match="traits"):
        model.traits(np.zeros((1, 2), np.int8))


def test_traits__of_another_schema_are_refused(planted):
    with pytest.raises(pmf.PmfError, match="schema"):
        TraitPMF(np.ones(1), np.full((4, 1), 0.5), make_schema([2, 2]), trait_model=planted[0])


def test_save__keeps_the_traits(planted, tmp_path):
    truth, codes = planted
    model = compile_states(truth, DenseBlock(codes), 20, 0, ModelOrigin("traits"))
    model.save(tmp_path / "model")
    read = pmf.JointPMF.load(tmp_path / "model")
    assert np.array_equal(traits_of(read).slopes, truth.slopes)
    assert np.array_equal(read.traits(codes).errors, model.traits(codes).errors)
    assert digest_model(read) == digest_model(model)
    bare = pmf.JointPMF(model.prior, model.factors, model.schema)
    assert digest_model(bare) != digest_model(model)
    bare.save(tmp_path / "bare")
    assert type(pmf.JointPMF.load(tmp_path / "bare")) is pmf.JointPMF


def test_load__of_lost_traits_is_refused(planted, tmp_path):
    truth, codes = planted
    compile_states(truth, DenseBlock(codes), 20, 0).save(tmp_path / "model")
    for path in sorted((tmp_path / "model" / "trait_base" / "c").rglob("*")):
        if path.is_file():
            path.unlink()
    with pytest.raises(StoreError):
        pmf.JointPMF.load(tmp_path / "model")
