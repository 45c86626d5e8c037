import numpy as np
import pandas as pd
import pytest

import pmflib as pmf
from pmflib.families.forests import TreePMF

RNG = np.random.default_rng(0)
CHANCES = np.array([[0.9] * 6, [0.1] * 6, [0.9] * 3 + [0.1] * 3])
CODES = (RNG.random((800, 6)) < CHANCES[RNG.choice(3, 800, p=[0.2, 0.5, 0.3])]).astype(int)
TABLE = pd.DataFrame(CODES, columns=list("abcdef"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fit_em__the_same_optimum_has_the_same_states_whatever_seed_rows_and_columns(seed):
    rng = np.random.default_rng(seed)
    shuffled = TABLE.sample(frac=1, random_state=seed)[list(rng.permutation(list("abcdef")))]
    first = pmf.fit_em(TABLE, rank=3, pseudo_count=1.0).model
    other = pmf.fit_em(shuffled, rank=3, pseudo_count=1.0, rng=seed).model
    assert (np.diff(first.prior) < 0).all()
    np.testing.assert_allclose(other.prior, first.prior, atol=2e-3)
    for name in "abcdef":
        np.testing.assert_allclose(other.factor(name), first.factor(name), atol=1e-2)


def test_fits_of_pairs_and_triples__states_are_in_order_of_size_and_refined_ones_keep_theirs():
    fitted = pmf.fit(pmf.count_pairs(CODES), 3).model
    schema = pmf.Schema.infer(CODES)
    of_triples = pmf.fits.fit_triples(pmf.counts.count_triples(CODES, schema), 3).model
    back = pmf.JointPMF(fitted.prior[::-1], fitted.factors[:, ::-1], fitted.schema)
    refined = pmf.fit_em(CODES, back).model
    assert (np.diff(fitted.prior) <= 0).all()
    assert (np.diff(of_triples.prior) <= 0).all()
    assert (np.diff(refined.prior) >= 0).all()


def test_forests__states_keep_their_forests_and_the_distribution_is_the_same():
    model = pmf.fit_em(CODES, rank=3, dependence="tree", pseudo_count=1.0).model
    assert isinstance(model, TreePMF)
    assert (np.diff(model.prior) <= 0).all()
    order = np.array([2, 0, 1])
    mixed = model._take_states(order)
    np.testing.assert_allclose(mixed.log_prob(CODES), model.log_prob(CODES), rtol=1e-12)
    np.testing.assert_array_equal(mixed.forest.parents, model.forest.parents[order])
    again = mixed.sort_states()
    np.testing.assert_array_equal(again.tables, model.tables)


def test_equal_sizes__the_order_does_not_depend_on_that_of_the_columns():
    half = np.array([0.5, 0.5])
    factors = np.array([[0.2, 0.8], [0.8, 0.2], [0.9, 0.1], [0.1, 0.9]])
    for names in (["p", "q"], ["q", "p"]):
        schema = pmf.Schema(tuple(pmf.Variable(each, ("0", "1")) for each in names))
        rows = factors if names == ["p", "q"] else factors[[2, 3, 0, 1]]
        model = pmf.JointPMF(half, rows, schema).sort_states()
        assert model.factor("p")[0].tolist() == [0.8, 0.2]


def test_groups__classes_are_in_order_of_size_over_all_groups():
    members = np.repeat(["x", "y"], 400)
    models = pmf.families.fit_groups(CODES, members, 3).fits["equal"].models.values()
    sizes = np.mean([each.prior for each in models], axis=0)
    assert (np.diff(sizes) <= 0).all()
