"""Replicate weights from columns of the files to samples, counts and answers, night by night."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import TableRequest, count_stored_tables, open_evidence
from pmflib.base import ConfigError, PmfError, SchemaError, SourceError
from pmflib.ingest import read_quarantine
from pmflib.store import (
    find_last_run,
    list_dataset_blocks,
    open_variance,
    read_block,
    read_replicates,
)
from pmflib.surveys.design import replicate_counts
from pmflib.surveys.design.replicate_counts import ReplicateCounts
from pmflib_tasks.erasure.erase import erase
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import (
    as_wide,
    draw_codes,
    load_model,
    make_offsets,
    make_schema,
    record_night,
    run_to_model,
    store_of,
    summary_of,
)
from tests.surveys.design.test_task_weights import group_by

SIZES = [2, 3, 4]
N = 12
FAY = {"weight": "w", "replicates": "r*", "replicate_method": "Fay", "fay": 0.5}


def draw(n_rows, seed, n=N):
    """Codes, weights, and replicate weights of which the second half empties the second level of v0, as texts."""
    rng = np.random.default_rng(seed)
    codes = draw_codes(n_rows, SIZES, seed=seed)
    weights = (rng.gamma(2.0, 1.0, n_rows) + 0.01).round(4)
    replicates = (weights[:, None] * rng.choice([0.5, 1.5], (n_rows, n))).round(6)
    replicates[codes[:, 0] == 1, n // 2] = 0.0
    return codes, weights, replicates


def write(path, codes, weights, replicates, names=None):
    """CSV with the weight and its replicates behind the codes, r10 before r2."""
    path.parent.mkdir(exist_ok=True)
    lines = as_wide(codes, names).splitlines()
    labels = sorted(f"r{1 + n}" for n in range(replicates.shape[1]))
    order = [int(label[1:]) - 1 for label in labels]
    rows = [
        ",".join([line, str(weight), *(str(each[place]) for place in order)])
        for line, weight, each in zip(lines[1:], weights, replicates.tolist(), strict=True)
    ]
    path.write_text("\n".join([",".join([lines[0], "w", *labels]), *rows]) + "\n")


def read_all(config, dataset):
    """Codes, weights and replicate weights of all samples, in units."""
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    read = [read_block(block) for block in blocks]
    codes = np.concatenate([each.to_codes(make_offsets(config)) for each in read])
    weights = np.concatenate([each.weights for each in read])
    return codes, weights, np.concatenate([read_replicates(block) for block in blocks])


def sort_rows(codes, weights, replicates):
    whole = np.column_stack([codes, weights, replicates])
    return whole[np.lexsort(whole.T[::-1])]


@pytest.mark.parametrize("named", [False, True])
def test_ingest__replicates_are_kept_in_units_and_in_the_order_of_their_numbers(
    named, pipeline, tmp_path, workers
):
    codes, weights, replicates = draw(300, 1)
    config = pipeline(make_schema(*SIZES), FAY | ({"sample": "id"} if named else {}))
    for name, part in (("a", slice(170)), ("b", slice(170, 300))):
        ids = [f"p{row}" for row in range(300)][part] if named else None
        path = tmp_path / "data" / f"{name}.csv"
        write(path, codes[part], weights[part], replicates[part], ids)
    found = read_all(config, ingest.fn(config, workers))
    expected = codes, np.rint(weights * 1e6), np.rint(replicates * 1e6)
    assert (sort_rows(*found) == sort_rows(*expected)).all()


def test_ingest__rows_that_lack_a_replicate_go_to_quarantine(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), FAY)
    codes, weights, replicates = draw(20, 2)
    texts = replicates.astype(object)
    bad = ["", "-0.5", "abc", "nan", "inf", "1e30", "-0.0000001"]
    texts[: len(bad), 3] = bad
    texts[10, :] = 0
    write(tmp_path / "data" / "a.csv", codes, weights, texts)
    dataset = ingest.fn(config, workers)
    account = summary_of(config, dataset)
    assert (account["rows_in"], account["rows_encoded"]) == (20, 20 - len(bad))
    assert account["reasons"] == {"bad_weight": len(bad)}
    rejected = [row for b in read_quarantine(store_of(config), dataset) for row in b.to_pylist()]
    assert {row["column"] for row in rejected} == {"r4"}
    assert (read_all(config, dataset)[2] == 0).all(axis=1).any()


def test_ingest__weights_are_rounded_as_they_are_written(pipeline, tmp_path, workers):
    texts = ["0.0015005", "0.0015015", "1.0000005", "1.0000015", "1e3", " 2 ", "0.1234565", "7"]
    texts += ["987654.3210005", "123456789.1234565", "4000000000.5", "0.30000049999999"]
    config = pipeline(make_schema(2), {"weight": "w"})
    lines = [f"{n % 2},{text}" for n, text in enumerate(texts)]
    (tmp_path / "data" / "a.csv").write_text("\n".join(["v0,w", *lines]) + "\n")
    blocks = list_dataset_blocks(store_of(config), ingest.fn(config, workers), None)
    found = np.concatenate([read_block(block).weights for block in blocks])
    expected = [int(Decimal(text.strip()).scaleb(6).to_integral_value()) for text in texts]
    assert sorted(found.tolist()) == sorted(expected)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"replicates": "r*", "replicate_method": "BRR"}, "weight"),
        ({"weight": "w", "replicates": "r*"}, "replicate_method"),
        (FAY | {"psu": "school"}, "psu"),
        (FAY | {"fay": None}, "fay"),
        (FAY | {"fay": 1.0}, "fay"),
        (FAY | {"replicate_method": "BRR"}, "fay"),
        (FAY | {"replicate_factors": [0.5, 0.5]}, "replicate_factors"),
        ({"weight": "w", "fay": 0.5}, "fay"),
        (FAY | {"replicates": ["w", "r1"]}, "replicates"),
        (FAY | {"replicates": ["r1", "r1"]}, "replicates"),
        (FAY | {"replicates": ["r1"]}, "replicates"),
        (
            {"weight": "w", "replicates": ["r1", "r2"], "replicate_method": "JKn"}
            | {"replicate_factors": [0.5, 0.5, 0.5]},
            "replicate_factors",
        ),
    ],
)
def test_config__designs_of_replicates_that_are_not_whole(given, what, pipeline):
    with pytest.raises(ConfigError, match=what):
        pipeline(make_schema(*SIZES), {k: v for k, v in given.items() if v is not None})


def test_ingest__patterns_that_do_not_match(pipeline, tmp_path, workers):
    write(tmp_path / "data" / "a.csv", *draw(20, 3))
    for pattern in ("x*", "[rw]*"):
        with pytest.raises(ConfigError, match="replicates"):
            ingest.fn(pipeline(make_schema(*SIZES), FAY | {"replicates": pattern}), workers)
    factors = {"replicate_method": "JKn", "fay": None, "replicate_factors": [0.5, 0.5]}
    given = {k: v for k, v in (FAY | factors).items() if v is not None}
    with pytest.raises(ConfigError, match="replicate_factors"):
        ingest.fn(pipeline(make_schema(*SIZES), given), workers)
    with pytest.raises(SchemaError, match=r"source\.replicates is \['v1'\]"):
        ingest.fn(pipeline(make_schema(*SIZES), FAY | {"replicates": ["v1", "r1"]}), workers)


REQUESTS = [
    TableRequest((0,)),
    TableRequest((1, 2), ((0, (1,)),)),
    TableRequest((0,), ((2, (0, 1, 3)),)),
    TableRequest((), ((1, (0,)),)),
]


def check_sizes(found, codes, weights, replicates, method="Fay", fay=0.5):
    design = pmf.surveys.SurveyDesign(weights, replicates=replicates, method=method, fay=fay)
    for size, request in zip(found, REQUESTS, strict=True):
        shape = [SIZES[position] for position in request.targets]
        cells = np.full(len(codes), -1)
        for row, values in enumerate(codes.tolist()):
            own = [values[position] for position in request.targets]
            if min(own, default=0) >= 0 and all(values[j] in at for j, at in request.given):
                cells[row] = np.ravel_multi_index(own, shape) if own else 0
        _, expected = design.find_effective(cells, int(np.prod(shape)))
        if np.isfinite(size):
            assert min(size, (cells >= 0).sum()) == pytest.approx(expected)
        else:
            assert not request.targets


def test_answers_allow_for_replicates(pipeline, tmp_path, workers):
    codes, weights, replicates = draw(600, 4)
    config = pipeline(make_schema(*SIZES), FAY)
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    dataset = ingest.fn(config, workers)
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    design = open_variance(store_of(config), dataset)
    assert design is not None
    counted = count_stored_tables(blocks, make_schema(*SIZES), REQUESTS, design=design)
    assert counted.weighted is not None
    found = counted.weighted.sizes
    # one of the replicates has nobody at the level that the second table is given
    check_sizes(found, codes, weights, replicates)


def test_count__refuses_a_replicate_without_a_weight(pipeline, tmp_path, workers):
    codes, weights, replicates = draw(50, 4)
    replicates[:, 6] = 0
    config = pipeline(make_schema(*SIZES), FAY)
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    with pytest.raises(SourceError, match="number 7"):
        count.fn(config, ingest.fn(config, workers), workers)


EM: dict[str, Any] = {
    "em": {"max_passes": 20, "pseudo_count": 0.5},
    "model": {"rank": 2, "method": "auto"},
}


def test_ask__answers_of_a_store_are_those_of_a_design_in_memory(pipeline, tmp_path, workers):
    codes, weights, replicates = draw(600, 5)
    config = pipeline(make_schema(*SIZES), FAY, **EM)
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    stages, store = run_to_model(config, workers), store_of(config)
    record_night(config, stages)
    model = load_model(config, stages["model"])
    evidence = open_evidence(store, config.name, stages["model"], model.schema)
    design = pmf.surveys.SurveyDesign(
        weights, replicates=replicates, method="Fay", fay=0.5, decimals=6
    )
    for question in ("P(v1=2)", "P(v2=3 | v0=1)", "P(v0=1 | v1=0, v2=1)"):
        found, expected = (
            model.ask(question, data, design=given).to_json()
            for data, given in ((evidence, None), (codes, design))
        )
        assert found["support"]["samples"] == expected["support"]["samples"]
        for name in ("value", "standard_error", "interval"):
            assert found[name] == pytest.approx(expected[name], rel=1e-9)


@pytest.mark.parametrize("errors", ["auto", "refit", "off"])
def test_refine__errors_are_those_of_the_design(errors, pipeline, tmp_path, workers):
    codes, weights, replicates = draw(600, 9)
    replicates[:, N // 2] = weights
    sections = {"em": EM["em"] | {"errors": errors, "max_passes": 300, "tol": 1e-12}}
    folds = {"evaluate": {"validation_folds": 0}}
    config = pipeline(make_schema(*SIZES), FAY, **(EM | sections | folds))
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    stages = run_to_model(config, workers)
    found = summary_of(config, stages["model"])["errors"]
    if errors == "off":
        assert found is None
        return
    # the training folds as they are in memory
    store, training = store_of(config), config.fold_split.train
    blocks = list_dataset_blocks(store, stages["dataset"], training)
    read = [read_block(block) for block in blocks]
    given = np.concatenate([each.to_codes(make_offsets(config)) for each in read])
    own = np.concatenate([each.weights for each in read]) / 1e6
    each = np.concatenate([read_replicates(block) for block in blocks]) / 1e6
    design = pmf.surveys.SurveyDesign(own, replicates=each, method="Fay", fay=0.5, decimals=6)
    model = load_model(config, stages["model"])
    expected = pmf.inference.standard_errors(model, given, design, method=errors)
    shares = [row for row in found["rows"] if row[0] == "share"]
    rtol = 1e-5 if errors == "auto" else 0.02
    np.testing.assert_allclose([row[5] for row in shares], expected["prior"].errors, rtol=rtol)
    np.testing.assert_allclose([row[6] for row in shares], expected["prior"].lower, rtol=rtol)


def load_counts(config, counts):
    return ReplicateCounts(store_of(config).locate(counts))


def read_tables(config, counts):
    """Tables of all replicates: those of the whole, and the differences from them."""
    folder = store_of(config).locate(counts)
    whole = pmf.PairCounts.load_total(folder / "pairs").tables[0]
    return whole + ReplicateCounts(folder).read_differences(0, N)


def to_units(values):
    return np.rint(values * 1e6).astype(np.int64)


@pytest.mark.parametrize("at_once", [8, 80])
def test_count__replicates_are_added_up_exactly(at_once, pipeline, tmp_path, workers, monkeypatch):
    monkeypatch.setattr(replicate_counts, "choose_at_once", lambda *_: at_once)
    config = pipeline(make_schema(*SIZES), FAY)
    codes, weights, replicates = draw(400, 7)
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    counts = count.fn(config, ingest.fn(config, workers), workers)
    found, tables = load_counts(config, counts), read_tables(config, counts)
    assert found.n_replicates == N
    assert (tables == group_by(codes, replicates)).all()
    # a replicate leaves out everybody of a level, and it is empty
    assert (tables[N // 2][1] == 0).all()
    more = to_units(replicates).sum(axis=0) - to_units(weights).sum()
    assert found.totals == tuple(more.tolist())


def test_count__replicates_that_add_up_to_too_much_are_refused(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), FAY)
    codes, weights, replicates = (np.tile(each.T, 90).T for each in draw(12, 8))
    replicates[:, 2] = 9e9
    write(tmp_path / "data" / "a.csv", codes, weights, replicates)
    with pytest.raises(PmfError, match="replicate"):
        count.fn(config, ingest.fn(config, workers), workers)


def test_ingest__replicates_of_nights_and_of_those_who_are_erased(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), FAY | {"sample": "id"})
    codes, weights, replicates = draw(500, 6)
    names = [f"p{row}" for row in range(500)]
    data = tmp_path / "data"
    for name, part in (("a", slice(200)), ("c", slice(200, 430))):
        path = data / f"{name}.csv"
        write(path, codes[part], weights[part], replicates[part], names[part])
    first = ingest.fn(config, workers)
    counted = first, count.fn(config, first, workers)
    # new people, and other answers and weights of people who were there
    later = [*names[:20], *names[450:]]
    write(data / "b.csv", codes[430:], weights[430:], replicates[430:], later)
    second = ingest.fn(config, workers, base=first)
    kept = np.r_[20:500]
    expected = codes[kept], to_units(weights[kept]), to_units(replicates[kept])
    assert (sort_rows(*read_all(config, second)) == sort_rows(*expected)).all()
    store = store_of(config)
    stages = {"dataset": second, "counts": count.fn(config, second, workers, counted)}
    assert summary_of(config, stages["counts"])["samples_removed"] == 20
    by_night = load_counts(config, stages["counts"])
    assert (read_tables(config, stages["counts"]) == group_by(codes[kept], replicates[kept])).all()
    # the same as of a store that has seen both files at once, bit for bit
    fresh = pipeline(make_schema(*SIZES), FAY | {"sample": "id"}, store={"path": "new", "folds": 4})
    at_once = load_counts(fresh, count.fn(fresh, ingest.fn(fresh, ""), ""))
    assert (by_night.read_differences(0, N) == at_once.read_differences(0, N)).all()
    assert by_night.totals == at_once.totals
    record_night(config, stages)
    erase(config, ["p3", "p40", "p470"])
    last = find_last_run(store, config.name).stages
    # p3 has the row of the second night
    gone = np.isin(np.arange(500), [430 + 3, 40, 470])
    kept = np.setdiff1d(kept, np.flatnonzero(gone))
    expected = codes[kept], to_units(weights[kept]), to_units(replicates[kept])
    assert (sort_rows(*read_all(config, last["dataset"])) == sort_rows(*expected)).all()
    left = load_counts(config, last["counts"])
    assert (read_tables(config, last["counts"]) == group_by(codes[kept], replicates[kept])).all()
    units = to_units(replicates[kept]).sum(axis=0) - to_units(weights[kept]).sum()
    assert left.totals == tuple(units.tolist())
