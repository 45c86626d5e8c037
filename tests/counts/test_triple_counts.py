import itertools

import numpy as np
import pytest
from hypothesis import given

import pmflib as pmf
from pmflib.base import MemoryPlanError, SchemaError
from pmflib.counts import TripleCounts, TripleMarginals
from tests.reference import make_codes, tables_of_codes


def triple_table(codes, offsets):
    """Triples of one row at a time."""
    table = np.zeros((offsets[-1],) * 3, np.int64)
    for row in codes.tolist():
        levels = [offsets[j] + code for j, code in enumerate(row) if code >= 0]
        for a in levels:
            table[a, a, a] += 1
        for cell in itertools.combinations(levels, 3):
            table[cell] += 1
    return table


@given(tables_of_codes(max_levels=3))
def test_count_triples__equals_a_row_at_a_time(case):
    cardinalities, codes = case
    counts = pmf.counts.count_triples(codes, cardinalities)
    assert np.array_equal(counts.tables[0], triple_table(codes, counts.schema.offsets))
    assert counts.n_rows.tolist() == [len(codes)]


def test_counts__are_a_group():
    rng = np.random.default_rng(0)
    codes = make_codes(rng, 60, [2, 3, 2, 4])
    whole = pmf.counts.count_triples(codes, [2, 3, 2, 4])
    parts = [pmf.counts.count_triples(part, [2, 3, 2, 4]) for part in np.split(codes, [0, 13, 40])]
    summed = sum(parts, TripleCounts.zero(whole.schema))
    assert np.array_equal(summed.tables, whole.tables)
    assert summed.n_rows == whole.n_rows
    without = whole - parts[2]
    assert np.array_equal(without.tables, (parts[1] + parts[3]).tables)
    with pytest.raises(SchemaError):
        parts[1] - whole
    with pytest.raises(SchemaError, match="schema"):
        whole + pmf.counts.count_triples(codes[:, :3], [2, 3, 2])


def test_zero__refuses_what_does_not_fit_in_memory():
    schema = pmf.Schema.from_cardinalities([100] * 6)
    with pytest.raises(MemoryPlanError, match="600"):
        TripleCounts.zero(schema)


def test_triple_counts__refuses_another_shape():
    with pytest.raises(SchemaError):
        TripleCounts(
            pmf.Schema.from_cardinalities([2, 2]),
            np.zeros((1, 3, 3, 3), np.int64),
            np.zeros(1, np.int64),
        )


@given(tables_of_codes(max_levels=3))
def test_from_counts__every_block_is_a_pmf_or_zero(case):
    cardinalities, codes = case
    marginals = TripleMarginals.from_counts(pmf.counts.count_triples(codes, cardinalities))
    edges = marginals.offsets
    for triple in itertools.product(range(len(cardinalities)), repeat=3):
        block = marginals.triples[tuple(slice(edges[j], edges[j + 1]) for j in triple)]
        rising = triple[0] < triple[1] < triple[2]
        support = int((codes[:, triple] >= 0).all(axis=1).sum()) if rising else 0
        assert marginals.support[triple] == support
        assert block.sum() == pytest.approx(float(support > 0), abs=1e-12)
    np.testing.assert_allclose(np.add.reduceat(marginals.singles, edges[:-1]), 1)
