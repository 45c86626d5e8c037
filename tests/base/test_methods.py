import sys
from types import ModuleType

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PAIR_METHODS, Method, SolverResult, find_method
from pmflib_tasks.config import make_config
from tests.factories import check_table


def test_table__names_functions_and_options_are_there():
    check_table(PAIR_METHODS)


def test_find_method__names_the_nearest_and_all():
    with pytest.raises(pmf.PmfError, match="method"):
        find_method(PAIR_METHODS, "symnfm")
    with pytest.raises(pmf.PmfError, match="method"):
        find_method(PAIR_METHODS, "qqq")


@pytest.fixture
def toy(monkeypatch):
    """A method as a user would add it: a module with one function, and one entry of the table."""

    def run_toy(counts, rank, rng):
        schema = counts.schema
        sizes = np.diff(schema.offsets)
        factors = np.repeat(np.repeat(1 / sizes, sizes)[:, None], rank, axis=1)
        return SolverResult(np.full(rank, 1 / rank), factors, (0.5,), 3, converged=False)

    module = ModuleType("toy_solver")
    vars(module)["run_toy"] = run_toy
    monkeypatch.setitem(sys.modules, "toy_solver", module)
    entry = Method("toy", "solver", "toy_solver:run_toy", "uniform PMFs", "nothing but a schema")
    monkeypatch.setitem(PAIR_METHODS, "toy", entry)
    return entry


def test_fit__a_new_method_is_one_entry_and_one_function(toy):
    counts = pmf.count_pairs(np.array([[0, 1], [1, 0]]), [2, 2])
    with pytest.warns(pmf.errors.ConvergenceWarning, match="toy"):
        result = pmf.fit(counts, 2, method="toy")
    assert (result.method, result.best_pass) == ("toy", 3)
    np.testing.assert_allclose(result.model.factors, 0.5)
    data = {"source": {"path": "x.csv", "layout": "wide"}}
    assert make_config(data | {"model": {"rank": 2, "method": "toy"}}).start_method == "toy"
    with pytest.warns(pmf.errors.ConvergenceWarning, match="toy"):
        refined = pmf.fit_em(np.array([[0, 1], [1, 0]]), rank=2, start="toy", pseudo_count=1.0)
    assert refined.method == "toy+em"
