import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError


def make(rank=3, seed=0):
    rng = np.random.default_rng(seed)
    schema = pmf.Schema.from_cardinalities([2, 3, 4])
    factors = np.concatenate([rng.dirichlet(np.ones(k), rank).T for k in (2, 3, 4)])
    return pmf.JointPMF(rng.dirichlet(np.ones(rank)), factors, schema)


MARGINS = {"v0": {"0": 0.7, "1": 0.3}, "v2": {"0": 10, "1": 20, "2": 30, "3": 40}}


def test_rake__equals_fitting_of_the_whole_tensor():
    model = make()
    names = model.schema.names
    tensor = model.marginal(list(names))
    for _ in range(500):
        tensor *= (np.array([0.7, 0.3]) / tensor.sum(axis=(1, 2)))[:, None, None]
        tensor *= np.array([0.1, 0.2, 0.3, 0.4]) / tensor.sum(axis=(0, 1))
    margins = dict(zip((names[0], names[2]), MARGINS.values(), strict=True))
    raked = model.rake(margins)
    np.testing.assert_allclose(raked.marginal(list(names)), tensor, rtol=1e-9)
    np.testing.assert_allclose(raked.marginal([names[0]]), [0.7, 0.3], atol=1e-12)
    # conditional PMFs given all margins are those of the model
    given = {names[0]: 1, names[2]: 2}
    np.testing.assert_allclose(
        raked.marginal([names[1]], given), model.marginal([names[1]], given), rtol=1e-9
    )


def test_rake__of_own_margins_changes_nothing():
    model = make()
    name = model.schema.names[1]
    margins = {name: dict(zip("012", model.marginal([name]), strict=True))}
    raked = model.rake(margins)
    np.testing.assert_allclose(raked.factors, model.factors, rtol=1e-9)
    np.testing.assert_allclose(raked.prior, model.prior, rtol=1e-9)


def test_rake__of_a_level_that_nobody_has():
    model = make()
    raked = model.rake({model.schema.names[0]: {"0": 0, "1": 1}})
    expected = model.condition({model.schema.names[0]: 1})
    np.testing.assert_allclose(raked.prior, expected.prior, rtol=1e-9)


def test_rake__of_one_state_and_one_variable():
    schema = pmf.Schema.from_cardinalities([2])
    model = pmf.JointPMF(np.ones(1), np.array([[0.5], [0.5]]), schema)
    raked = model.rake({schema.names[0]: {"0": 0.2, "1": 0.8}})
    np.testing.assert_allclose(raked.factors[:, 0], [0.2, 0.8])


def test_rake__refuses():
    model = make()
    a, b, _ = model.schema.names
    with pytest.raises(pmf.PmfError, match="two variables"):
        model.rake({(a, b): {("0", "0"): 1}})
    with pytest.raises(SchemaError, match="income"):
        model.rake({"income": {"low": 1}})
    factors = model.factors.copy()
    factors[:2] = [[1.0], [0.0]]
    sure = pmf.JointPMF(model.prior, factors, model.schema)
    with pytest.raises(SchemaError, match=f"{a}=1"):
        sure.rake({a: {"0": 0.5, "1": 0.5}})


def test_rake__refuses_margins_that_contradict_each_other():
    schema = pmf.Schema.from_cardinalities([2, 2])
    model = pmf.JointPMF(np.full(2, 0.5), np.vstack([np.eye(2), np.eye(2)]), schema)
    a, b = schema.names
    with pytest.raises(pmf.PmfError, match="cannot be reached"):
        model.rake({a: {"0": 0.3, "1": 0.7}, b: {"0": 0.6, "1": 0.4}})


def test_ask__samples_without_raked_weights_do_not_correct_a_raked_model():
    rng = np.random.default_rng(0)
    old = rng.random(2000) < 0.2
    table = {
        "age": np.where(old, "o", "y"),
        "q": np.where(rng.random(2000) < 0.2 + 0.6 * old, 1, 0),
    }
    margins = {"age": {"y": 0.5, "o": 0.5}}
    model = pmf.fit_em(table, rank=2).model
    raked = model.rake(margins)
    assert raked.ask("P(q=1)").numbers[0] == pytest.approx(0.5, abs=0.03)
    for data in (table, pmf.count_pairs(table, model.schema)):
        model.ask("P(q=1)", data)
        with pytest.raises(pmf.PmfError, match="raked"):
            raked.ask("P(q=1)", data)
    answer = raked.ask("P(q=1)", table, design=pmf.surveys.rake(table, margins))
    assert answer.numbers[0] == pytest.approx(0.5, abs=0.03)


def test_rake__refuses_forests():
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=2000)
    table = {"a": first, "b": np.where(rng.random(2000) < 0.9, first, 1 - first), "c": first ^ 1}
    model = pmf.fit_em(table, rank=1, dependence="tree").model
    assert model.edges()
    with pytest.raises(pmf.PmfError, match="forests"):
        model.rake({"a": {"0": 0.5, "1": 0.5}})
