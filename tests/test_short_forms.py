"""Short forms of what a person looks at in a notebook, and a rank left to the library."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib import crowd
from pmflib.core.errors import SchemaError
from pmflib.schema.tables import as_arrow
from tests.factories import draw_two_states


@pytest.fixture(scope="module")
def codes():
    return draw_two_states(600, 8)


def test_repr__short_and_telling(codes: np.ndarray) -> None:
    schema = pmf.Schema.from_cardinalities([2] * 8)
    counts = pmf.count_pairs(codes, schema)
    result = pmf.fit_em(codes, rank=2, schema=schema)
    table = {"task": [1, 1, 1, 2, 2, 2], "worker": list("abcabb"), "label": list("xxyyyx")}
    found = crowd.aggregate(table)
    assert repr(schema) == (
        "Schema(8 variables, 16 levels: 'v0' (2), 'v1' (2), 'v2' (2), 'v3' (2), 'v4' (2), 'v5' (2), ...)"
    )
    assert repr(counts) == "PairCounts(600 samples, 8 variables, 16 levels, 16 folds)"
    assert (
        repr(pmf.Marginals.from_counts(counts))
        == "Marginals(8 variables, 16 levels, 28 of 28 pairs observed)"
    )
    method = result.model.origin["method"]
    assert repr(result.model) == f"JointPMF(rank 2, 8 variables, 16 levels, method {method!r})"
    assert repr(result).startswith(f"FitResult({result.model!r}, {len(result.loss_history)} passes")
    assert repr(found.log) == "LabelLog(2 tasks, 3 workers, 2 classes, 5 labels, 1 set aside)"
    assert repr(found).startswith(f"Aggregation({found.log!r}, method 'auto', ")
    assert all(len(repr(each)) < 300 for each in (schema, counts, result.model, found))


def test_fit_em__rank_chosen_by_held_out_samples(codes: np.ndarray) -> None:
    result = pmf.fit_em(codes, rank="auto", rng=1)
    assert result.model.rank == 2
    compared = {
        (each.settings["kind"], each.settings["rank"]) for each in result.comparisons[0].points
    }
    assert {("classes", 1), ("classes", 2), ("forests", 1)} <= compared
    assert result.notes[0].startswith(
        f"classes, forests and traits: {result.comparisons[0].reason}; traits were given up at 2, "
    )
    fixed = pmf.fit_em(codes, rank=2, rng=1)
    np.testing.assert_array_equal(result.model.factors, fixed.model.factors)


def test_fit_em__rank_of_few_samples(codes: np.ndarray) -> None:
    result = pmf.fit_em(codes[:12], rank="auto")
    assert result.model.rank == 1
    assert result.notes[0] == "rank 1: too few samples or variables to choose another"


def test_fit_em__rank_for_a_target_predicts_it_best() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (800, 3))
    # two states, one per level, say nothing of a parity
    codes = np.column_stack([bits[:, 0] ^ bits[:, 1], bits])
    result = pmf.fit_em(codes[:600], rank="auto", target=0)
    assert result.model.rank >= 4
    assert result.notes[0] == result.comparisons[0].reason
    assert (result.model.predict(codes[600:], 0) == codes[600:, 0]).mean() > 0.95
    few = pmf.fit_em(codes[:30], rank="auto", target=0)
    assert few.model.rank == 2


def test_fit_em__rank_for_a_target_judged_by_samples_that_are_given() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (800, 3))
    codes = np.column_stack([bits[:, 0] ^ bits[:, 1], bits])
    result = pmf.fit_em(codes[:400], rank="auto", target=0, validation=codes[400:])
    assert result.model.rank >= 4
    assert max(result.held_out) > -0.2


def test_fit__rank_chosen_by_pairs(codes: np.ndarray) -> None:
    counts = pmf.count_pairs(codes)
    result = pmf.fit(counts, rank="auto", rng=1)
    assert result.model.rank == 2
    assert "best held-out log-likelihood per pair" in result.notes[0]
    with pytest.raises(pmf.PmfError, match="rank is 'many', a str; give a whole number"):
        pmf.fit(counts, rank="many")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_fit_em__frame_without_a_schema(make) -> None:
    rows = {"smokes": ["yes", "no", None, "no"] * 25, "visits": [3, 0, 1, 0] * 25}
    result = pmf.fit_em(make(rows), rank=2)
    assert result.model.schema.names == ("smokes", "visits")
    assert result.model.schema["visits"].values == (0.0, 1.0, 3.0)
    counts = pmf.count_pairs(make(rows))
    assert counts.schema == result.model.schema
    assert counts.to_dense()[0, 2] == 50


def test_fit_em__unknown_word_for_rank(codes: np.ndarray) -> None:
    with pytest.raises(pmf.PmfError, match="rank is 'many'; give a number, or 'auto'"):
        pmf.fit_em(codes, rank="many")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pa.table([pa.array([1])] * 3, names=["a", "b", "a"]),
        pa.record_batch([pa.array([1])] * 3, names=["a", "b", "a"]),
    ],
)
def test_as_arrow__columns_of_one_name(table: object) -> None:
    with pytest.raises(SchemaError, match=r"columns named more than once: \['a'\]; rename or drop"):
        as_arrow(table)


def test_as_arrow__names_that_are_the_same_text() -> None:
    with pytest.raises(SchemaError, match=r"more than once: .*'1'"):
        as_arrow({1: [0], "1": [0]})
