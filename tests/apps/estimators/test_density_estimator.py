import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.model_selection import GridSearchCV

import pmflib as pmf


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, 600)
    noisy = [np.where(rng.random(600) < 0.9, side, 1 - side) for _ in range(5)]
    columns = {f"q{index}": np.array(["no", "yes"])[each] for index, each in enumerate(noisy)}
    return columns | {"income": np.round(20 + 30 * side + 5 * rng.random(600), 3)}


def test_score_samples__rows_that_fit_are_likelier(rows):
    frame = pd.DataFrame(rows)
    density = pmf.apps.PMFDensity(rank=2).fit(frame)
    mixed = pd.DataFrame(
        {name: np.roll(values, 7 * index) for index, (name, values) in enumerate(rows.items())}
    )
    assert density.score(frame) > density.score(mixed) + 0.5
    stack = pmf.apps.PMFDensity().fit(frame[:300])
    assert stack.result_.method == "stack"
    assert stack.score(frame[300:]) > density.score(mixed[300:]) + 0.5
    assert density.score_samples(frame).shape == (600,)
    assert density.score(frame) == pytest.approx(density.score_samples(frame).mean())
    nothing = pd.DataFrame({name: [None] for name in rows})
    assert density.score_samples(nothing)[0] == pytest.approx(0)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_sample__rows_like_those_fitted(rows, make):
    frame = make(rows)
    density = pmf.apps.PMFDensity(rank=2, random_state=1).fit(frame)
    drawn = density.sample(2000, random_state=1)
    assert type(drawn) is type(frame)
    if not isinstance(frame, pa.Table):
        assert list(drawn.dtypes) == list(frame.dtypes)
    income = np.asarray(drawn["income"], np.float64)
    assert set(income) <= set(rows["income"])
    assert income.mean() == pytest.approx(rows["income"].mean(), abs=1.5)
    answers = np.asarray(drawn["q0"])
    assert np.mean((answers == "yes") == (income > 40)) == pytest.approx(0.9, abs=0.04)
    again = density.sample(2000, random_state=1)
    np.testing.assert_array_equal(np.asarray(again["income"]), np.asarray(drawn["income"]))


def test_sample__array():
    table = np.repeat(np.random.default_rng(0).integers(0, 2, (200, 1)), 4, axis=1)
    drawn = pmf.apps.PMFDensity(rank=2).fit(table).sample(50)
    assert drawn.shape == (50, 4)
    assert drawn.dtype == table.dtype
    with pytest.raises(pmf.PmfError, match="n_samples"):
        pmf.apps.PMFDensity(rank=2).fit(table).sample(0)


def test_cross_validation__finds_the_rank(rows):
    frame = pd.DataFrame(rows)
    search = GridSearchCV(pmf.apps.PMFDensity(members=1), {"rank": [1, 2]}, cv=3).fit(frame)
    assert search.best_params_ == {"rank": 2}


def test_fit__two_rows_and_one_column():
    density = pmf.apps.PMFDensity().fit([["a"], ["b"]])
    assert density.rank_ == 1
    np.testing.assert_allclose(np.exp(density.score_samples([["a"], ["b"]])), 0.5, atol=1e-6)


def test_transformer__names_and_posteriors(rows):
    frame = pd.DataFrame(rows)
    states = pmf.apps.PMFTransformer(rank=3).set_output(transform="pandas").fit_transform(frame)
    assert list(states.columns) == ["pmftransformer0", "pmftransformer1", "pmftransformer2"]
    np.testing.assert_allclose(states.sum(axis=1), 1)
    assert states.index.equals(frame.index)
