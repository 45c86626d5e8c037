import numpy as np
import pytest

import pmflib as pmf
from pmflib.model import ModelOrigin
from pmflib.model.identification import count_open_directions


def make(sizes, n_states, origin=None):
    rng = np.random.default_rng(1)
    factors = np.vstack([rng.dirichlet(np.ones(n), n_states).T for n in sizes])
    schema = pmf.Schema.from_cardinalities(sizes)
    return pmf.JointPMF(np.full(n_states, 1 / n_states), factors, schema, origin or ModelOrigin())


@pytest.mark.parametrize(
    ("sizes", "n_states", "n_open"),
    [
        # a factorisation of rank F can be turned by any invertible matrix: F (F - 1) directions
        ([2, 2], 2, 2),
        ([3, 4], 2, 2),
        ([5, 5], 3, 6),
        ([1, 3, 3], 2, 2),
        # one variable: all but its own PMF
        ([4], 2, 4),
        # as many parameters as free cells, and determined: Goodman's first example
        ([2, 2, 2], 2, 0),
        # 11 parameters and 7 free cells
        ([2, 2, 2], 3, 4),
        # Goodman's second: 14 parameters, 15 free cells, and one direction too many
        ([2, 2, 2, 2], 3, 1),
        # 27 parameters and 26 free cells, of which one more is lost
        ([3, 3, 3], 4, 2),
        ([3, 3, 3], 3, 0),
        ([3, 3, 3], 1, 0),
    ],
)
def test_count_open_directions__known_cases(sizes, n_states, n_open):
    assert count_open_directions(make(sizes, n_states)) == n_open


def test_count_open_directions__states_without_samples_and_large_tables():
    model = make([2, 2], 2)
    alone = pmf.JointPMF(np.array([1.0, 0.0]), model.factors, model.schema)
    assert count_open_directions(alone) == 0
    assert count_open_directions(make([4] * 12, 6)) == 0


def test_summary__says_that_states_cannot_be_read():
    found = make([2, 2, 2], 3).summary()
    assert any("not determined" in note for note in found.notes)
    assert "not determined" in found.tables[0].title
    for model in (make([2, 2, 2], 2), make([2, 2, 2], 3, ModelOrigin(average=2, final=True))):
        found = model.summary()
        assert not found.notes
        assert "not determined" not in found.tables[0].title


def test_summary_of_a_fit__says_it_first():
    codes = make([2, 2], 2).sample(200, 0)
    found = pmf.fit(pmf.count_pairs(codes, [2, 2]), rank=2).summary()
    assert "not determined" in found.notes[0]
