import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot

import pmflib as pmf
from pmflib.families.groups.groups import _adjust

SCHEMA = pmf.Schema.from_cardinalities([2] * 5)
NAMES = np.array(["at", "ch"])


def draw(n_rows=1200, seed=0, differs=True):
    """Two classes and two groups with other shares; the third variable's PMFs differ in the second group."""
    rng = np.random.default_rng(seed)
    member = rng.integers(0, 2, n_rows)
    classes = (rng.random(n_rows) < np.array([0.3, 0.6])[member]).astype(int)
    codes = (rng.random((n_rows, 5)) < np.array([0.15, 0.85])[classes][:, None]).astype(int)
    if differs:
        other = (rng.random(n_rows) < np.array([0.5, 0.6])[classes]).astype(int)
        codes[:, 2] = np.where(member == 1, other, codes[:, 2])
    codes[rng.random(codes.shape) < 0.05] = -1
    return codes, NAMES[member]


@pytest.fixture(scope="module")
def found():
    codes, group = draw()
    return pmf.families.fit_groups(codes, group, 2, schema=SCHEMA)


def test_fit_groups__says_which_variable_differs(found):
    assert found.differences[0].name == "v2"
    assert [each.name for each in found.differences if each.is_distinct] == ["v2"]
    assert found.fits["partial"].free == ("v2",)
    assert found.best == "partial"
    assert found.tests["equal"].p_value < 1e-6 < found.tests["partial"].p_value
    assert found.differences[0].test == found.tests["equal"]
    assert np.allclose(found.shares.sum(axis=1), 1)
    assert found.table.num_rows == 5


def test_fit_groups__patterns_are_nested_and_hold_what_they_say(found):
    equal, partial, free = (found.fits[name] for name in ("equal", "partial", "free"))
    likelihoods = [each.criteria.log_likelihood for each in (equal, partial, free)]
    assert likelihoods == sorted(likelihoods)
    # shares of the classes by group, and PMFs
    assert [each.criteria.n_parameters for each in (equal, partial, free)] == [12, 14, 22]
    one, other = equal.models.values()
    assert (one.factors == other.factors).all()
    assert not np.allclose(one.prior, other.prior)
    one, other = partial.models.values()
    rows = one.schema.rows_of("v2")
    kept = np.delete(np.arange(10), np.arange(10)[rows])
    assert (one.factors[kept] == other.factors[kept]).all()
    assert (np.abs(one.factors[rows] - other.factors[rows]) > 0.1).all()


def test_fit_groups__none_equal_are_separate_fits():
    codes, group = draw()
    found = pmf.families.fit_groups(codes, group, 2, schema=SCHEMA, free=[])
    total = 0.0
    for name in NAMES:
        own = codes[group == name]
        alone = pmf.fit_em(own, rank=2, schema=SCHEMA, pseudo_count=0.0, tol=1e-12, accelerate=True)
        total += alone.model.log_prob(own).sum()
        assert np.isclose(
            found.fits["free"].models[name].log_prob(own).sum(),
            alone.model.log_prob(own).sum(),
            atol=1e-3,
        )
    assert np.isclose(found.fits["free"].criteria.log_likelihood, total, atol=1e-3)
    assert found.differences == ()
    assert (
        found.fits["partial"].models["at"].prior.tolist()
        == found.fits["equal"].models["at"].prior.tolist()
    )


def test_fit_groups__all_equal_is_the_pooled_fit_with_the_group_as_a_variable():
    codes, group = draw()
    found = pmf.families.fit_groups(codes, group, 2, schema=SCHEMA, free=[])
    pooled = pmf.Schema((*SCHEMA, pmf.Variable("group", ("at", "ch"))))
    both = pmf.Codes(np.column_stack([codes, group == "ch"]))
    result = pmf.fit_em(
        both,
        rank=2,
        schema=pooled,
        pseudo_count=0.0,
        tol=1e-12,
        accelerate=True,
    )
    given = result.model.log_prob(both).sum()
    sizes = np.bincount(both[:, -1])
    given -= (sizes * np.log(sizes / sizes.sum())).sum()
    assert np.isclose(found.fits["equal"].criteria.log_likelihood, given, atol=1e-3)
    summed = sum(
        found.fits["equal"].models[name].log_prob(codes[group == name]).sum() for name in NAMES
    )
    assert np.isclose(found.fits["equal"].criteria.log_likelihood, summed)


def test_fit_groups__rows_without_a_group_are_left_out_and_one_group_is_refused():
    codes, group = draw(300)
    known = [None if place < 10 else name for place, name in enumerate(group)]
    found = pmf.families.fit_groups(codes, known, 1, schema=SCHEMA, free=["v0"])
    assert found.n_left_out == 10
    assert sum(found.sizes) == 290
    with pytest.raises(pmf.PmfError, match="group"):
        pmf.families.fit_groups(codes, ["a"] * 300, 1, schema=SCHEMA)
    with pytest.raises(pmf.PmfError, match="group"):
        pmf.families.fit_groups(codes, group[1:], 1, schema=SCHEMA)


def test_fit_groups__draws_groups_side_by_side(found):
    ax = found.plot(0)
    assert len(ax.get_yticklabels()) == 5
    assert [each.get_text()[:2] for each in ax.get_legend().get_texts()] == ["at", "ch"]
    with pytest.raises(pmf.PmfError, match="state is 2"):
        found.plot(2)
    with pytest.raises(pmf.PmfError, match="fit"):
        found.plot(0, fit="none")
    pyplot.close("all")


def test_fit_em__keeps_structural_zeros_of_its_start():
    codes, _ = draw(300, differs=False)
    factors = np.tile([[0.8, 0.2], [0.2, 0.8]], (5, 1))
    factors[:2] = [[1.0, 0.3], [0.0, 0.7]]
    start = pmf.JointPMF(np.array([0.5, 0.5]), factors, SCHEMA)
    fitted = pmf.fit_em(codes, start, pseudo_count=0.0, accelerate=True).model
    assert fitted.factors[1, 0] == 0
    assert not np.allclose(fitted.factors, factors)


def test_adjust__is_by_benjamini_and_hochberg():
    assert np.allclose(_adjust([0.01, 0.04, 0.03, np.nan]), [0.04, 0.16 / 3, 0.16 / 3, 1.0])
