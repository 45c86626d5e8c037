import numpy as np
import pytest
from hypothesis import given

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.counts import estimate_singles
from tests.reference import tables_of_codes


@given(tables_of_codes())
def test_from_counts__every_block_is_a_pmf_or_zero(case):
    cardinalities, codes = case
    marginals = pmf.counts.Marginals.from_counts(pmf.count_pairs(codes, cardinalities))
    edges = marginals.offsets
    for j in range(len(cardinalities)):
        for k in range(len(cardinalities)):
            both = (codes[:, j] >= 0) & (codes[:, k] >= 0)
            block = marginals.pairs[edges[j] : edges[j + 1], edges[k] : edges[k + 1]]
            assert marginals.support[j, k] == both.sum()
            assert marginals.observed[j, k] == (j != k and both.any())
            for a in range(cardinalities[j]):
                for b in range(min(cardinalities[k], 4)):
                    hits = np.sum(both & (codes[:, j] == a) & (codes[:, k] == b))
                    assert block[a, b] == pytest.approx(hits / max(both.sum(), 1), rel=1e-15)
            assert block.sum() == pytest.approx(float(both.any()), rel=1e-12)


def test_from_counts__pair_below_the_support_asked_for_is_zero():
    codes = np.array([[0, 0, -1], [1, 1, -1], [0, -1, 1]])
    counts = pmf.count_pairs(codes, [2, 2, 2])
    marginals = pmf.counts.Marginals.from_counts(counts, min_support=2)
    assert marginals.observed.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert not marginals.pairs[:2, 4:].any()
    # a variable's own PMF stays, however few samples hold it
    assert np.diagonal(marginals.pairs)[4:].tolist() == [0.0, 1.0]


def test_estimate_singles__half_a_pseudo_count_per_level():
    counts = pmf.count_pairs(np.array([[0, -1], [0, -1], [1, -1]]), [2, 2])
    assert estimate_singles(counts).tolist() == [2.5 / 4, 1.5 / 4, 0.5, 0.5]


def test_from_counts__refuses_support_below_one():
    with pytest.raises(SchemaError, match="min_support"):
        pmf.counts.Marginals.from_counts(pmf.count_pairs(np.array([[0]]), [1]), min_support=0)


def test_from_counts__of_samples_worth_less_than_one_are_pmfs():
    rows = np.array([[0, 0, -1], [0, 1, -1], [-1, -1, 0]])
    counts = pmf.count_pairs(rows, [2, 2, 2], weight=[0.125, 0.125, 100.0])
    marginals = pmf.counts.Marginals.from_counts(counts)
    assert 0 < marginals.support[0, 0] < 1
    assert np.diagonal(marginals.pairs) == pytest.approx([1, 0, 0.5, 0.5, 1, 0])
