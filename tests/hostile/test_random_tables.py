"""No exception of another library reaches a user, whatever table goes through whatever door."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pmflib as pmf

PARTS = {
    "texts": lambda rng, n: rng.choice(["a", "b", "c"], n).astype(object),
    "integers": lambda rng, n: rng.choice([1, 2, 7, 99], n),
    "small integers": lambda rng, n: rng.integers(-1, 3, n).astype(np.int8),
    "unsigned": lambda rng, n: rng.integers(0, 3, n).astype(np.uint64),
    "floats": lambda rng, n: rng.normal(size=n),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.5, np.inf, 1.0),
    "booleans": lambda rng, n: rng.random(n) < 0.5,
    "mixed": lambda rng, n: [rng.choice([1, "a", 2.5]) if k % 2 else k for k in range(n)],
    "bytes": lambda rng, n: [b"a", b"\xff"][: 1 + n % 2] * (n // (1 + n % 2)),
    "dates": lambda rng, n: pd.date_range("2024-01-01", periods=n),
    "zoned": lambda rng, n: pd.date_range("2024-01-01", periods=n, tz="Europe/Berlin"),
    "spans": lambda rng, n: pd.to_timedelta(np.arange(n), unit="h"),
    "periods": lambda rng, n: pd.period_range("2024-01", periods=n, freq="M"),
    "intervals": lambda rng, n: pd.cut(np.arange(n), 3) if n else pd.array([], object),
    "lists": lambda rng, n: [[1, 2]] * n,
    "structs": lambda rng, n: [{"x": 1}] * n,
    "sets": lambda rng, n: [{1, k} for k in range(n)],
    "objects": lambda rng, n: [object() for _ in range(n)],
    "complex": lambda rng, n: np.arange(n) * 1j,
    "categories": lambda rng, n: pd.Categorical(rng.choice(["x", "y"], n), ["z", "y", "x"]),
    "nullable": lambda rng, n: pd.array(rng.integers(0, 3, n), "Int64"),
    "sparse": lambda rng, n: pd.arrays.SparseArray(rng.integers(0, 2, n)),
    "nothing": lambda rng, n: [None] * n,
    "constant": lambda rng, n: ["same"] * n,
    "identifiers": lambda rng, n: [f"id{k}" for k in range(n)],
    "decimals": lambda rng, n: pa.array([f"{k % 3}.50" for k in range(n)]).cast(pa.decimal128(9, 2)).to_pylist(),
    "long texts": lambda rng, n: ["x" * 5000] * n,
}  # fmt: skip
NAMES = ["a", "b", "", "task", "worker", "label", "v0", "x0", 0, 1, 2.5, None, ("a", 1), "größe"]
INDEXES = ["range", "shuffled", "texts", "repeated"]


@st.composite
def tables(draw):
    """A frame of pandas or polars, an Arrow table, an array or a mapping, of drawn columns, names and rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.sampled_from([0, 1, 2, 5, 40]))
    kinds = draw(st.lists(st.sampled_from(sorted(PARTS)), max_size=4))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(kinds), max_size=len(kinds)))
    columns = [pd.Series(PARTS[kind](rng, n_rows)) for kind in kinds]
    if draw(st.booleans()):
        columns = [each.where(rng.random(len(each)) > 0.2) for each in columns]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n_rows))
    frame.columns = pd.Index(names, dtype=object)
    index = draw(st.sampled_from(INDEXES))
    if index == "shuffled":
        frame = frame.sample(frac=1, random_state=1)
    elif index != "range":
        frame.index = ["r" if index == "repeated" else f"r{k}" for k in range(len(frame))]
    kind = draw(st.sampled_from(["pandas", "polars", "arrow", "array", "mapping"]))
    try:
        if kind == "polars":
            return pl.from_pandas(frame.set_axis(map(str, names), axis=1))
        if kind == "arrow":
            return pa.Table.from_pandas(frame.set_axis(map(str, names), axis=1))
    except Exception:
        # what these libraries refuse themselves is given as a frame of pandas
        return frame
    if kind == "array":
        return frame.to_numpy()
    return dict(zip(names, columns, strict=True)) if kind == "mapping" else frame


def regress(table):
    codes = np.random.default_rng(0).integers(0, 2, (40, 4))
    model = pmf.fit_em(codes, rank=2, pseudo_count=1.0, max_passes=5).model
    return pmf.inference.class_regression(model, codes, table)


KNOWN = pmf.fit_em({"a": ["a", "b", "c"] * 9, "b": [1, 2, 7] * 9}, rank=1, max_passes=3).model
DOORS: dict[str, Any] = {
    "fit_em": lambda table: pmf.fit_em(table, rank=1, max_passes=2),
    "fit_em, weight": lambda table: pmf.fit_em(
        {"a": ["x", "y"] * 20}, rank=1, max_passes=2, weight=table
    ),
    "count_pairs": pmf.count_pairs,
    "fit_traits": lambda table: pmf.families.fit_traits(table, dimensions=0),
    "infer": pmf.Schema.infer,
    "log_prob": KNOWN.log_prob,
    "ask": lambda table: pmf.answering.ask(KNOWN, "P(a=a)", table),
    "aggregate": lambda table: pmf.crowd.aggregate(table, "majority"),
    "known": lambda table: pmf.crowd.aggregate(
        {"task": [1, 1, 2], "worker": [1, 2, 1], "label": ["a", "b", "b"]}, "majority", known=table
    ),
    "class_regression": regress,
    "imputer": lambda table: pmf.PMFImputer(1).fit(table).transform(table),
    "density": lambda table: pmf.apps.PMFDensity(1).fit(table).sample(2),
    "classifier": lambda table: pmf.PMFClassifier(1).fit(table, ["x", "y"] * 20),
    "classes": lambda table: pmf.PMFClassifier(1).fit(np.ones((40, 1)), table),
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@given(table=tables(), data=st.data())
def test_tables__no_exception_of_another_library_reaches_a_user(table, data):
    for name in data.draw(
        st.lists(st.sampled_from(sorted(DOORS)), min_size=3, max_size=3, unique=True)
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                DOORS[name](table)
            except pmf.PmfError:
                continue
