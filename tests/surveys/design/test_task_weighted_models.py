"""Forests, traits, targets and imputation of pipelines whose samples have weights."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.em import StoredSamples
from pmflib.families.forests import TreePMF
from pmflib.inference.imputation import fit_resampled
from pmflib_tasks.imputation import make_imputer
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from pmflib_tasks.stages.select import select
from pmflib_tasks.traits.choose import choose
from pmflib_tasks.traits.fit_traits import fit_traits
from tests.pipelines import as_wide, load_model, make_schema, store_of, summary_of
from tests.surveys.design.test_task_weights import write_weighted

SIZES = [3, 3, 3, 2, 4]
FOLDS = {"folds": 4}


def draw(n_rows, seed):
    """Codes of which one variable follows another within states; those of one state weigh more."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 2, n_rows)
    codes = np.stack([(rng.random(n_rows) * n).astype(int) for n in SIZES], axis=1)
    for variable, n in enumerate(SIZES):
        held = rng.random(n_rows) < 0.6
        codes[held, variable] = np.where(state == 1, n - 1, 0)[held]
    follows = rng.random(n_rows) < 0.7
    codes[follows, 1] = codes[follows, 2]
    codes[rng.random(codes.shape) < 0.1] = -1
    weights = np.where(state == 1, 3.0, 1.0) * rng.uniform(0.5, 1.5, n_rows).round(3)
    return codes, weights


def write(tmp_path, codes, weights):
    path = tmp_path / "data" / "a.csv"
    if weights is None:
        path.write_text(as_wide(codes))
    else:
        write_weighted(path, codes, weights)


def fit_pipeline(config, workers):
    """Model and references, by traits where the configuration has them."""
    dataset = ingest.fn(config, workers)
    if config.has_traits:
        stages = {"dataset": dataset, "model": fit_traits.fn(config, dataset, address=workers)}
    else:
        counts = count.fn(config, dataset, workers)
        start = fit.fn(config, counts)
        model = refine.fn(config, dataset, counts, start, workers)
        stages = {"dataset": dataset, "counts": counts, "model": model}
    return load_model(config, stages["model"]), stages


def open_samples(config, dataset, schema, folds):
    store = store_of(config)
    return StoredSamples.open(store, dataset, schema, folds)


TREE = {"model": {"rank": 2, "dependence": "tree"}, "em": {"max_passes": 30, "pseudo_count": 0.5}}
TRAITS = {"model": {"rank": 20, "method": "traits"}}
TARGET = {"model": {"rank": 3}, "em": {"max_passes": 30, "target": "v0"}}


def list_arrays(model):
    if isinstance(model, TreePMF):
        return model.prior, model.tables, model.forest.parents
    return model.prior, model.factors


@pytest.mark.parametrize("sections", [TREE, TRAITS, TARGET], ids=["forests", "traits", "target"])
def test_equal_weights_are_no_weights(sections, pipeline, tmp_path, workers):
    codes, weights = draw(240, 1)
    found = []
    for given in (np.full(240, 2.5), None, weights):
        config = pipeline(make_schema(*SIZES), {} if given is None else {"weight": "w"}, **sections)
        write(tmp_path, codes, given)
        found.append(fit_pipeline(config, workers)[0])
    equal, plain, weighted = map(list_arrays, found)
    assert all((one == other).all() for one, other in zip(equal, plain, strict=True))
    assert (weighted[0] != plain[0]).any()


def test_refine__weighted_forests_are_those_of_samples_in_memory(pipeline, tmp_path, workers):
    codes, weights = draw(700, 2)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **TREE)
    write(tmp_path, codes, weights)
    model, stages = fit_pipeline(config, workers)
    assert isinstance(model, TreePMF)
    training = open_samples(config, stages["dataset"], model.schema, config.fold_split.train)
    block, scale = training.read_block(), weights.sum() ** 2 / (weights**2).sum()
    stored = pmf.fit_em(training, model, pseudo_count=0.5, max_passes=400, tol=1e-9)
    ones = block.weights / block.weights.mean()
    memory = pmf.fit_em(block.codes, model, weight=ones, pseudo_count=0.5, max_passes=400, tol=1e-9)
    assert any("are worth" in note for note in stored.notes)
    assert training.n_samples < 0.9 * training.n_rows
    assert abs(training.n_samples - len(block) / 700 * scale) < 40
    (prior, tables, parents), expected = list_arrays(stored.model), list_arrays(memory.model)
    assert (parents == expected[2]).all()
    assert np.abs(tables - expected[1]).max() < 1e-5
    assert np.abs(prior - expected[0]).max() < 1e-5
    # that of rows alike is another one
    alike = pmf.fit_em(block.codes, model, pseudo_count=0.5, max_passes=400, tol=1e-9)
    assert np.abs(alike.model.prior - stored.model.prior).max() > 0.05


def test_fit_traits__weighted_traits_are_those_of_samples_in_memory(pipeline, tmp_path, workers):
    codes, weights = draw(400, 3)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **TRAITS)
    write(tmp_path, codes, weights)
    model, stages = fit_pipeline(config, workers)
    training = open_samples(config, stages["dataset"], model.schema, config.fold_split.train)
    block = training.read_block()
    settings = {name: model.origin[name] for name in ("dimensions", "shrinkage", "passes")}
    ones = block.weights / block.weights.mean()
    memory = pmf.families.fit_traits(
        block.codes, model.schema, n_states=20, weight=ones, **settings
    ).model
    # states are people, drawn by their positions, with their weights
    assert np.abs(model.prior - memory.prior).max() < 1e-6
    assert np.abs(model.factors - memory.factors).max() < 1e-6
    assert model.prior.max() > 2 * model.prior.min()


def test_choices_of_ranks_have_weights(pipeline, tmp_path, workers):
    codes, weights = draw(250, 4)
    sections = {"model": {"rank": "auto"}, "em": {"max_passes": 20}}
    found = []
    for given in (np.full(250, 7), weights):
        config = pipeline(make_schema(*SIZES), {"weight": "w"}, **sections)
        write(tmp_path, codes, given)
        dataset = ingest.fn(config, workers)
        chosen = select.fn(config, dataset, count.fn(config, dataset, workers), workers)
        found.append(summary_of(config, chosen))
    equal, weighted = found
    assert weighted["comparisons"] != equal["comparisons"]


def test_choose__traits_and_classes_are_compared_with_weights(pipeline, tmp_path, workers):
    codes, weights = draw(300, 5)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, model={"rank": 2, "method": "compare"})
    write(tmp_path, codes, weights)
    classes, stages = fit_pipeline(config, workers)
    traits = fit_traits.fn(config, stages["dataset"], address=workers)
    chosen = choose.fn(config, stages["dataset"], stages["model"], traits, "", workers)
    choice = summary_of(config, chosen)["choice"]
    validation = open_samples(
        config, stages["dataset"], classes.schema, config.fold_split.validation
    )
    assert choice["samples"] <= round(validation.n_samples) < validation.n_rows


def test_evaluate__a_target_is_predicted_with_weights(pipeline, tmp_path, workers):
    codes, weights = draw(600, 6)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **TARGET)
    write(tmp_path, codes, weights)
    model, stages = fit_pipeline(config, workers)
    scores = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    tested = open_samples(
        config, stages["dataset"], model.schema, config.fold_split.test
    ).read_block()
    known = tested.codes[:, 0] >= 0
    pmfs, truth = model.predict_proba(tested.codes[known], 0), tested.codes[known, 0]
    right = pmfs.argmax(axis=1) == truth
    found = summary_of(config, scores)["target"]
    assert found["rows"] == known.sum()
    assert found["scores"]["model"]["accuracy"]["value"] == pytest.approx(
        np.average(right, weights=tested.weights[known])
    )


def test_impute__draws_are_of_fits_to_weighted_samples(pipeline, tmp_path, workers):
    codes, weights = draw(400, 7)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, em={"max_passes": 30})
    write(tmp_path, codes, weights)
    model, stages = fit_pipeline(config, workers)
    training = open_samples(config, stages["dataset"], model.schema, config.fold_split.train)
    imputer = make_imputer(model, training, 3, 0)
    block = training.read_block()
    again = fit_resampled(model, DenseBlock(block.codes, block.weights), 3, 0)
    alike = fit_resampled(model, DenseBlock(block.codes), 3, 0)
    for drawn, one, other in zip(imputer._draw_models, again, alike, strict=True):
        assert (drawn.prior == one.prior).all()
        assert (drawn.prior != other.prior).any()
    assert imputer.score(block.codes)[0].num_rows == 3 * len(block)
