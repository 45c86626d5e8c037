import itertools

import numpy as np
import pytest
from hypothesis import given
from reference import make_codes, tables_of_codes

import pmflib as pmf
from pmflib.counting.triples import TripleCounts, TripleMarginals, count_triples, fit_triples
from pmflib.errors import MemoryPlanError, PmfError, RankError, SchemaError
from pmflib.metrics import factor_mse


def triple_table(codes, offsets):
    """Triples of one row at a time."""
    table = np.zeros((offsets[-1],) * 3, np.int64)
    for row in codes.tolist():
        held = [offsets[j] + code for j, code in enumerate(row) if code >= 0]
        for a in held:
            table[a, a, a] += 1
        for cell in itertools.combinations(held, 3):
            table[cell] += 1
    return table


@given(tables_of_codes(max_levels=3))
def test_count_triples__equals_a_row_at_a_time(case):
    cardinalities, codes = case
    counts = count_triples(codes, cardinalities)
    assert np.array_equal(counts.table, triple_table(codes, counts.schema.offsets))
    assert counts.n_rows == len(codes)


def test_counts__are_a_group():
    rng = np.random.default_rng(0)
    codes = make_codes(rng, 60, [2, 3, 2, 4])
    whole = count_triples(codes, [2, 3, 2, 4])
    parts = [count_triples(part, [2, 3, 2, 4]) for part in np.split(codes, [0, 13, 40])]
    summed = sum(parts, TripleCounts.zero(whole.schema))
    assert np.array_equal(summed.table, whole.table)
    assert summed.n_rows == whole.n_rows
    without = whole - parts[2]
    assert np.array_equal(without.table, (parts[1] + parts[3]).table)
    with pytest.raises(SchemaError, match="never held"):
        parts[1] - whole
    with pytest.raises(SchemaError, match="count both under one schema"):
        whole + count_triples(codes[:, :3], [2, 3, 2])


def test_zero__refuses_what_does_not_fit_in_memory():
    schema = pmf.Schema.from_cardinalities([100] * 6)
    with pytest.raises(MemoryPlanError, match="600 levels take 1728000000 bytes, above 1073741824"):
        TripleCounts.zero(schema)


def test_triple_counts__refuses_another_shape():
    with pytest.raises(SchemaError, match="the schema asks for"):
        TripleCounts(pmf.Schema.from_cardinalities([2, 2]), np.zeros((3, 3, 3), np.int64), 0)


@given(tables_of_codes(max_levels=3))
def test_from_counts__every_block_is_a_pmf_or_zero(case):
    cardinalities, codes = case
    marginals = TripleMarginals.from_counts(count_triples(codes, cardinalities))
    edges = marginals.offsets
    for triple in itertools.product(range(len(cardinalities)), repeat=3):
        block = marginals.triples[tuple(slice(edges[j], edges[j + 1]) for j in triple)]
        rising = triple[0] < triple[1] < triple[2]
        held = int((codes[:, triple] >= 0).all(axis=1).sum()) if rising else 0
        assert marginals.support[triple] == held
        assert block.sum() == pytest.approx(float(held > 0), abs=1e-12)
    np.testing.assert_allclose(np.add.reduceat(marginals.singles, edges[:-1]), 1)


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__finds_the_model_of_many_samples(loss):
    rng = np.random.default_rng(2)
    schema = pmf.Schema.from_cardinalities([4, 3, 4, 5])
    blocks = [rng.dirichlet(np.full(size, 1.0), 2).T for size in schema.cardinalities]
    truth = pmf.JointPMF(np.array([0.6, 0.4]), np.vstack(blocks), schema)
    codes = truth.sample(50_000, rng)
    codes[rng.random(codes.shape) < 0.1] = -1
    result = fit_triples(count_triples(codes, schema), 2, loss=loss, rng=1)
    assert result.converged
    assert result.method == f"triples-{loss}"
    assert np.all(np.diff(result.loss_history) <= 0)
    model = result.model
    assert factor_mse(model.prior, model.factors, truth.prior, truth.factors, 4) < 2e-3


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__variables_without_a_triple_keep_their_marginals(loss):
    codes = np.array([[0, 0, 1, -1, 1], [1, 0, 0, -1, -1], [1, 1, 1, -1, -1], [-1, -1, -1, -1, 0]])
    codes[0, 4] = -1
    result = fit_triples(count_triples(codes, [2, 2, 2, 3, 2]), 2, loss=loss)
    np.testing.assert_allclose(result.model.factor(3), 1 / 3)
    np.testing.assert_allclose(result.model.factor(4), [[1, 1], [0, 0]])
    assert "single marginals for 2 variables without an observed triple" in result.notes


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__of_no_samples_is_defined(loss):
    counts = TripleCounts.zero(pmf.Schema.from_cardinalities([2, 1, 2]))
    result = fit_triples(counts, 1, loss=loss)
    np.testing.assert_allclose(result.model.factors[:, 0], [0.5, 0.5, 1, 0.5, 0.5])
    assert "no triple was observed" in result.notes


def test_fit_triples__same_seed_same_bits():
    codes = make_codes(np.random.default_rng(3), 200, [3, 2, 3])
    counts = count_triples(codes, [3, 2, 3])
    with pytest.warns(pmf.ConvergenceWarning, match="triples-kl stopped after 500 iterations"):
        one, two = (fit_triples(counts, 5, rng=7).model for _ in range(2))
    assert np.array_equal(one.factors, two.factors)


@pytest.mark.parametrize(
    ("cardinalities", "rank", "loss", "error", "match"),
    [
        ([2, 2, 2], 0, "kl", RankError, "rank is 0; give at least 1"),
        ([2, 2, 2], 1, "mse", PmfError, "loss is 'mse'; give one of"),
        ([2, 2], 1, "kl", PmfError, "there are 2 variables, and triples need three"),
    ],
)
def test_fit_triples__refuses(cardinalities, rank, loss, error, match):
    counts = TripleCounts.zero(pmf.Schema.from_cardinalities(cardinalities))
    with pytest.raises(error, match=match):
        fit_triples(counts, rank, loss=loss)
