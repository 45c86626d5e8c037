import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.families.forests import TreePMF


def draw_rows(n_rows=400, share_missing=0.2, seed=0):
    """Columns of several kinds that all follow one hidden side."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n_rows)
    noisy = [np.where(rng.random(n_rows) < 0.95, side, 1 - side) for _ in range(6)]
    columns = {
        "colour": np.array(["red", "blue"])[noisy[0]].tolist(),
        "is_new": [bool(value) for value in noisy[1]],
        "stars": [int(value) for value in 1 + 4 * noisy[2]],
        "price": np.round(10 + 90 * noisy[3] + rng.random(n_rows), 2).tolist(),
        "grade": np.array(["low", "high"])[noisy[4]].tolist(),
        "size": np.array(["S", "L"])[noisy[5]].tolist(),
    }
    hidden = rng.random((n_rows, len(columns))) < share_missing
    given = {
        name: [
            None if hide else value for value, hide in zip(values, hidden[:, position], strict=True)
        ]
        for position, (name, values) in enumerate(columns.items())
    }
    return columns, given, hidden


def make_pandas(given):
    frame = pd.DataFrame(given)
    return frame.astype(
        {
            "is_new": "boolean",
            "stars": "Int64",
            "grade": pd.CategoricalDtype(["low", "high", "never"], ordered=True),
            "size": "string",
        }
    )


def make_polars(given):
    grade = pl.Enum(["low", "high", "never"])
    return pl.DataFrame(given).with_columns(
        pl.col("grade").cast(grade), pl.col("size").cast(pl.Categorical)
    )


@pytest.mark.parametrize("make", [make_pandas, make_polars, pa.table])
@pytest.mark.parametrize("strategy", ["mode", "draw"])
def test_fit_transform__own_levels_and_dtypes(make, strategy):
    columns, given, hidden = draw_rows()
    frame = make(given)
    filled = pmf.PMFImputer(rank=2, strategy=strategy).fit_transform(frame)
    assert type(filled) is type(frame)
    if isinstance(frame, pd.DataFrame):
        assert (filled.dtypes == frame.dtypes).all()
        assert filled.index.equals(frame.index)
    else:
        assert filled.schema == frame.schema
    got = (
        filled.to_pydict()
        if isinstance(filled, pa.Table)
        else {n: list(filled[n]) for n in columns}
    )
    for position, (name, truth) in enumerate(columns.items()):
        kept = [got[name][row] == truth[row] for row in np.flatnonzero(~hidden[:, position])]
        assert all(kept)
        guessed = [got[name][row] for row in np.flatnonzero(hidden[:, position])]
        assert set(guessed) <= set(truth)
        right = [
            (a > 50) == (b > 50) if name == "price" else a == b
            for a, b in zip(
                guessed, (truth[row] for row in np.flatnonzero(hidden[:, position])), strict=True
            )
        ]
        # what is most probable is right more often than what is drawn
        assert np.mean(right) > (0.8 if strategy == "mode" else 0.65)


def test_transform__frame_is_not_changed_in_place():
    _, given, _ = draw_rows()
    frame = make_pandas(given)
    before = frame.copy()
    pmf.PMFImputer(rank=2).fit_transform(frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("make", [make_pandas, make_polars, pa.table])
def test_transform__means_of_numbers_and_modes_of_the_others(make):
    columns, given, hidden = draw_rows()
    filled = pmf.PMFImputer(rank=2, strategy="mean").fit_transform(make(given))
    stars = np.asarray(filled["stars"], np.float64)
    guessed, truth = stars[hidden[:, 2]], np.array(columns["stars"])[hidden[:, 2]]
    assert ((1 < guessed) & (guessed < 5)).all()
    assert np.sqrt(np.mean((guessed - truth) ** 2)) < 1.5
    texts = filled["colour"].to_pylist() if isinstance(filled, pa.Table) else list(filled["colour"])
    assert set(texts) == {"red", "blue"}


def test_transform__draws_follow_the_probabilities():
    columns, given, _ = draw_rows(2000, 0.3)
    imputer = pmf.PMFImputer(rank=2, strategy="draw", random_state=3)
    filled = imputer.fit_transform(pd.DataFrame(given))
    both = np.mean((filled["colour"] == "red") == (filled["size"] == "S"))
    truth = np.mean(
        [
            (a == "red") == (b == "S")
            for a, b in zip(columns["colour"], columns["size"], strict=True)
        ]
    )
    assert both == pytest.approx(truth, abs=0.03)
    # the same seed, the same draws
    pd.testing.assert_frame_equal(filled, imputer.transform(pd.DataFrame(given)))


def test_transform__arrays_keep_their_dtype():
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, (300, 1))
    table = np.repeat(side, 5, axis=1).astype(np.float32)
    table[rng.random(table.shape) < 0.1] = np.nan
    filled = pmf.PMFImputer(rank=2).fit_transform(table)
    assert filled.dtype == np.float32
    assert (filled == filled[:, :1]).all()
    texts = np.where(np.isnan(table), None, np.where(table == 1, "yes", "no")).astype(object)
    guessed = pmf.PMFImputer(rank=2).fit_transform(texts)
    assert guessed.dtype == object
    assert (guessed == np.where(filled == 1, "yes", "no")).all()


def test_fit__column_of_mixed_types_keeps_its_values():
    frame = pd.DataFrame({"a": [1, "one", None, 1] * 20, "b": ["x", "y", "x", "x"] * 20})
    filled = pmf.PMFImputer(rank=2).fit_transform(frame)
    assert filled["a"].tolist() == [1, "one", 1, 1] * 20


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_fit__column_without_a_value_passes_through(make):
    rows = {
        "a": ["x", "y", None] * 20,
        "b": [None] * 60,
        "c": [1, 2, 1] * 20,
        "one": ["z", None, "z"] * 20,
    }
    with pytest.warns(pmf.errors.SchemaWarning, match="'b'"):
        imputer = pmf.PMFImputer(rank=2).fit(make(rows))
    filled = imputer.transform(make(rows))
    got = filled.to_pydict() if isinstance(filled, pa.Table) else {n: list(filled[n]) for n in rows}
    assert got["a"][2] == "x"
    assert all(value is None or value != value for value in got["b"])
    # a column of one level has nothing else to say
    assert set(got["one"]) == {"z"}


def test_fit__two_rows():
    frame = pd.DataFrame({"a": ["x", "x"], "b": [1.0, np.nan]})
    filled = pmf.PMFImputer().fit_transform(frame)
    assert filled["b"].tolist() == [1.0, 1.0]


def test_fit__nothing_but_missing():
    with pytest.raises(SchemaError):
        pmf.PMFImputer().fit(pd.DataFrame({"a": [None, None]}))


def test_transform__new_level_stays_and_counts_as_missing():
    frame = pd.DataFrame({"a": ["x", "y"] * 30, "b": ["u", "v"] * 30})
    imputer = pmf.PMFImputer(rank=2).fit(frame)
    with pytest.warns(pmf.errors.SchemaWarning, match="'a' has 'z'"):
        filled = imputer.transform(pd.DataFrame({"a": ["z", "x"], "b": ["u", None]}))
    assert filled["a"].tolist() == ["z", "x"]
    assert filled["b"].tolist() == ["u", "u"]


def test_transform__new_level_belongs_to_other_where_there_is_one():
    schema = pmf.Schema(
        (
            pmf.Variable("a", ("x", "other"), other="other"),
            pmf.Variable("b", ("u", "v"), missing=("99",)),
        )
    )
    frame = pd.DataFrame({"a": ["x", "q", "r"] * 30, "b": ["u", "v", "99"] * 30})
    filled = pmf.PMFImputer(rank=2, schema=schema).fit_transform(frame)
    # what the schema says is missing is filled
    assert filled["b"].tolist() == ["u", "v", "v"] * 30
    assert filled["a"].tolist() == frame["a"].tolist()


def test_fit__mistakes():
    frame = pd.DataFrame({"a": ["x", "y"] * 5})
    with pytest.raises(pmf.PmfError, match="strategy"):
        pmf.PMFImputer(strategy="median").fit(frame)  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="bins"):
        pmf.PMFImputer(bins=1).fit(frame)
    with pytest.raises(ValueError, match="'a'"):
        pmf.PMFImputer().fit(pd.DataFrame({"a": [1.0, np.inf]}))
    with pytest.raises(SchemaError, match="schema"):
        pmf.PMFImputer(schema=pmf.Schema((pmf.Variable("b", ("u",)),))).fit(frame)
    with pytest.raises(pmf.PmfError, match="draws"):
        pmf.PMFImputer(draws=0).fit(frame)
    with pytest.raises(pmf.PmfError, match="draws"):
        pmf.PMFImputer(draws=5, strategy="mode").fit(frame)
    imputer = pmf.PMFImputer(rank=1, members=1).fit(frame).set_params(draws=2)
    with pytest.raises(pmf.PmfError, match="draws"):
        imputer.transform(frame)


@pytest.mark.parametrize("make", [make_pandas, make_polars, pa.table])
@pytest.mark.parametrize("container", ["default", "pandas"])
def test_transform__several_draws_are_tables_that_differ_in_the_gaps_alone(make, container):
    columns, given, hidden = draw_rows(100)
    frame = make(given)
    imputer = pmf.PMFImputer(rank=2, draws=4, members=2).set_output(transform=container)
    tables = imputer.fit_transform(frame)
    assert isinstance(tables, tuple)
    kind = pd.DataFrame if container == "pandas" else type(frame)
    assert [type(table) for table in tables] == [kind] * 4
    found = set()
    for table in tables:
        values = table.to_pydict() if isinstance(table, pa.Table) else table
        grades = np.array([str(value) for value in values["grade"]])
        seen = ~hidden[:, 4]
        assert (grades[seen] == np.array(columns["grade"])[seen]).all()
        assert set(grades) <= {"low", "high"}
        found.add(tuple(grades))
    assert len(found) == 4


def test_transform__draws_are_of_refits_and_of_their_own_numbers():
    _, given, _ = draw_rows(300)
    imputer = pmf.PMFImputer(rank=2, draws=3, members=2).fit(pd.DataFrame(given))
    assert imputer.model_.rank == 4
    assert [model.rank for model in imputer.draw_models_] == [2, 2, 2]
    one = pmf.PMFImputer(rank=2, members=2).fit(pd.DataFrame(given))
    assert one.draw_models_ == (one.model_,)


def test_fit__variable_that_no_row_holds_stays_missing():
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("u", "v"))))
    frame = pd.DataFrame({"a": ["x", "y", None] * 20, "b": [None] * 60})
    with pytest.warns(pmf.errors.SchemaWarning, match="'b'"):
        imputer = pmf.PMFImputer(rank=2, schema=schema).fit(frame)
    for strategy in ("draw", "mode", "mean"):
        filled = imputer.set_params(strategy=strategy).transform(frame)
        assert filled["b"].isna().all()
        assert filled["a"].notna().all()


def test_transform__shares_of_what_is_drawn_are_those_of_the_data():
    # gaps hide one side more often, which the other columns show
    rng = np.random.default_rng(0)
    side = rng.random((4000, 1)) < 0.3
    table = np.where(rng.random((4000, 6)) < 0.7, side, ~side).astype(float)
    truth = table[:, 0].copy()
    table[:, 0][rng.random(4000) < np.where(table[:, 1] == 1, 0.6, 0.1)] = np.nan
    drawn = pmf.PMFImputer(rank=2, members=1).fit_transform(table)[:, 0]
    assert abs(drawn.mean() - truth.mean()) < 0.01
    assert abs(np.nanmean(table[:, 0]) - truth.mean()) > 0.02
    by_mode = pmf.PMFImputer(rank=2, members=1, strategy="mode").fit_transform(table)[:, 0]
    within = [np.corrcoef(column, table[:, 2])[0, 1] for column in (truth, drawn, by_mode)]
    # a correlation of 4,000 rows has an error of 0.016
    assert abs(within[1] - within[0]) < 0.04
    # the most probable levels follow the others more closely than the data do
    assert within[2] - within[0] > 0.06


@pytest.mark.parametrize(("rank", "has_forests"), [(None, True), (1, False)])
def test_fit__forests_are_tried_where_the_rank_is_open(rank, has_forests):
    rng = np.random.default_rng(3)
    first = rng.integers(0, 4, (400, 3))
    second = np.where(rng.random(first.shape) < 0.6, first, rng.integers(0, 4, first.shape))
    table = np.concatenate([first, second], axis=1).astype(float)
    fitted = pmf.PMFImputer(rank, members=2).fit(table)
    assert isinstance(fitted.model_, TreePMF) is has_forests


def test_fit__what_is_no_table_is_named():
    with pytest.raises(SchemaError, match="X is an object; PMFImputer takes a table in memory"):
        pmf.PMFImputer(2).fit(object())
