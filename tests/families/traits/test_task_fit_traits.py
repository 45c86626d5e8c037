"""Traits in a pipeline: the artefact has the trait model, and a second run finds it."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import ConfigError, MemoryPlanError
from pmflib.store import Store, find_last_run, read_blocks
from pmflib_flows.etl import etl
from pmflib_tasks.config import load_config
from tests.families.traits.planted_traits import traits_of
from tests.pipelines import as_wide, draw_codes, make_schema

TOML = """
[source]
path = "data.csv"
layout = "wide"

[schema]
file = "schema.json"

[store]
path = "store"

[model]
method = "traits"
rank = {rank}
{more}
"""


def write_pipeline(folder, *, rank=50, more=""):
    sizes = [4, 3, 5, 2]
    (folder / "data.csv").write_text(as_wide(draw_codes(300, sizes)))
    make_schema(*sizes).save(folder / "schema.json")
    path = folder / "pipeline.toml"
    path.write_text(TOML.format(rank=rank, more=more))
    return path


def test_fit_traits__in_a_pipeline(tmp_path):
    path = write_pipeline(tmp_path)
    facts = etl.fn(str(path))
    assert facts["model"]["method"] == "traits"
    assert facts["model"]["rank"] == 50
    model = pmf.JointPMF.load(facts["live"])
    assert traits_of(model).n_traits == facts["model"]["n_traits"]
    assert 0 < model.origin["equivalent_samples"]["n_unseen"] < 300
    assert np.isfinite(facts["scores"]["log_prob_per_cell"])
    again = etl.fn(str(path))
    assert again["outcome"] == "unchanged"
    assert again["refit"]["way"] == "same"
    assert again["live"] == facts["live"]
    # it is the model of the codes of the training folds
    config, store = load_config(path), Store(tmp_path / "store")
    dataset = find_last_run(store, config.name).stages["dataset"]
    schema, folds = pmf.Schema.load(tmp_path / "schema.json"), config.fold_split.train
    samples = pmf.em.StoredSamples.open(store, dataset, schema, folds)
    blocks = [block.to_codes(schema.offsets) for block in read_blocks(samples.blocks)]
    of_codes = pmf.families.fit_traits(
        np.concatenate(blocks), schema, n_states=50, rng=config.seed
    ).model
    # of the blocks of several folds, sums have other last bits
    assert of_codes.factors == pytest.approx(model.factors, rel=1e-6)
    assert traits_of(of_codes).slopes == pytest.approx(traits_of(model).slopes, abs=1e-7)


def test_fit_traits__chooses_the_states_where_the_rank_is_auto(tmp_path):
    facts = etl.fn(str(write_pipeline(tmp_path, rank='"auto"')))
    assert facts["model"]["rank"] in (100, 300, 1000)
    assert "rank" not in facts


def test_fit_traits__with_the_settings_that_are_given(tmp_path):
    given = "method_options = {dimensions = 1, passes = 3, shrinkage = 0.8}"
    facts = etl.fn(str(write_pipeline(tmp_path, more=given)))
    assert (facts["model"]["n_traits"], facts["model"]["passes"]) == (3, 3)
    model = pmf.JointPMF.load(facts["live"])
    assert model.origin["shrinkage"] == 0.8
    path = write_pipeline(tmp_path, more=given.replace("passes = 3", "passes = 0"))
    with pytest.raises(ConfigError, match=r"traits.passes is 0; pass at least 1"):
        load_config(path)


def test_fit_traits__of_samples_that_do_not_fit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.families.traits.traits.UPDATE_TABLES", 1 << 50)
    with pytest.raises(MemoryPlanError, match="fit_traits"):
        etl.fn(str(write_pipeline(tmp_path)))


def test_config__traits_have_no_target(tmp_path):
    with pytest.raises(ConfigError, match="target"):
        load_config(write_pipeline(tmp_path, more='[em]\ntarget = "v1"'))
