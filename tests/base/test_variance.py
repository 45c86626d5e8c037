import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import Variance
from pmflib.model import JointPMF

WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, 400)
CODES = np.random.default_rng(1).integers(2, size=(400, 3))
CELLS = CODES[:, 0] * 2 + CODES[:, 1]


def test_rows_drawn_one_by_one__have_the_linearised_variance_of_a_ratio():
    drawn = Variance.of_rows(WEIGHT)
    shares, n_effective = drawn.find_effective(CELLS, 4)
    held = CELLS[:, None] == np.arange(4)
    np.testing.assert_allclose(shares, WEIGHT @ held / WEIGHT.sum())
    scores = WEIGHT[:, None] * (held - shares) / WEIGHT.sum()
    variance = (scores**2).sum() * 400 / 399
    # Student's quantile in place of the normal one
    assert n_effective == pytest.approx((shares * (1 - shares)).sum() / variance, rel=0.01)
    assert (drawn.n_strata, drawn.n_units, drawn.degrees) == (1, 400, 399)
    assert not drawn.is_simple
    assert Variance.of_rows(np.ones(400)).is_simple


def test_rows_drawn_one_by_one__are_more_than_one_and_have_weights():
    with pytest.raises(pmf.PmfError, match="all rows belong to one sampling unit"):
        Variance.of_rows([2.0])
    with pytest.raises(pmf.PmfError, match="weight is 3"):
        Variance.of_rows(3)


def test_ask__refuses_weights_alone_as_a_design():
    schema = pmf.count_pairs(CODES, [2] * 3).schema
    model = JointPMF(np.ones(1), np.full((6, 1), 0.5), schema)
    assert model.ask("P(v0=1)", CODES, design=Variance.of_rows(WEIGHT)).rows()
    with pytest.raises(pmf.PmfError, match="design is an ndarray"):
        model.ask("P(v0=1)", CODES, design=WEIGHT)
