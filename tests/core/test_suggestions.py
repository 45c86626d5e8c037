"""Mistakes that new users make in a notebook: what the message says, and that it is an error of this library."""

import importlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pmflib.core.texts import list_near, suggest

# the mistakes are of types, among others
pmf: Any = importlib.import_module("pmflib")
crowd: Any = importlib.import_module("pmflib.crowd")

LEVELS = {"smokes": ["no", "yes"], "visits": ["0", "1", "2"], "town": ["Lyon", "Nice", "Paris"]}
ONE = {"task": [1, 1], "worker": ["a", "b"], "label": ["x", "y"]}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: rng.choice(levels, 100) for name, levels in LEVELS.items()})


@pytest.fixture(scope="module")
def schema():
    return pmf.Schema(tuple(pmf.Variable(name, tuple(levels)) for name, levels in LEVELS.items()))


@pytest.fixture(scope="module")
def codes(schema, table):
    return schema.encode(table)


@pytest.fixture(scope="module")
def counts(schema, codes):
    return pmf.count_pairs(codes, schema)


@pytest.fixture(scope="module")
def model(counts):
    return pmf.fit(counts, 2, method="spa").model


SCHEMA = [
    (lambda schema, table, codes: schema["Smokes"], r"did you mean \['smokes'\]"),
    (lambda schema, table, codes: schema[["smokes"]], r"a list; give one name, or an index"),
    (lambda schema, table, codes: schema[3], r"outside \[0, 3\); indices count from 0"),
    (
        lambda schema, table, codes: schema.encode(table.rename(columns={"town": "Town"})),
        r"column 'town' is absent.*did you mean \['Town'\]",
    ),
    (
        lambda schema, table, codes: schema.encode(table.assign(town="lyon")),
        r"'lyon' is no level.*did you mean \['Lyon'\]",
    ),
    (lambda schema, table, codes: schema.encode(codes + 1), "count from 1, subtract 1"),
    (
        lambda schema, table, codes: schema.encode(np.where(codes == 1, 99, codes)),
        r"outside \[-1, .*codes\[codes == 99\] = -1",
    ),
    (lambda schema, table, codes: schema.encode(codes * 1.0), r"np.where\(np.isnan\(codes\), -1"),
    (lambda schema, table, codes: schema.encode(table.to_numpy()), "a table with named columns"),
    (lambda schema, table, codes: schema.encode(codes[0]), r"a single row is codes\[None, :\]"),
    (lambda schema, table, codes: schema.encode(table["town"]), r"table.to_frame\(\)"),
    (lambda schema, table, codes: schema.encode(table.iloc[0].to_dict()), "also for a single row"),
    (lambda schema, table, codes: schema.encode(table, optional=["towns"]), r"\['town'\]"),
    (lambda schema, table, codes: schema.decode(table), r"schema.encode\(table\)"),
    (lambda schema, table, codes: pmf.Schema.infer("survey.csv"), "read the file first"),
    (lambda schema, table, codes: pmf.Schema.infer([["yes", 1]]), "pandas.DataFrame"),
    (lambda schema, table, codes: pmf.Schema(("a", "b")), r"give a pmflib.Variable"),
    (lambda schema, table, codes: pmf.Variable("a", "yes"), r"levels 'yes'; give a list of texts"),
    (lambda schema, table, codes: pmf.Schema.from_cardinalities(4), "cardinalities is an int 4"),
]

COUNTS = [
    (lambda schema, table, codes: pmf.count_pairs(schema, codes), "pass the samples first"),
    (
        lambda schema, table, codes: pmf.count_pairs(table, [2, 3, 3]),
        "give a table with its schema",
    ),
    (lambda schema, table, codes: pmf.count_pairs(codes, ["a", "b", "c"]), "whole numbers"),
    (lambda schema, table, codes: pmf.count_pairs(codes, schema, n_folds=2.0), "n_folds is 2.0"),
]


@pytest.mark.parametrize(("call", "message"), SCHEMA + COUNTS)
def test_message__schema_and_counts(call, message, schema, table, codes):
    with pytest.raises(pmf.PmfError, match=message):
        call(schema, table, codes)


FITS = [
    (lambda codes, counts, model: pmf.fit(codes, 2), "counts is an ndarray; give PairCounts"),
    (lambda codes, counts, model: pmf.fit(counts, 2.0), "rank is 2.0, a float; give a whole"),
    (lambda codes, counts, model: pmf.fit(counts, 2, method="Sym-NMF"), "did you mean 'symnmf'"),
    (lambda codes, counts, model: pmf.select_rank(codes), "counts is an ndarray"),
    (lambda codes, counts, model: pmf.select_rank(counts, ranks=5), "give a list of ranks"),
    (lambda codes, counts, model: pmf.fit_triples(counts, 2), "give TripleCounts"),
    (lambda codes, counts, model: pmf.fit_em(codes, 2), r"use rank=2"),
    (
        lambda codes, counts, model: pmf.fit_em(codes, pmf.fit(counts, 2, method="spa")),
        "model=result.model",
    ),
    (lambda codes, counts, model: pmf.fit_em(counts, rank=2), "fit_em takes samples"),
    (lambda codes, counts, model: pmf.fit_em(codes, rank=2.5), "rank is 2.5"),
    (lambda codes, counts, model: pmf.fit_em(codes), r"fit_em\(samples, rank=8\)"),
    (lambda codes, counts, model: pmf.fit_em(codes, rank=2, schema=[2, 3]), "from_cardinalities"),
    (lambda codes, counts, model: pmf.fit_em(codes, rank=2, pseudo_count="no"), "or 'auto'"),
    (lambda codes, counts, model: pmf.distil(2, 2), "average is an int"),
]


@pytest.mark.parametrize(("call", "message"), FITS)
def test_message__fits(call, message, codes, counts, model):
    with pytest.raises(pmf.PmfError, match=message):
        call(codes, counts, model)


MODEL = [
    (lambda model, table: model.predict_proba(table, "Town"), r"did you mean \['town'\]"),
    (lambda model, table: model.marginal("town"), r"give a list: \['town'\]"),
    (lambda model, table: model.marginal(["town"], given="smokes=yes"), "a level by variable"),
    (lambda model, table: model.marginal(["town"], given={"smokes": "Yes"}), r"\['yes'\]"),
    (lambda model, table: model.sample(10.0, 0), "n_rows is 10.0, a float; give a whole number"),
    (lambda model, table: model.log_prob("survey.csv"), "read the file first"),
    (lambda model, table: pmf.JointPMF(model.prior, model.factors, [2]), "give a pmflib.Schema"),
]


@pytest.mark.parametrize(("call", "message"), MODEL)
def test_message__model(call, message, model, table):
    with pytest.raises(pmf.PmfError, match=message):
        call(model, table)


AGGREGATE = [
    ({"Task": [1], "worker": ["a"], "Label": ["x"]}, {}, r"rename\(columns={'Task': 'task'"),
    ([(1, "a", "x")], {}, "pandas.DataFrame"),
    (ONE, {"method": "dawid-skene"}, "did you mean 'dawid_skene'"),
    (ONE, {"classes": 2}, "give a list of the"),
    (ONE, {"classes": ["p", "q"]}, r"no label .* is among them.*\['x', 'y'\]"),
    ({**ONE, "label": [["x"], ["y"]]}, {}, "one label per row"),
]


@pytest.mark.parametrize(("labels", "options", "message"), AGGREGATE)
def test_message__aggregate(labels, options, message):
    with pytest.raises(pmf.PmfError, match=message):
        crowd.aggregate(labels, **options)


def test_message__files(counts, model, schema, tmp_path):
    model.save(tmp_path / "model.zarr")
    schema.save(tmp_path / "schema.json")
    with pytest.raises(pmf.PmfError, match=r"did you mean \['.*model.zarr'\]"):
        pmf.JointPMF.load(tmp_path / "modle.zarr")
    with pytest.raises(pmf.PmfError, match=r"did you mean \['.*schema.json'\]"):
        pmf.Schema.load(tmp_path / "shema.json")
    with pytest.raises(pmf.PmfError, match="exists already"):
        model.save(tmp_path / "model.zarr")
    with pytest.raises(pmf.PmfError, match="cannot be read either"):
        pmf.JointPMF.load(tmp_path / "nowhere" / "model.zarr")


def test_message__names_of_the_library():
    with pytest.raises(AttributeError, match="did you mean"):
        _ = pmf.fitem


def test_sum__adds_up_counts(counts):
    np.testing.assert_array_equal(sum([counts, counts]).tables, 2 * counts.tables)
    with pytest.raises(pmf.PmfError, match="an int cannot join PairCounts"):
        1 + counts


def test_list_near__folds_case_and_separators_and_is_bounded():
    assert list_near("Num Visits", ["num_visits", "town"]) == ["num_visits"]
    assert list_near(3, ["3"]) == []
    assert suggest("zzz", ["town"]) == ""
    assert list_near("name5", (f"name{n}" for n in range(10**7)), 1) == ["name5"]
