"""Mistakes of new users in a notebook are errors of this library that name what was given or what is near it."""

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pmflib.base import list_near, suggest

# the mistakes are of types, among others
pmf: Any = importlib.import_module("pmflib")

LEVELS = {"smokes": ["no", "yes"], "visits": ["0", "1", "2"], "town": ["Lyon", "Nice", "Paris"]}


@pytest.fixture(scope="module")
def at():
    """A table of 100 rows, its schema, codes and counts, and a model of it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(levels, 100) for name, levels in LEVELS.items()})
    schema = pmf.Schema(tuple(pmf.Variable(name, tuple(levels)) for name, levels in LEVELS.items()))
    codes = schema.encode(table)
    counts = pmf.count_pairs(codes, schema)
    model = pmf.fit(counts, 2, method="spa").model
    return SimpleNamespace(table=table, schema=schema, codes=codes, counts=counts, model=model)


DRAFTING = pytest.mark.needs("surveys.drafting")

MISTAKES = [
    (lambda at: at.schema["Smokes"], "smokes"),
    (lambda at: at.schema[["smokes"]], "list"),
    (lambda at: at.schema[3], "3"),
    (lambda at: at.schema.encode(at.table.rename(columns={"town": "Town"})), "Town"),
    (lambda at: at.schema.encode(at.table.assign(town="lyon")), "Lyon"),
    (lambda at: at.schema.encode(at.codes + 1), "codes"),
    (lambda at: at.schema.encode(np.where(at.codes == 1, 99, at.codes)), "99"),
    (lambda at: at.schema.encode(at.codes * 1.0), "codes"),
    (lambda at: at.schema.encode(at.codes[0]), "codes"),
    (lambda at: at.schema.encode(at.table["town"]), "to_frame"),
    (lambda at: at.schema.encode(at.table.iloc[0].to_dict()), "row"),
    (lambda at: at.schema.encode(at.table, optional=["towns"]), "town"),
    (lambda at: at.schema.decode(at.table), "encode"),
    pytest.param(lambda at: pmf.Schema.infer("survey.csv"), "file", marks=DRAFTING),
    pytest.param(lambda at: pmf.Schema.infer([["yes", 1]]), "DataFrame", marks=DRAFTING),
    (lambda at: pmf.Schema(("a", "b")), "Variable"),
    (lambda at: pmf.Variable("a", "yes"), "levels"),
    (lambda at: pmf.Schema.from_cardinalities(4), "cardinalities"),
    (lambda at: pmf.count_pairs(at.schema, at.codes), "samples"),
    (lambda at: pmf.count_pairs(at.table, [2, 3, 3]), "schema"),
    (lambda at: pmf.count_pairs(at.codes, ["a", "b", "c"]), "numbers"),
    (lambda at: pmf.count_pairs(at.codes, at.schema, n_folds=2.0), "n_folds"),
    (lambda at: 1 + at.counts, "int"),
    (lambda at: pmf.fit(at.codes, 2), "counts"),
    (lambda at: pmf.fit(at.counts, 2.0), "rank"),
    (lambda at: pmf.fit(at.counts, 2, method="Sym-NMF"), "symnmf"),
    (lambda at: pmf.fits.select_rank(at.codes), "counts"),
    (lambda at: pmf.fits.select_rank(at.counts, ranks=5), "ranks"),
    (lambda at: pmf.fits.fit_triples(at.counts, 2), "TripleCounts"),
    (lambda at: pmf.fit_em(at.codes, 2), "rank=2"),
    (lambda at: pmf.fit_em(at.codes, pmf.fit(at.counts, 2, method="spa")), "model"),
    (lambda at: pmf.fit_em(at.counts, rank=2), "samples"),
    (lambda at: pmf.fit_em(at.codes, rank=2.5), "rank"),
    (lambda at: pmf.fit_em(at.codes, effort="norml"), "normal"),
    (lambda at: pmf.fit_em(at.codes, rank=2, schema=[2, 3]), "from_cardinalities"),
    (lambda at: pmf.fit_em(at.codes, rank=2, pseudo_count="no"), "pseudo_count"),
    (lambda at: pmf.fits.distil(2, 2), "average"),
    (lambda at: at.model.predict_proba(at.table, "Town"), "town"),
    (lambda at: at.model.marginal("town"), "town"),
    (lambda at: at.model.marginal(["town"], given="smokes=yes"), "variable"),
    (lambda at: at.model.marginal(["town"], given={"smokes": "Yes"}), "yes"),
    (lambda at: at.model.sample(10.0, 0), "n_rows"),
    (lambda at: at.model.log_prob("survey.csv"), "file"),
    (lambda at: pmf.JointPMF(at.model.prior, at.model.factors, [2]), "Schema"),
]


@pytest.mark.parametrize(("call", "named"), MISTAKES)
def test_message__names_what_is_meant(call, named, at):
    with pytest.raises(pmf.PmfError, match=named):
        call(at)


def test_message__files_and_names_of_the_library(at, tmp_path):
    at.model.save(tmp_path / "model.zarr")
    at.schema.save(tmp_path / "schema.json")
    with pytest.raises(pmf.PmfError, match=r"model\.zarr"):
        pmf.JointPMF.load(tmp_path / "modle.zarr")
    with pytest.raises(pmf.PmfError, match=r"schema\.json"):
        pmf.Schema.load(tmp_path / "shema.json")
    with pytest.raises(pmf.PmfError, match=r"model\.zarr"):
        at.model.save(tmp_path / "model.zarr")
    with pytest.raises(pmf.PmfError, match="nowhere"):
        pmf.JointPMF.load(tmp_path / "nowhere" / "model.zarr")
    with pytest.raises(AttributeError, match="fit_em"):
        _ = pmf.fitem


def test_sum__adds_up_counts(at):
    np.testing.assert_array_equal(sum([at.counts, at.counts]).tables, 2 * at.counts.tables)


def test_list_near__folds_case_and_separators_and_is_bounded():
    assert list_near("Num Visits", ["num_visits", "town"]) == ["num_visits"]
    assert list_near(3, ["3"]) == []
    assert suggest("zzz", ["town"]) == ""
    assert list_near("name5", (f"name{n}" for n in range(10**7)), 1) == ["name5"]
