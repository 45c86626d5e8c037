"""Runs with the counts of other sites: their model, its lineage, and a site that withdraws."""

import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import open_evidence
from pmflib.base import ConfigError, MemoryPlanError, SchemaError, SourceError
from pmflib.store import collect, find_last_run
from pmflib_tasks.config import make_config
from pmflib_tasks.planning import PlannedWorkers, plan_run
from pmflib_tasks.sites.pool import list_checks
from tests.flows.nights import draw_ratings, make_movies
from tests.pipelines import load_model

CODES = draw_ratings(400, 4)
OWN, NORTH, SOUTH = CODES[:160], CODES[160:220], CODES[220:]
OPTIONS = {"store": {"folds": 4}}
LARGE = PlannedWorkers.assume(2, 1, 64 << 30)


@pytest.fixture
def pipeline(nights):
    """A pipeline with rows of its own, and the counts of two sites."""
    pipeline = nights(4, **OPTIONS)
    pipeline.deliver("0.csv", OWN, range(len(OWN)))
    for name, codes in (("north", NORTH), ("south", SOUTH)):
        export(pipeline, name, codes)
    return pipeline


def export(pipeline, name, codes, schema=None, **options):
    counts = pmf.count_pairs(codes, schema or make_movies(4), n_folds=4)
    return counts.export(pipeline.folder / f"{name}.counts", **options)


def join(pipeline, *names):
    """Run with the counts of these sites."""
    sites = {"sites": {name: f"{name}.counts" for name in names}} if names else {}
    pipeline.configure(**OPTIONS, **sites)
    return pipeline.run()


def stages_of(pipeline):
    return find_last_run(pipeline.store, pipeline.config.name).stages


def load_pooled(pipeline):
    path = pipeline.store.locate(stages_of(pipeline)["pooled"]) / "pairs"
    return pmf.PairCounts.load(path)


def test_run__pools_the_counts_of_all_rows_and_fits_their_pairs(pipeline):
    found = join(pipeline, "north", "south")
    whole = pmf.count_pairs(CODES, make_movies(4))
    pooled = load_pooled(pipeline)
    assert np.array_equal(pooled.to_dense(), whole.to_dense())
    assert found["outcome"] == "promoted"
    training = pooled.select_folds(pipeline.config.fold_split.train)
    alone = pmf.fit(training, 2).model
    model = load_model(pipeline.config, stages_of(pipeline)["model"])
    assert np.array_equal(model.factors, alone.factors)
    assert set(stages_of(pipeline)) == {
        "dataset",
        "counts",
        "quality",
        "pooled",
        "model",
        "scores",
        "marginals",
    }


def test_plan__has_the_stages_that_run_and_the_memory_of_all_counts(pipeline):
    def list_stages():
        return {each.stage: each for each in plan_run(pipeline.config, LARGE).stages}

    join(pipeline)
    assert {"fit", "refine"} <= set(list_stages())
    pipeline.configure(**OPTIONS, sites={"north": "north.counts"})
    found = list_stages()
    names = list(found)
    places = [names.index(each) for each in ("count", "pool", "fit_pooled", "publish")]
    assert places == sorted(places)
    assert not {"select", "fit", "refine"} & set(found)
    assert found["pool"].worker_bytes == 13 * 8 * 4 * make_movies(4).n_levels ** 2
    join(pipeline, "north")
    assert set(find_last_run(pipeline.store, "pipeline").seconds) == set(list_stages())
    join(pipeline)
    assert not {"pool", "fit_pooled"} & set(list_stages())


def test_run__refuses_counts_beyond_memory(pipeline, monkeypatch):
    monkeypatch.setattr("pmflib_tasks.sites.pool.find_memory_limit", lambda: 1000)
    with pytest.raises(MemoryPlanError, match=r"pool would need .* Merge rare levels"):
        join(pipeline, "north")


def test_run__with_rank_auto_chooses_it_by_pairs(pipeline):
    pipeline.configure(**OPTIONS, model={"rank": "auto"}, sites={"south": "south.counts"})
    pipeline.run()
    summary = pipeline.store.find(stages_of(pipeline)["model"].identity).summary
    assert summary["rank"] == 2
    assert "held-out log-likelihood per pair" in summary["notes"][0]


def test_run__records_what_each_site_has_given(pipeline):
    digest = export(pipeline, "north", NORTH, minimum=5, seed=1)
    found = join(pipeline, "north")
    assert found["model"]["sites"] == {"north": {"digest": digest, "rows": 60, "minimum": 5}}
    entry = pipeline.store.find(stages_of(pipeline)["pooled"].identity)
    source = pipeline.store.find(entry.inputs["site north"].identity)
    assert source.options["name"] == "north.counts"
    events = (pipeline.folder / "store" / "lineage" / "events.jsonl").read_text().splitlines()
    inputs = [each for line in events for each in json.loads(line)["inputs"]]
    versions = [
        each["facets"]["version"]["datasetVersion"]
        for each in inputs
        if each["name"] == "north.counts"
    ]
    assert versions
    assert {*versions} == {source.reference.digest}


def test_questions__are_answered_from_the_pooled_counts(pipeline, call):
    join(pipeline, "north", "south")
    reference = stages_of(pipeline)["model"]
    evidence = open_evidence(pipeline.store, pipeline.config.name, reference, make_movies(4))
    assert (evidence.n_rows, evidence.count_samples) == (400, None)
    code, out, _ = call("query", pipeline.path, "P(v1=4 | v0=1)", "--json")
    assert code == 0
    assert '"samples": 400' in out
    code, out, _ = call("query", pipeline.path, "P(v1=4 | v0=1, v2=1)")
    assert code == 0


def test_commands__show_a_run_with_sites(pipeline, call):
    join(pipeline, "north", "south")
    code, out, _ = call("log", pipeline.path)
    assert code == 0
    assert "north.counts" in out
    assert "pooled" in out
    assert "counts of north" in call("status", pipeline.path)[1]
    for words in (["verify"], ["status"], ["report"], ["history"], ["models"], ["plan"]):
        assert call(words[0], pipeline.path, *words[1:])[0] == 0


def test_withdrawal__makes_everything_again_without_the_site(pipeline):
    join(pipeline, "north", "south")
    before = pipeline.store.find(stages_of(pipeline)["pooled"].identity)
    found = join(pipeline, "north")
    assert found["outcome"] == "promoted"
    assert "because south withdrew counts" in found["reason"]
    kept = pmf.count_pairs(CODES[:220], make_movies(4))
    assert np.array_equal(load_pooled(pipeline).to_dense(), kept.to_dense())
    never = pmf.fit(load_pooled(pipeline).select_folds(pipeline.config.fold_split.train), 2).model
    live = load_model(pipeline.config, find_last_run(pipeline.store, "pipeline").live)
    assert np.array_equal(live.factors, never.factors)
    collect(pipeline.store, 1, older_than=0)
    assert before.reference.path
    assert not (pipeline.store.root / before.reference.path).exists()
    kinds = [each.reference.kind for each in pipeline.store.entries()]
    assert (kinds.count("pooled"), kinds.count("model")) == (1, 1)
    gone = before.inputs["site south"]
    assert pipeline.store.find(gone.identity) is None


def test_withdrawal__of_the_last_site_goes_on_with_own_rows(pipeline):
    join(pipeline, "south")
    found = join(pipeline)
    assert "because south withdrew counts" in found["reason"]
    assert found["refit"]["way"] == "fresh"
    assert "pooled" not in stages_of(pipeline)
    collect(pipeline.store, 1, older_than=0)
    assert not [each for each in pipeline.store.entries() if each.reference.kind == "pooled"]


def test_erase__takes_the_pooled_counts_with_the_sample(pipeline, call):
    join(pipeline, "south")
    path = stages_of(pipeline)["pooled"].path
    code, _, err = call("erase", pipeline.path, "--sample", "u3")
    assert code == 0, err
    assert not (pipeline.store.root / path).exists()
    code, out, _ = call("erase", pipeline.path, "--sample", "u4", "--json")
    assert [each["model"] for each in json.loads(out)["models_fitted_before"]]
    assert "because south withdrew counts" in join(pipeline)["reason"]
    join(pipeline, "south")
    assert load_pooled(pipeline).n_rows.sum() == 158 + len(SOUTH)


def test_run__new_counts_of_a_site_have_to_pass_the_gate(pipeline):
    join(pipeline, "north")
    assert join(pipeline, "north")["outcome"] == "unchanged"
    export(pipeline, "south", np.random.default_rng(0).integers(0, 5, (20_000, 4)))
    found = join(pipeline, "north", "south")
    assert found["outcome"] == "kept"
    assert "the new one is worse today" in found["reason"]
    assert found["gate"]["today"]["verdict"] == "worse"


def test_run__refuses_counts_that_do_not_fit(pipeline):
    other = pmf.Schema(tuple(make_movies(5))[1:])
    export(pipeline, "north", NORTH, other)
    with pytest.raises(SchemaError, match=r"counts 'north' have another schema .* it lacks"):
        join(pipeline, "north")
    (pipeline.folder / "south.counts").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"south\.counts' cannot be used"):
        join(pipeline, "south")
    with pytest.raises(SourceError, match="is not a file"):
        join(pipeline, "west")
    export(pipeline, "west", SOUTH)
    export(pipeline, "east", SOUTH)
    with pytest.raises(pmf.PmfError, match="'east' and 'west' are the same"):
        join(pipeline, "west", "east")


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": {"rank": 2, "method": "traits"}}, r"model\.method = 'traits'"),
        ({"model": {"rank": 2, "method": "compare"}}, r"model\.method = 'compare'"),
        ({"model": {"rank": 2, "dependence": "auto"}}, r"model\.dependence = 'auto'"),
        ({"em": {"members": 3}}, r"section \[em\]"),
        ({"em": {"target": "a"}}, r"section \[em\]"),
        (
            {"source": {"path": "a.csv", "layout": "wide", "sample": "id", "weight": "w"}},
            r"source\.weight",
        ),
        ({"margins": {"tables": {"a": {"x": 60, "y": 40}}}}, r"section \[margins\]"),
    ],
)
def test_config__refuses_what_needs_rows_of_all_sites(sections, words):
    known = {"source": {"path": "a.csv", "layout": "wide"}, "model": {"rank": 2}}
    make_config(known | {"sites": {"north": "north.counts"}})
    with pytest.raises(ConfigError, match=f"{words}.*leave it out, or remove the sites"):
        make_config(known | sections | {"sites": {"north": "north.counts"}})


def test_list_checks__counts_of_another_schema_and_a_file_that_is_gone(pipeline):
    assert list(list_checks(pipeline.config)) == []
    pipeline.configure(**OPTIONS, sites={"north": "north.counts"})
    (check,) = list_checks(pipeline.config)
    assert (check.function().state, check.function().found) == ("ok", "counts of north")
    export(pipeline, "north", NORTH[:, :3], make_movies(3))
    found = check.function()
    assert (found.state, found.fault) == ("FAIL", "source")
    assert "'north' have another schema: it lacks" in found.found
    (pipeline.folder / "north.counts").unlink()
    with pytest.raises(SourceError, match="is not a file"):
        check.function()
