import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.papers import fit_composite, fit_mirror, fit_spa, fit_symnmf
from pmflib.papers.pair_matrix import check_pairs
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
        ("empty variable", SchemaError, "offsets"),
        ("no variable", SchemaError, "offsets"),
        ("shape", SchemaError, "marginals"),
        ("diagonal", SchemaError, "observed"),
        ("negative", pmf.PmfError, "marginals"),
        ("nan", pmf.PmfError, "marginals"),
        ("asymmetric", SchemaError, "marginals"),
        ("counts", SchemaError, "marginals"),
        ("unobserved", SchemaError, "marginals"),
    ],
)
def test_check_pairs__refuses(name, error, match):
    with pytest.raises(error, match=match):
        check_pairs(*spoil(name))


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS.keys())
def test_check_pairs__every_solver_asks(fit):
    with pytest.raises(SchemaError, match="marginals"):
        fit(*spoil("asymmetric"))
    assert fit(*make_pairs()).factors.shape == (4, 2)
