"""Weights, strata and units of samples whose answers are rows of a long log."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import TableRequest
from pmflib.apps.crowd import LogNames, make_label_schema
from pmflib.base import ConfigError, SchemaError, SparseBlock
from pmflib.em import StoredSamples
from pmflib.ingest import DatasetAccount, read_quarantine
from pmflib.store import find_last_run, list_dataset_blocks, read_blocks
from pmflib_tasks.erasure.erase import erase
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import make_schema, record_night, store_of, summary_of
from tests.surveys.design.test_task_weights import (
    DESIGN,
    EM,
    SIZES,
    count_all,
    draw,
    draw_units,
    find_sizes,
    fit_weighted,
    group_by,
    load_counts,
)

LONG = {"layout": "long", "sample": "id", "variable": "what", "value": "said", "weight": "w"}
TIMED = LONG | {"time": "day"}
DESIGNED = LONG | DESIGN


def write_rows(path, rows, columns="id,what,said,w"):
    path.write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_log(path, codes, weights, names, more=()):
    """A row for each cell, a missing one among them; ``more`` are columns of samples."""
    whole = list(zip(names, codes.tolist(), weights, *more, strict=True))
    rows = [
        (name, f"v{v}", "" if code < 0 else code, weight, *others)
        for name, answers, weight, *others in whole
        for v, code in enumerate(answers)
    ]
    columns = "id,what,said,w" + (",region,school" if more else "")
    write_rows(path, rows, columns)


def list_rejected(config, dataset):
    store = store_of(config)
    return [row for batch in read_quarantine(store, dataset) for row in batch.to_pylist()]


def name_people(n_people):
    return [f"p{number}" for number in range(n_people)]


@pytest.mark.parametrize("large", [1.0, 1e9])
def test_count__a_long_log_has_the_weights_of_its_samples(large, pipeline, tmp_path, workers):
    codes, weights = draw(300, 1)
    weights[7] *= large
    config = pipeline(make_schema(*SIZES), LONG)
    write_log(tmp_path / "data" / "a.csv", codes, weights, name_people(300))
    dataset, counts = count_all(config, workers)
    found = load_counts(config, counts)
    assert (found.tables.sum(axis=0) == group_by(codes, weights)).all()
    units = np.rint(weights * 1e6).astype(np.int64)
    assert sum(found.weights.totals) == units.sum()
    assert sum(found.weights.squares) == sum(int(each) ** 2 for each in units)
    account = DatasetAccount.from_json(summary_of(config, dataset))
    assert account.rows_encoded == codes.size
    assert account.weights.total == pytest.approx(weights.sum())


def test_a_sparse_log_is_that_of_wide_files(pipeline, tmp_path, workers):
    codes, weights = draw(900, 5)
    gaps = np.random.default_rng(6).random(codes.shape) < 0.8
    codes[gaps] = -1
    config = pipeline(make_schema(*SIZES), LONG, **EM)
    write_log(tmp_path / "data" / "a.csv", codes, weights, name_people(900))
    log, stages = fit_weighted(config, workers)
    assert (
        load_counts(config, stages["counts"]).tables.sum(axis=0) == group_by(codes, weights)
    ).all()
    training = open_training(config, stages["dataset"], log.schema)
    assert isinstance(next(read_blocks(training.blocks)), SparseBlock)
    whole = training.read_block()
    # weights as they stand in the file: those that are scaled would be rounded once more
    given = (whole.weights / training.blocks[0].scale / 1e6).round(4)
    # of pseudo-counts the shape is that of counts in whole samples, and not quite the same
    options: dict[str, Any] = {"pseudo_count": 0.0, "max_passes": 300, "tol": 1e-5}
    dense = pmf.fit_em(whole.codes, log, weight=given, **options)
    sparse = pmf.fit_em(training, log, **options)
    assert np.abs(dense.model.factors - sparse.model.factors).max() < 1e-8
    traits = pmf.families.fit_traits(
        training, dimensions=1, n_states=20, shrinkage=0.5, passes=5
    ).model
    again = pmf.families.fit_traits(
        whole.codes,
        log.schema,
        weight=given,
        dimensions=1,
        n_states=20,
        shrinkage=0.5,
        passes=5,
    ).model
    assert np.abs(traits.factors - again.factors).max() < 1e-6
    assert np.abs(traits.prior - again.prior).max() < 1e-9


def open_training(config, dataset, schema):
    store = store_of(config)
    return StoredSamples.open(store, dataset, schema, config.fold_split.train)


CONFLICT = [
    ("p0", "v0", 1, 2.5, 1),
    ("p0", "v1", 2, 2.5, 2),
    ("p0", "v1", 0, 4, 3),
    ("p0", "v2", "", 4, 9),
    ("p1", "v0", 0, 1.5, 1),
    ("p1", "v0", 1, 1.5, 5),
    ("p1", "v2", 3, 0, 6),
    ("p1", "v1", "", 7, 0),
]


@pytest.mark.parametrize(
    ("policy", "answers", "rejected"),
    [
        # the last row of p0 has weight 4, that of p1 1.5; rows of other weights have no part
        (
            "last",
            {"p0": [-1, 0, -1, 4.0], "p1": [1, -1, -1, 1.5]},
            {1: "p0,v0,1,1", 2: "p0,v1,2,2"},
        ),
        ("first", {"p0": [1, 2, -1, 2.5], "p1": [-1, -1, -1, 7.0]}, {3: "p0,v1,0,3", 4: "p0,,,9"}),
    ],
)
def test_ingest__rows_of_a_sample_must_agree_on_its_weight(
    policy, answers, rejected, pipeline, tmp_path, workers
):
    config = pipeline(make_schema(*SIZES), TIMED, schema={"on_duplicate": policy})
    write_rows(tmp_path / "data" / "a.csv", CONFLICT, "id,what,said,w,day")
    dataset, counts = count_all(config, workers)
    account = summary_of(config, dataset)
    names = list(answers)
    codes = np.array([answers[name][:3] for name in names])
    weights = [answers[name][3] for name in names]
    assert (load_counts(config, counts).tables.sum(axis=0) == group_by(codes, weights)).all()
    rows = list_rejected(config, dataset)
    conflicts = {row["row"]: row for row in rows if row["reason"] == "conflict"}
    for number, text in rejected.items():
        sample, what, said, day = text.split(",")
        weight = CONFLICT[number - 1][3]
        assert conflicts[number]["raw"] == f"{sample},{what},{said},{day},{weight}"
        assert (conflicts[number]["column"], conflicts[number]["winner_agrees"]) == ("w", False)
        assert conflicts[number]["winner_row"] == {"last": 4, "first": 1}[policy]
    assert account["reasons"]["conflict"] == len(conflicts)
    assert account["reasons"]["bad_weight"] == 1
    assert account["rows_in"] == 8 == account["rows_encoded"] + len(rows)


def test_ingest__a_conflict_stops_where_duplicates_do(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), TIMED, schema={"on_duplicate": "error"})
    write_rows(tmp_path / "data" / "a.csv", CONFLICT[:4], "id,what,said,w,day")
    with pytest.raises(SchemaError, match=r"a\.csv row 1 .*a\.csv row 4"):
        ingest.fn(config, workers)


def test_ingest__rows_of_a_sample_must_agree_on_its_stratum_and_unit(pipeline, tmp_path, workers):
    rows = [
        ("p0", "v0", 1, 2, "north", "s1"),
        ("p0", "v1", 1, 2, "north", "s2"),
        ("p0", "v2", 1, 2, "south", "s1"),
        ("p0", "v1", 2, 2, "north", "s1"),
        ("p1", "v1", 2, 2, "north", ""),
    ]
    config = pipeline(make_schema(*SIZES), DESIGNED)
    write_rows(tmp_path / "data" / "a.csv", rows, "id,what,said,w,region,school")
    dataset = ingest.fn(config, workers)
    found = {row["row"]: (row["reason"], row["column"]) for row in list_rejected(config, dataset)}
    assert found == {2: ("conflict", "school"), 3: ("conflict", "region"), 5: ("no_unit", "school")}
    assert summary_of(config, dataset)["rows_encoded"] == 2


def test_count__nights_of_a_log_with_weights(pipeline, tmp_path, workers):
    codes, weights = draw(260, 3)
    names, data = name_people(260), tmp_path / "data"
    config = pipeline(make_schema(*SIZES), LONG)
    write_log(data / "a.csv", codes[:150], weights[:150], names[:150])
    first = count_all(config, workers)
    # two files of one night: the first ten people are asked again, with other weights, and the next ten with theirs
    write_log(data / "b.csv", codes[150:200], weights[150:200], names[150:200])
    again = np.r_[weights[200:210], weights[10:20], weights[220:260]]
    write_log(data / "c.csv", codes[200:], again, [*names[:20], *names[220:260]])
    second = count_all(config, workers, first)
    # of the first ten only what was said last counts, of the next ten also what was not asked again
    merged = np.where(codes[210:220] >= 0, codes[210:220], codes[10:20])
    people = np.concatenate([codes[200:210], merged, codes[20:200], codes[220:]])
    of_people = np.r_[weights[200:210], weights[10:20], weights[20:200], weights[220:]]
    found = load_counts(config, second[1])
    assert (found.tables.sum(axis=0) == group_by(people, of_people)).all()
    account = summary_of(config, second[0])
    assert account["reasons"]["conflict"] == 30
    assert account["rows_in"] == account["rows_encoded"] + account["rows_quarantined"]
    (data / "b.csv").unlink()
    third = count_all(config, workers, second)
    lost = load_counts(config, third[1])
    # the same as of a store that has seen all of it at once, without workers, bit for bit
    fresh = pipeline(make_schema(*SIZES), LONG, store={"path": "new", "folds": 4})
    anew = count_all(fresh, "")
    expected = load_counts(fresh, anew[1])
    assert (expected.tables == lost.tables).all()
    assert expected.weights == lost.weights
    rows = ("rows_in", "rows_encoded", "reasons", "samples", "observed", "weights")
    upon, whole = summary_of(config, third[0]), summary_of(fresh, anew[0])
    assert {key: upon[key] for key in rows} == {key: whole[key] for key in rows}


def test_erase__conflicts_and_weights_go_with_their_samples(pipeline, tmp_path, workers):
    codes, weights, region, school = draw_units(200, 20, 4)
    names = name_people(200)
    config = pipeline(make_schema(*SIZES), DESIGNED)
    design = region.tolist(), [f"s{each}" for each in school]
    write_log(tmp_path / "data" / "a.csv", codes, weights, names, design)
    # three people with rows that do not agree, one of whom is erased
    some = [3, 50, 60]
    other = [part[:1] * 3 for part in design]
    write_log(
        tmp_path / "data" / "b.csv", codes[some], weights[some] + 1, ["p3", "p50", "p60"], other
    )
    dataset, counts = count_all(config, workers)
    store = store_of(config)
    stages = {"dataset": dataset, "counts": counts}
    record_night(config, stages)
    erase(config, ["p3", "p7"])
    last = find_last_run(store, config.name).stages
    kept = np.delete(np.arange(200), [3, 7])
    now_has = weights + np.isin(np.arange(200), some)
    found = load_counts(config, last["counts"])
    assert (found.tables.sum(axis=0) == group_by(codes[kept], now_has[kept])).all()
    account = DatasetAccount.from_json(summary_of(config, last["dataset"]))
    assert account.reasons == {"conflict": 6}
    assert account.weights == found.weights.merge()
    blocks = list_dataset_blocks(store, last["dataset"], None)
    (size,) = find_sizes(blocks, [TableRequest((0,))])
    region[some], school[some] = region[0], school[0]
    expected = pmf.surveys.SurveyDesign(now_has[kept], stratum=region[kept], psu=school[kept])
    assert size == pytest.approx(expected.find_effective(codes[kept, 0], 2)[1])


def test_config__columns_of_a_long_log_are_apart(pipeline):
    with pytest.raises(ConfigError, match="weight is 'said'"):
        pipeline(make_schema(*SIZES), LONG | {"weight": "said"})


def test_label_logs_take_no_weights(pipeline):
    config = pipeline(make_schema(*SIZES), LONG)
    with pytest.raises(SchemaError, match="weight"):
        make_label_schema(LogNames(("w1",), ("a",)), config.source)
