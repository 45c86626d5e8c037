"""Raking as a stage: weights of stored samples against `pmflib.surveys.rake` of the same rows, night by night."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib import features
from pmflib.answering import TableRequest, count_stored_tables, open_evidence
from pmflib.base import ConfigError, PmfError, SchemaError, SourceError, StoreError
from pmflib.counts import PairCounts
from pmflib.store import (
    StoredReplicates,
    find_last_run,
    list_dataset_blocks,
    open_variance,
    read_block,
    read_replicates,
)
from pmflib_tasks.config import load_config
from pmflib_tasks.erasure.erase import erase
from pmflib_tasks.margins import MarginsConfig
from pmflib_tasks.margins.rake import list_checks, rake
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import (
    as_wide,
    draw_codes,
    make_schema,
    read_dataset,
    record_night,
    store_of,
    summary_of,
    write_pipeline,
)

SIZES = [2, 3, 4]
SCHEMA = make_schema(*SIZES)
TABLES = {"v0": {"0": 0.3, "1": 0.7}, "v1": {"0": 20, "1": 50, "2": 30}}
N = 400


def draw(seed=0, n=N, missing=0.2):
    """Codes, weights, strata and sampling units."""
    rng = np.random.default_rng(seed)
    codes = draw_codes(n, SIZES, seed=seed, missing=missing)
    return codes, (rng.gamma(2.0, 1.0, n) + 0.01).round(4), np.arange(n) // 100, np.arange(n) // 10


def write(folder, codes, tables=TABLES, source=(), name="a", **columns):
    """Write a pipeline of wide rows with further columns."""
    config = write_pipeline(
        folder, SCHEMA, {"sample": "id", **dict(source)}, margins={"tables": tables}
    )
    lines = as_wide(codes, [f"{name}{n}" for n in range(len(codes))]).splitlines()
    for header, values in columns.items():
        lines = [f"{line},{each}" for line, each in zip(lines, [header, *values], strict=True)]
    (folder / "data" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return config


def rake_all(config, address=""):
    encoded = ingest.fn(config, address)
    return encoded, rake.fn(config, encoded, address)


def read_all(config, dataset):
    """Codes, weights, replicate weights and names of all samples."""
    codes, names = read_dataset(config, dataset)
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    weights = np.concatenate([read_block(each).weights for each in blocks]) / 1e6
    replicates = [read_replicates(each) for each in blocks]
    found = None if replicates[0] is None else np.concatenate(replicates) / 1e6
    return codes, weights, found, np.array([int(name[1:]) for name in names])


def load_counts(config, counts):
    return PairCounts.load(store_of(config).locate(counts) / "pairs")


def find_variance(rows, weights, replicates, factors):
    """Variance of the share of rows by replicates."""
    share = weights[rows].sum() / weights.sum()
    return float(factors @ (replicates[rows].sum(axis=0) / replicates.sum(axis=0) - share) ** 2)


@pytest.mark.parametrize("tables", [TABLES, {"v0": {"0": 3e5, "1": 7e5}, "v1": TABLES["v1"]}])
def test_rake__weights_are_those_of_the_library(tables, tmp_path):
    codes, weights, *_ = draw()
    config = write(tmp_path, codes, tables, {"weight": "w"}, w=weights)
    encoded, raked = rake_all(config)
    found, after, replicates, order = read_all(config, raked)
    expected = pmf.surveys.rake(codes, tables, weight=weights, schema=SCHEMA).weight[order]
    np.testing.assert_array_equal(found, codes[order])
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert replicates is None
    assert open_variance(store_of(config), raked) is None
    counts = load_counts(config, count.fn(config, raked))
    assert sum(counts.weights.totals) == np.rint(after * 1e6).sum()
    assert summary_of(config, raked)["weights"] == counts.weights.merge().to_json()
    # the encoded dataset is as before
    np.testing.assert_allclose(read_all(config, encoded)[1], weights[order])


def test_rake__samples_without_weights_and_missing_answers(tmp_path):
    codes, *_ = draw(missing=0.4)
    config = write(tmp_path, codes)
    _, raked = rake_all(config)
    _, after, _, order = read_all(config, raked)
    expected = pmf.surveys.rake(codes, TABLES, schema=SCHEMA).weight[order]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert after.sum() == pytest.approx(N)
    gone = codes[order, 0] < 0
    assert after[gone].sum() == pytest.approx(gone.sum())
    assert after[codes[order, 0] == 1].sum() == pytest.approx(0.7 * (N - gone.sum()))


def test_rake__sampling_units_are_left_out_and_raked_again(tmp_path):
    codes, weights, stratum, psu = draw()
    given = {"weight": "w", "stratum": "h", "psu": "u"}
    config = write(tmp_path, codes, TABLES, given, w=weights, h=stratum, u=psu)
    _, raked = rake_all(config)
    _, after, replicates, order = read_all(config, raked)
    drawn = pmf.surveys.SurveyDesign(weights, stratum=stratum, psu=psu)
    design = pmf.surveys.rake(codes, TABLES, weight=drawn, schema=SCHEMA)
    np.testing.assert_allclose(after, design.weight[order], atol=1e-6)
    of_library = np.stack([each.weights for each in design.iterate_replicates()], axis=1)[order]
    factors = np.array([each.factor for each in design.iterate_replicates()])
    opened = open_variance(store_of(config), raked)
    assert isinstance(opened, StoredReplicates)
    stored = opened.record
    assert (stored.degrees, stored.n_columns) == (design.degrees, 40)
    for level in range(4):
        rows = codes[order, 2] == level
        found = find_variance(rows, after, replicates, stored.factors)
        assert found == pytest.approx(
            find_variance(rows, design.weight[order], of_library, factors), rel=1e-4
        )
    # tables of answers, and questions, have the effective size of these replicates
    blocks = list_dataset_blocks(store_of(config), raked, None)
    tables = count_stored_tables(
        blocks, SCHEMA, [TableRequest((2,))], design=open_variance(store_of(config), raked)
    )
    expected = design.find_effective(codes[:, 2], 4)[1]
    assert tables.weighted.sizes[0] == pytest.approx(expected, rel=1e-3)


def test_rake__given_replicates_are_raked(tmp_path):
    codes, weights, *_ = draw()
    given = weights[:, None] * np.random.default_rng(1).choice([0.5, 1.5], (N, 8))
    columns = {f"r{n}": given[:, n].round(6) for n in range(8)}
    source = {"weight": "w", "replicates": "r*", "replicate_method": "Fay", "fay": 0.5}
    config = write(tmp_path, codes, TABLES, source, w=weights, **columns)
    _, raked = rake_all(config)
    _, _, replicates, order = read_all(config, raked)
    for column in range(8):
        alone = pmf.surveys.rake(codes, TABLES, weight=given[:, column], schema=SCHEMA).weight[
            order
        ]
        found = replicates[:, column]
        np.testing.assert_allclose(found / found.sum(), alone / alone.sum(), atol=1e-8)
    np.testing.assert_allclose(replicates.sum(axis=0), weights.sum())
    count.fn(config, raked)
    opened = open_variance(store_of(config), raked)
    assert isinstance(opened, StoredReplicates)
    stored = opened.record
    np.testing.assert_allclose(stored.factors, 1 / (8 * 0.25))


def test_rake__a_replicate_without_samples_is_refused(tmp_path):
    codes, weights, *_ = draw()
    columns = {f"r{n}": weights * n for n in range(3)}
    source = {"weight": "w", "replicates": "r*", "replicate_method": "bootstrap"}
    config = write(tmp_path, codes, TABLES, source, w=weights, **columns)
    with pytest.raises(SourceError, match="replicate number 1 "):
        rake_all(config)


def test_rake__has_the_same_bits_with_workers_and_for_long_rows(tmp_path, workers):
    codes, weights, stratum, psu = draw()
    # a sample without any answer is no sample of a long log
    codes[:, 2] = np.maximum(codes[:, 2], 0)
    given = {"weight": "w", "stratum": "h", "psu": "u"}
    config = write(tmp_path, codes, TABLES, given, w=weights, h=stratum, u=psu)
    alone = rake_all(config)[1]
    found = read_all(config, alone)
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", codes, TABLES, given, w=weights, h=stratum, u=psu)
    again = rake_all(other, workers)[1]
    assert again.digest == alone.digest
    lines = ["id,item,value,w"]
    for row, weight in zip(range(N), weights, strict=True):
        cells = enumerate(codes[row].tolist())
        lines += [f"a{row},v{n},{code},{weight}" for n, code in cells if code >= 0]
    (tmp_path / "long").mkdir()
    long = {"sample": "id", "variable": "item", "value": "value", "weight": "w", "layout": "long"}
    config = write_pipeline(tmp_path / "long", SCHEMA, long, margins={"tables": TABLES})
    (tmp_path / "long" / "data" / "a.csv").write_text("\n".join(lines) + "\n")
    by_name = dict(zip(found[3].tolist(), found[1].tolist(), strict=True))
    _, after, _, order = read_all(config, rake_all(config)[1])
    np.testing.assert_allclose(after, [by_name[n] for n in order.tolist()], atol=1e-6)


def test_rake__is_resumed_and_made_again_for_other_margins(tmp_path):
    codes, *_ = draw()
    path = tmp_path / "v0.csv"
    path.write_text("v0,share\n0,.3\n1,.7\n")
    config = write_pipeline(tmp_path, SCHEMA, {"sample": "id"}, margins={"files": ["v0.csv"]})
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes, [f"a{n}" for n in range(N)]))
    encoded, first = rake_all(config)
    assert rake.fn(config, encoded) == first
    entry = store_of(config).find(first.identity)
    assert entry.options["margins"] == [{"variables": ["v0"], "shares": [0.3, 0.7], "total": None}]
    assert entry.inputs["encoded"] == encoded
    path.write_text("v0,share\n0,.4\n1,.6\n")
    assert rake.fn(config, encoded) != first


@pytest.mark.parametrize(
    ("tables", "kind", "words"),
    [
        ({"v0": {"0": 0.5, "2": 0.5}}, SchemaError, ["v0", "'2'"]),
        ({"v9": {"0": 1}}, SchemaError, ["v9"]),
        ({"v0": {"0": 0.5, "1": 0.2}}, PmfError, ["0.7"]),
        ({"v0": {"0": 1.0, "1": 0.0}}, SchemaError, ["v0=1", "nothing", "correct"]),
        ({"v0": {"0": 1, "1": 2}, "v1": {"0": 2, "1": 2, "2": 2}}, PmfError, ["totals"]),
    ],
)
def test_rake__refuses_margins_in_words(tables, kind, words, tmp_path):
    codes, *_ = draw()
    with pytest.raises(kind) as found:
        rake_all(write(tmp_path, codes, tables))
    for word in words:
        assert word in str(found.value)


def test_rake__refuses_a_level_that_no_sample_has(tmp_path):
    codes, *_ = draw()
    codes[codes[:, 1] == 2, 1] = 1
    with pytest.raises(SchemaError, match=r"v1=2 the share 0.3.*merge"):
        rake_all(write(tmp_path, codes))


def test_margins__bounds_are_checked_by_the_configuration(tmp_path):
    write(tmp_path, draw()[0])
    path = tmp_path / "pipeline.toml"
    path.write_text(
        '[source]\npath = "data"\nlayout = "wide"\n[model]\nrank = 2\n[margins]\nbounds = [1.5, 3]\n'
    )
    with pytest.raises(ConfigError, match=r"margins\.bounds"):
        load_config(path)


def test_erase__an_erased_sample_changes_the_raking(tmp_path):
    codes, weights, stratum, psu = draw()
    given = {"weight": "w", "stratum": "h", "psu": "u"}
    config = write(tmp_path, codes, TABLES, given, w=weights, h=stratum, u=psu)
    encoded, raked = rake_all(config)
    stages = {"encoded": encoded, "dataset": raked, "counts": count.fn(config, raked)}
    record_night(config, stages)
    changed = config.model_copy(update={"margins": MarginsConfig()})
    with pytest.raises(StoreError, match="margins"):
        erase(changed, ["a3"])
    erase(config, ["a3", "a7", "a200"])
    last = find_last_run(store_of(config), config.name).stages
    assert not {each.identity for each in last.values()} & {x.identity for x in stages.values()}
    assert store_of(config).find(raked.identity) is None
    kept = np.delete(np.arange(N), [3, 7, 200])
    _, after, _, order = read_all(config, last["dataset"])
    assert sorted(order.tolist()) == kept.tolist()
    expected = pmf.surveys.rake(codes[kept], TABLES, weight=weights[kept], schema=SCHEMA).weight
    np.testing.assert_allclose(after[np.argsort(order)], expected, atol=1e-6)
    counts = load_counts(config, last["counts"])
    assert sum(counts.weights.totals) == np.rint(after * 1e6).sum()


def test_evidence__answers_are_of_the_raked_samples(tmp_path):
    codes, weights, stratum, psu = draw(missing=0.0)
    given = {"weight": "w", "stratum": "h", "psu": "u"}
    config = write(tmp_path, codes, TABLES, given, w=weights, h=stratum, u=psu)
    encoded, raked = rake_all(config)
    store = store_of(config)
    drawn = pmf.surveys.SurveyDesign(weights, stratum=stratum, psu=psu)
    design = pmf.surveys.rake(codes, TABLES, weight=drawn, schema=SCHEMA)
    model = pmf.fit_em(codes, rank=2, schema=SCHEMA, weight=design).model
    made = count.fn(config, raked)
    record_night(config, {"encoded": encoded, "dataset": raked, "counts": made, "model": made})
    stored = open_evidence(store, config.name, made, SCHEMA)
    for question in ("P(v2)", "P(v2=1 | v0=1)"):
        answer = model.ask(question, stored, source="counts")
        expected = model.ask(question, codes, design=design, source="counts")
        np.testing.assert_allclose(answer.numbers, expected.numbers, atol=2e-3)
        np.testing.assert_allclose(answer.intervals, expected.intervals, atol=5e-3)


def test_rake__is_the_same_in_a_bucket(bucket, tmp_path):
    codes, weights, stratum, psu = draw()
    given = {"weight": "w", "stratum": "h", "psu": "u"}
    config = write(tmp_path, codes, TABLES, given, w=weights, h=stratum, u=psu)
    here = read_all(config, rake_all(config)[1])
    store = config.store.model_copy(update={"path": f"s3://{bucket}/store"})
    there = config.model_copy(update={"store": store})
    raked = rake_all(there)[1]
    blocks = list_dataset_blocks(store_of(there), raked, None)
    found = np.concatenate([read_block(each).weights for each in blocks]) / 1e6
    np.testing.assert_array_equal(found, here[1])
    replicates = np.concatenate([read_replicates(each) for each in blocks]) / 1e6
    np.testing.assert_array_equal(replicates, here[2])


def test_raked_weights_are_refused_without_the_feature(tmp_path, monkeypatch):
    config = write(tmp_path, draw_codes(N, SIZES))
    encoded, raked = rake_all(config)
    monkeypatch.setattr(features, "FEATURES", ())
    assert list_dataset_blocks(store_of(config), encoded, None)
    with pytest.raises(StoreError, match="changes the weights of its samples by 'raking'"):
        list_dataset_blocks(store_of(config), raked, None)


def test_list_checks__margins_that_do_not_fit_the_schema(tmp_path):
    codes = draw_codes(9, SIZES)
    assert list(list_checks(write(tmp_path, codes, {}))) == []
    (check,) = list_checks(write(tmp_path, codes))
    assert (check.function().state, check.function().found) == ("ok", "of v0, v1")
    (check,) = list_checks(write(tmp_path, codes, {"v9": {"0": 1.0}}))
    with pytest.raises(PmfError, match="v9"):
        check.function()
