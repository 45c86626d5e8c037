"""Continuous traits or latent classes in a pipeline: what predicts hidden answers better, and why."""

import json
import shutil

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import ConfigError
from pmflib.store import Store, find_last_run
from pmflib_flows.etl import etl
from pmflib_tasks.config import load_config
from tests.families.traits.planted_traits import draw_samples, plant_traits
from tests.pipelines import as_wide, load_model, make_schema, store_of

TOML = """
[source]
path = "data"
layout = "wide"

[schema]
file = "schema.json"

[store]
path = "store"

[evaluate]
validation_folds = 3

[model]
method = "compare"
rank = 2
{more}
"""

SIZES = [5] * 8


def draw_by_degree(n_rows, seed=1):
    """Ratings of people who differ by degree on two traits."""
    return draw_samples(plant_traits(SIZES, 2, 0), n_rows, seed, missing=0.3)[0]


def draw_by_kind(n_rows, seed=1):
    """Ratings of two kinds of people: each gives two ratings of a movie, which are no neighbours."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, (n_rows, 1))
    likely = np.array([[0, 3], [1, 4]])[kind[:, 0]]
    drawn = rng.integers(0, 2, (n_rows, len(SIZES)))
    codes = np.take_along_axis(likely, drawn, axis=1)
    codes[rng.random(codes.shape) < 0.3] = -1
    return codes


def write_pipeline(folder, *nights, more=""):
    (folder / "data").mkdir(parents=True)
    for number, codes in enumerate(nights):
        deliver(folder, codes, number)
    make_schema(*SIZES).save(folder / "schema.json")
    path = folder / "pipeline.toml"
    path.write_text(TOML.format(more=more))
    return path


def deliver(folder, codes, number):
    (folder / "data" / f"{number}.csv").write_text(as_wide(codes))


@pytest.fixture(scope="module")
def by_degree(tmp_path_factory):
    """Folder of a pipeline after its first night, and the facts of that run."""
    folder = tmp_path_factory.mktemp("by degree")
    return folder, etl.fn(str(write_pipeline(folder, draw_by_degree(600))))


@pytest.fixture
def first_night(by_degree, tmp_path):
    """Configuration file of a copy of it, and the facts of its run."""
    shutil.copytree(by_degree[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "pipeline.toml", by_degree[1]


def find_record(path):
    config = load_config(path)
    return find_last_run(store_of(config), config.name)


def test_choose__traits_where_people_differ_by_degree(first_night):
    path, facts = first_night
    choice = facts["model"]["choice"]
    assert choice["chosen"] == "traits"
    assert choice["gain"] > choice["standard_error"] > 0
    assert facts["model"]["notes"][0] == choice["reason"]
    model = pmf.JointPMF.load(facts["live"])
    assert model.kind == "traits"
    assert model.origin["choice"] == choice
    record = find_record(path)
    assert record.facts["model"]["choice"] == choice
    assert {"classes", "traits", "model"} <= set(record.stages)
    assert not {"start", "rank"} & set(record.stages)
    # a second run finds all of it
    again = etl.fn(str(path))
    assert (again["refit"]["way"], again["outcome"]) == ("same", "unchanged")
    assert find_record(path).stages["model"] == record.stages["model"]


def test_choose__classes_where_people_are_of_kinds(tmp_path):
    path = write_pipeline(tmp_path, draw_by_kind(600))
    facts = etl.fn(str(path))
    choice = facts["model"]["choice"]
    assert choice["chosen"] == "classes"
    model = pmf.JointPMF.load(facts["live"])
    assert (model.kind, model.rank) == ("classes", 2)
    assert model.origin["choice"] == choice
    record = find_record(path)
    assert record.stages["start"].kind == "start"
    # the model is that of EM, and the next night goes on from it
    classes = pmf.JointPMF.load(
        Store(tmp_path / "store").locate(record.stages["classes"]) / "model"
    )
    assert np.array_equal(model.factors, classes.factors)
    deliver(tmp_path, draw_by_kind(60, seed=2), 1)
    warm = etl.fn(str(path))
    assert warm["refit"]["way"] == "warm"
    assert "traits" not in find_record(path).stages
    assert pmf.JointPMF.load(warm["live"]).kind == "classes"


def test_choose__a_warm_night_of_traits_takes_what_was_chosen(first_night, tmp_path):
    path, facts = first_night
    first = pmf.JointPMF.load(facts["live"])
    deliver(tmp_path, draw_by_degree(60, seed=2), 1)
    facts = etl.fn(str(path))
    assert facts["refit"]["way"] == "warm"
    assert "choice" not in facts["model"]
    assert facts["model"]["comparisons"] == []
    stages = find_record(path).stages
    assert "classes" not in stages
    warm = load_model(load_config(path), stages["model"])
    for name in ("dimensions", "shrinkage", "passes"):
        assert warm.origin[name] == first.origin[name]
    assert warm.rank == first.rank
    assert not np.array_equal(warm.factors, first.factors)
    again = etl.fn(str(path))
    assert again["refit"]["way"] == "same"
    assert find_record(path).stages["model"] == stages["model"]


def test_choose__traits_that_do_not_fit_in_memory_leave_latent_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.families.traits.traits.UPDATE_TABLES", 1 << 50)
    path = write_pipeline(tmp_path, draw_by_degree(300))
    facts = etl.fn(str(path))
    choice = facts["model"]["choice"]
    assert choice["chosen"] == "classes"
    assert pmf.JointPMF.load(facts["live"]).origin["choice"] == choice
    assert "traits" not in find_record(path).stages


def test_choose__traits_that_fit_no_longer_leave_latent_classes(first_night, tmp_path, monkeypatch):
    path, _ = first_night
    deliver(tmp_path, draw_by_degree(60, seed=2), 1)
    monkeypatch.setattr("pmflib.families.traits.traits.UPDATE_TABLES", 1 << 50)
    facts = etl.fn(str(path))
    assert facts["model"]["choice"]["chosen"] == "classes"


def test_choose__same_bits_with_workers(tmp_path):
    models = []
    for name, more in (("alone", ""), ("two", "[cluster]\nworkers = 2")):
        path = write_pipeline(tmp_path / name, draw_by_degree(300), more=more)
        facts = etl.fn(str(path))
        models.append((find_record(path).stages["model"], json.dumps(facts["model"]["choice"])))
    assert models[0] == models[1]


def test_config__a_comparison_needs_validation_folds(tmp_path):
    path = write_pipeline(tmp_path)
    path.write_text(path.read_text().replace("validation_folds = 3", "validation_folds = 0"))
    with pytest.raises(ConfigError, match="validation_folds"):
        load_config(path)
