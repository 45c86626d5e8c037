"""Measures that are not linear in the table, against planted truths: `python -m benchmarks.models.curved` has more."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering.information import TablePMF
from pmflib.answering.posterior import CURVED, Posterior, estimate_curved
from pmflib.answering.question import bind_question, parse_question

SCHEMA = pmf.Schema.from_cardinalities([60, 3])
QUESTIONS = {"MI": "MI(v0; v1)", "TV": "TV(v0; v1)", "H": "H(v0, v1)"}


def bind(text, schema=SCHEMA):
    return bind_question(parse_question(text), schema)


def find_entropy(table):
    held = table[table > 0]
    return -float(held @ np.log(held))


def measure(name, table):
    apart = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    if name == "TV":
        return float(np.abs(table - apart).sum() / 2)
    return find_entropy(table) if name == "H" else find_entropy(apart) - find_entropy(table)


def draw(seed, n_rows=400, weight=800.0):
    """True table; counts of it; and a posterior whose model has half of the dependence of the truth."""
    rng = np.random.default_rng(seed)
    sizes = rng.dirichlet(np.full(60, 2.0))
    truth = sizes[:, None] * rng.dirichlet(np.full(3, 3.0), 60)
    apart = truth.sum(axis=1, keepdims=True) * truth.sum(axis=0)
    counts = rng.multinomial(n_rows, truth.ravel()).reshape(1, -1)
    cells = counts + weight * ((truth + apart) / 2).reshape(1, -1)
    known = np.array([float(n_rows)]), counts.astype(float)
    return truth, counts, Posterior(SCHEMA, (), (0, 1), np.ones(1), cells, *known)


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_estimate_curved__is_nearer_than_the_mean_table_and_the_counts(name):
    assert name in CURVED
    errors, inside = [], []
    for seed in range(24):
        truth, counts, posterior = draw(seed)
        found, true = estimate_curved(bind(QUESTIONS[name]), [posterior]), measure(name, truth)
        tables = posterior.mean.table, counts.reshape(60, 3) / counts.sum()
        errors.append([found.number - true, *(measure(name, each) - true for each in tables)])
        low, high = found.find_interval(bind(QUESTIONS[name]), 0.95)[0, 0]
        inside.append(low <= true <= high)
    ours, mean_table, alone = np.sqrt(np.square(errors).mean(axis=0))
    assert ours < min(mean_table, alone)
    # .95 in the long run, three standard errors of the share of 24 allowed
    assert np.mean(inside) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 24)


def test_estimate_curved__of_the_same_draws_is_the_same():
    _, _, posterior = draw(0)
    first, second = (estimate_curved(bind("MI(v0; v1)"), [posterior]) for _ in range(2))
    assert first == second


def test_estimate_curved__nothing_counted_is_the_mean():
    _, _, posterior = draw(0)
    none = Posterior(
        SCHEMA, (), (0, 1), np.ones(1), posterior.cells, np.zeros(1), np.zeros((1, 180))
    )
    found = estimate_curved(bind("MI(v0; v1)"), [none])
    assert found.number == pytest.approx(measure("MI", posterior.mean.table))
    assert found.error > 0


def test_posterior__counts_are_drawn_from_the_mean():
    _, counts, posterior = draw(0)
    tables = np.array([each.table for each in posterior.draw_counts(0)])
    mean = posterior.mean.table
    np.testing.assert_allclose(tables.sum(axis=(1, 2)), 1)
    np.testing.assert_allclose(tables * counts.sum(), np.rint(tables * counts.sum()), atol=1e-9)
    spread = np.sqrt(mean * (1 - mean) / counts.sum())
    assert (np.abs(tables.mean(axis=0) - mean) < 5 * spread / np.sqrt(len(tables))).all()
    shares = posterior.shares
    assert isinstance(shares, TablePMF)
    np.testing.assert_allclose(shares.table, counts.reshape(60, 3) / counts.sum())


def test_ask__a_variable_of_many_levels_has_an_interval_that_holds():
    rng = np.random.default_rng(2)
    sizes = 1 / np.arange(1, 101)
    truth = (sizes / sizes.sum())[:, None] * rng.dirichlet(np.full(4, 2.0), 100)
    cells = rng.choice(400, 3000, p=truth.ravel())
    codes = np.stack([*np.divmod(cells, 4), rng.integers(2, size=3000)], axis=1)
    schema = pmf.Schema.from_cardinalities([100, 4, 2])
    model = pmf.fit_em(codes, rank=2, schema=schema).model
    found, true = model.ask("MI(v0; v1)", codes), measure("MI", truth)
    assert found.interval[0] <= true <= found.interval[1]
    # the measure of counts is above the truth, and that of the model below
    assert found.more["model"][0] < found.value < found.more["counted"][0]
