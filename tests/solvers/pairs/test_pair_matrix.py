import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.errors import SchemaError
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.mirror import fit_mirror
from pmflib.solvers.pairs.pair_matrix import check_pairs, find_isolated, read_singles
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf
from tests.pair_tables import every_pair
from tests.reference import offsets_of

START = np.full(2, 0.5), np.full((4, 2), 0.5)
FITS = {
    "spa": lambda *data: fit_spa(*data, rank=2),
    "composite": lambda *data: fit_composite(*data, initial=START),
    "mirror": lambda *data: fit_mirror(*data, initial=START),
    "symnmf": lambda *data: fit_symnmf(*data, rank=2, rng=np.random.default_rng(0)),
}


def make_pairs():
    marginals = np.array(
        [[0.5, 0, 0.4, 0.1], [0, 0.5, 0, 0.5], [0.4, 0, 0.4, 0], [0.1, 0.5, 0, 0.6]]
    )
    return marginals, offsets_of([2, 2]), every_pair(2)


def spoil(name):
    marginals, offsets, observed = make_pairs()
    if name == "empty variable":
        offsets = offsets_of([4, 0])
    elif name == "no variable":
        offsets = offsets_of([])
    elif name == "shape":
        marginals = marginals[:3]
    elif name == "diagonal":
        observed = np.ones((2, 2), np.bool_)
    elif name == "negative":
        marginals = marginals - 0.2
    elif name == "nan":
        marginals = np.where(marginals == 0.6, np.nan, marginals)
    elif name == "asymmetric":
        marginals[0, 2], marginals[0, 3] = 0.1, 0.4
    elif name == "counts":
        marginals = marginals * 10
    elif name == "unobserved":
        observed = np.zeros((2, 2), np.bool_)
    return marginals, offsets, observed


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("empty variable", SchemaError, r"offsets is \[0, 4, 4\]; must rise from 0"),
        ("no variable", SchemaError, r"offsets is \[0\]; must rise from 0"),
        ("shape", SchemaError, r"marginals has shape \(3, 4\) and .* not \(4, 4\) and \(2, 2\)"),
        ("diagonal", SchemaError, "observed must be symmetric and False on its diagonal"),
        ("negative", pmf.PmfError, "marginals"),
        ("nan", pmf.PmfError, "marginals"),
        ("asymmetric", SchemaError, "marginals is not symmetric"),
        ("counts", SchemaError, r"marginals block \(0, 0\) sums to 10.0, not 1; divide"),
        ("unobserved", SchemaError, r"marginals block \(0, 1\) sums to 1.0, not 0; divide"),
    ],
)
def test_check_pairs__refuses(name, error, match):
    with pytest.raises(error, match=match):
        check_pairs(*spoil(name))


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS.keys())
def test_check_pairs__every_solver_asks(fit):
    with pytest.raises(SchemaError, match="marginals is not symmetric"):
        fit(*spoil("asymmetric"))
    assert fit(*make_pairs()).factors.shape == (4, 2)


def test_read_singles__uniform_where_never_seen():
    marginals = np.diag([0.25, 0.75, 0.0, 0.0, 0.0])
    assert read_singles(marginals, offsets_of([2, 3])).tolist() == [0.25, 0.75, *[1 / 3] * 3]


def test_find_isolated__levels_of_variables_without_a_pair():
    observed = every_pair(3)
    observed[1] = observed[:, 1] = False
    assert find_isolated(observed, offsets_of([1, 2, 3])).tolist() == [0, 1, 1, 0, 0, 0]
