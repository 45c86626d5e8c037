"""Short forms of what a person looks at in a notebook, and a rank left to the library."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.apps import crowd
from pmflib.base import SchemaError
from pmflib.schema import as_arrow
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
    told: list[tuple[object, tuple[str, ...]]] = [
        (schema, ("Schema", "8 variables", "'v0' (2)")),
        (counts, ("PairCounts", "600 samples", "16 folds")),
        (pmf.counts.Marginals.from_counts(counts), ("Marginals", "28 of 28")),
        (result.model, ("JointPMF", "rank 2", str(result.model.origin["method"]))),
        (result, ("FitResult", repr(result.model))),
        (found.log, ("LabelLog", "2 tasks", "1 set aside")),
        (found, ("Aggregation", repr(found.log))),
    ]
    for shown, parts in told:
        assert all(part in repr(shown) for part in parts)
        assert shown is result or len(repr(shown)) < 300


def test_fit_em__rank_chosen_by_held_out_samples(codes: np.ndarray) -> None:
    result = pmf.fit_em(codes, rank="auto", rng=1)
    assert result.model.rank == 2
    assert {1, 2} <= {each.settings["rank"] for each in result.comparisons[0].points}
    fixed = pmf.fit_em(codes, rank=2, rng=1)
    np.testing.assert_array_equal(result.model.factors, fixed.model.factors)


def test_fit_em__rank_of_few_samples(codes: np.ndarray) -> None:
    result = pmf.fit_em(codes[:12], rank="auto")
    assert result.model.rank == 1


def test_fit_em__rank_for_a_target_predicts_it_best() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (800, 3))
    # two states, one per level, say nothing of a parity
    codes = np.column_stack([bits[:, 0] ^ bits[:, 1], bits])
    result = pmf.fit_em(codes[:600], rank="auto", target=0)
    assert result.model.rank >= 4
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
    with pytest.raises(pmf.PmfError, match="rank"):
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
    with pytest.raises(pmf.PmfError, match="rank"):
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
    with pytest.raises(SchemaError, match="'a'"):
        as_arrow(table)


def test_as_arrow__names_that_are_the_same_text() -> None:
    with pytest.raises(SchemaError, match="'1'"):
        as_arrow({1: [0], "1": [0]})
