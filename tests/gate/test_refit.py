from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import pmflib as pmf
from pmflib.families.traits import TraitModel, TraitPMF
from pmflib.model import ModelOrigin
from pmflib.store import Reference, RunRecord, Store
from pmflib_tasks.config import make_config
from pmflib_tasks.gate import plan_refit
from pmflib_tasks.gate.refit import choose_refit, digest_fit_options
from pmflib_tasks.guards import Finding
from tests.reference import make_model

NOW = datetime(2026, 3, 31, 2, tzinfo=UTC)
MONTH = timedelta(days=30)
DATASET, OTHER_DATASET, COUNTS = (
    Reference(kind, "1" * 64, digest * 64)
    for kind, digest in (("dataset", "a"), ("dataset", "b"), ("counts", "c"))
)
START, MODEL, OLDER = (
    Reference(kind, "2" * 64, digest * 64)
    for kind, digest in (("start", "d"), ("model", "e"), ("model", "f"))
)
FRESH = RunRecord(
    "run",
    "promoted",
    "first",
    started="2026-03-19T02:00:00+00:00",
    ended="2026-03-19T03:00:00+00:00",
    config="",
    stages={"dataset": DATASET, "counts": COUNTS, "start": START, "model": MODEL},
    live=MODEL,
    facts={"refit": {"way": "fresh", "options": "o"}, "rows": {"observed": 1000}},
    number=3,
)
WARM = replace(
    FRESH,
    number=12,
    stages=FRESH.stages | {"start": OLDER},
    facts={"refit": {"way": "warm", "options": "o"}},
)
TODAY = {"dataset": OTHER_DATASET, "counts": COUNTS}
YESTERDAY = {"dataset": DATASET, "counts": COUNTS}


@pytest.mark.parametrize(
    ("changed", "way", "start", "named"),
    [
        ({}, "warm", MODEL, "run 12"),
        ({"refresh": None}, "warm", MODEL, "run 12"),
        ({"refresh": timedelta(days=12)}, "fresh", None, "12 days"),
        ({"refresh": timedelta(days=12, hours=1)}, "warm", MODEL, "run 12"),
        ({"refresh": timedelta(0)}, "fresh", None, "model.refresh"),
        ({"made": None}, "fresh", None, "live model"),
        ({"obstacle": "it is gone"}, "fresh", None, "it is gone"),
        ({"options": "p"}, "fresh", None, "options"),
        ({"drift": "v7 moved"}, "fresh", None, "v7 moved"),
        ({"last_fresh": None}, "fresh", None, "history"),
        ({"growth": 2.0}, "fresh", None, "2.0 times"),
        ({"growth": 1.99}, "warm", MODEL, "run 12"),
        ({"inputs": YESTERDAY}, "same", OLDER, "run 12"),
        ({"inputs": YESTERDAY, "made": FRESH}, "same", None, "run 3"),
        ({"now": NOW + MONTH, "inputs": YESTERDAY}, "fresh", None, "42 days"),
        ({"now": NOW - timedelta(days=11)}, "warm", MODEL, "24 hours"),
        ({"now": NOW - timedelta(days=20)}, "warm", MODEL, "run 12"),
    ],
)
def test_choose_refit__the_whole_table(changed, way, start, named):
    known = {"refresh": MONTH, "now": NOW, "options": "o", "made": WARM, "last_fresh": FRESH}
    refit = choose_refit(**{**known, "inputs": TODAY, **changed})
    assert (refit.way, refit.start) == (way, start)
    assert named in refit.reason
    assert refit.to_json() == {"way": way, "reason": refit.reason, "options": refit.options}


@pytest.fixture
def lived(tmp_path):
    """Store, configuration, schema and the record of a fresh run whose model is live."""
    config = make_config({"source": {"path": "x", "layout": "wide"}, "model": {"rank": 2}})
    schema = pmf.Schema.from_cardinalities([3, 2])
    store = Store(tmp_path)

    def write(folder, work):
        model = make_model(np.random.default_rng(0), [3, 2], 2)
        pmf.JointPMF(*model, schema, ModelOrigin(pseudo_count=0.3)).save(folder / "model")
        return {}

    model = store.build("model", inputs={}, options={}, version=1, write=write).reference
    facts = {"refit": {"way": "fresh", "options": digest_fit_options(config)}}
    record = replace(FRESH, stages=FRESH.stages | {"model": model}, live=model, facts=facts)
    return store, config, schema, [record]


def plan(lived, *, findings=(), now=NOW, **changed):
    store, config, schema, records = lived
    for section, options in changed.items():
        update = {section: getattr(config, section).model_copy(update=options)}
        config = config.model_copy(update=update)
    return plan_refit(store, config, schema, records, TODAY, findings, now)


def test_plan_refit__reads_the_history(lived):
    store, config, schema, (record,) = lived
    assert plan(lived).way == "warm"
    assert plan(lived).start == record.live
    assert plan(lived, now=NOW + MONTH).way == "fresh"
    assert plan((store, config, schema, [])).way == "fresh"
    kept = replace(record, outcome="kept", stages={**TODAY, "model": OLDER}, number=4)
    assert plan((store, config, schema, [record, kept])).way == "warm"
    # a fit from scratch that was not better than the live model is one all the same
    late = replace(kept, started="2026-04-20T02:00:00+00:00")
    assert plan((store, config, schema, [record, late]), now=NOW + MONTH).way == "warm"
    failed = replace(late, outcome="failed")
    assert plan((store, config, schema, [record, failed]), now=NOW + MONTH).way == "fresh"


@pytest.mark.parametrize(
    ("changed", "way"),
    [
        ({"model": {"rank": "auto"}}, "fresh"),
        ({"model": {"method": "spa"}}, "fresh"),
        ({"em": {"tol": 1e-3}}, "fresh"),
        ({"store": {"folds": 8}}, "fresh"),
        ({"evaluate": {"test_folds": 2}}, "fresh"),
        ({"evaluate": {"hide": 0.5}}, "warm"),
        ({"model": {"refresh": "4w"}}, "warm"),
        ({"model": {"refresh": "0d"}}, "fresh"),
        ({"em": {"members": 3}}, "fresh"),
        ({"em": {"max_passes": 0}}, "fresh"),
    ],
)
def test_plan_refit__options_that_matter(lived, changed, way):
    assert plan(lived, **changed).way == way


def test_plan_refit__what_the_live_model_cannot_start(lived):
    store, config, schema, records = lived
    other = pmf.Schema.from_cardinalities([3, 2, 2])
    assert plan((store, config, other, records)).way == "fresh"
    gone = Store(store.root.parent / "elsewhere")
    assert plan((gone, config, schema, records)).way == "fresh"


def test_plan_refit__growth_and_drift(lived):
    store, config, schema, (record,) = lived
    grown = replace(record, facts=record.facts | {"rows": {"observed": 100}})

    def write(folder, work):
        (folder / "dataset.json").write_text("{}")
        return {"observed": 250}

    dataset = store.build("dataset", inputs={}, options={}, version=1, write=write).reference
    inputs = {"dataset": dataset, "counts": COUNTS}
    refit = plan_refit(store, config, schema, [grown], inputs, (), NOW)
    assert (refit.way, "2.5 times" in refit.reason) == ("fresh", True)
    finding = Finding("pair_drift", "v1", 0.4, 0.1, "warn", False, "v1 and v2 moved")
    assert plan(lived, findings=[finding]).way == "fresh"
    others = [replace(finding, passed=True), replace(finding, guard="least_rows")]
    assert plan(lived, findings=others).way == "warm"


def test_plan_refit__a_model_fitted_to_its_target_is_fitted_from_scratch(lived):
    store, config, schema, (record,) = lived

    def write(folder, work):
        origin = ModelOrigin(pseudo_count=0.3, extra={"conditional_share": 0.9})
        prior, factors = make_model(np.random.default_rng(0), [3, 2], 2)
        pmf.JointPMF(prior, factors, schema, origin).save(folder / "model")
        return {}

    options = {"for": "a target"}
    model = store.build("model", inputs={}, options=options, version=1, write=write).reference
    record = replace(record, stages=record.stages | {"model": model}, live=model)
    assert plan((store, config, schema, [record])).way == "fresh"


def test_plan_refit__traits_go_on_whatever_em_is(lived):
    store, config, schema, (record,) = lived
    traits = TraitModel(schema, np.zeros(5), np.zeros((5, 1)), np.zeros(1), np.eye(1))

    def write(folder, work):
        prior, factors = make_model(np.random.default_rng(0), [3, 2], 2)
        origin = ModelOrigin("traits")
        TraitPMF(prior, factors, schema, origin, trait_model=traits).save(folder / "model")
        return {}

    options = {"for": "traits"}
    model = store.build("model", inputs={}, options=options, version=1, write=write).reference
    em = config.em.model_copy(update={"members": 3})
    config = config.model_copy(update={"em": em})
    facts = {"refit": {"way": "fresh", "options": digest_fit_options(config)}}
    record = replace(record, stages=record.stages | {"model": model}, live=model, facts=facts)
    assert plan((store, config, schema, [record])).start == model
    other = pmf.Schema.from_cardinalities([3, 2, 2])
    assert plan((store, config, other, [record])).way == "fresh"
