import numpy as np
import pytest

from pmflib.base import DenseBlock, PseudoCounts
from pmflib.families.forests import TreeParameters, load_samples
from pmflib.families.forests.em import count_pairs, score_under_forests
from pmflib.families.forests.statistics import TreePasses, TreeStatistics, tree_m_step
from pmflib.model import em_statistics, m_step, take_logs
from tests.families.forests.conftest import SIZES, draw_gaps, list_cells, make_tree, match
from tests.reference import make_model, offsets_of


def expect_masses(model, codes):
    """Expected counts of the tables by enumeration, of variables with something observed in or below them."""
    cells, _ = list_cells(model)
    mass = np.zeros(model.forest.n_entries)
    posteriors = model.posterior(codes)
    for row, posterior in zip(codes, posteriors, strict=True):
        for state in range(model.rank):
            parents = model.forest.parents[state]
            observed = set()
            for position in np.flatnonzero(row >= 0).tolist():
                while position >= 0:
                    observed.add(position)
                    position = int(parents[position])
            alone = type(model).make(
                model.parameters._replace(prior=np.eye(model.rank)[state]), model.schema
            )
            kept = cells[match(cells, row)]
            shares = np.exp(alone.log_prob(kept))
            shares *= posterior[state] / shares.sum()
            for position in observed:
                parent = int(parents[position])
                above = kept[:, parent] if parent >= 0 else np.zeros(len(kept), int)
                table = model.forest.view_table(mass, state, position)
                np.add.at(table, (above, kept[:, position]), shares)
    return mass


def test_add_up__equals_enumeration(model):
    codes = draw_gaps(list_cells(model)[0], 30)
    found = TreePasses(model.parameters).add_up(DenseBlock(codes))
    np.testing.assert_allclose(found.mass, expect_masses(model, codes), atol=1e-12)
    assert found.log_likelihood == pytest.approx(model.log_prob(codes).sum())
    observed = codes[(codes >= 0).any(axis=1)]
    np.testing.assert_allclose(found.state_mass, model.posterior(observed).sum(axis=0))
    assert found.n_rows == 30


@pytest.mark.parametrize(("sizes", "rank"), [(SIZES, 3), ([2, 2], 1), ([1, 1, 1], 2), ([5], 1)])
def test_tree_m_step__without_edges_is_that_of_plain_em(sizes, rank):
    rng = np.random.default_rng(0)
    offsets = offsets_of(sizes)
    prior, factors = make_model(rng, sizes, rank)
    codes = np.stack([rng.integers(-1, size, 200) for size in sizes], axis=1).astype(np.int8)
    # never observed
    codes[:, -1] = -1
    singles = factors @ prior
    pseudo_counts = PseudoCounts.shaped_by(singles, offsets, 0.5)
    block = DenseBlock(codes)
    expected = m_step(
        em_statistics(block, offsets, *take_logs(prior, factors)),
        offsets,
        pseudo_counts,
        prior,
        factors,
    )
    parameters = TreeParameters.plain(prior, factors, offsets)
    statistics = TreePasses(parameters).add_up(block)
    found = tree_m_step(statistics, parameters, pseudo_counts, 4.0)
    np.testing.assert_allclose(found.prior, expected[0], atol=1e-12)
    np.testing.assert_allclose(found.forest.find_marginals(found.tables), expected[1], atol=1e-12)


def test_tree_m_step__never_lowers_the_likelihood(model):
    codes = draw_gaps(list_cells(model)[0], 300)
    offsets = model.schema.offsets
    none = PseudoCounts.shaped_by(model.factors @ model.prior, offsets, 0.0)
    parameters, before = make_tree(SIZES, model.forest.parents, 5).parameters, -np.inf
    for _ in range(10):
        statistics = TreePasses(parameters).add_up(DenseBlock(codes))
        assert statistics.log_likelihood >= before - 1e-9
        before = statistics.log_likelihood
        parameters = tree_m_step(statistics, parameters, none, 0.0)


def test_tree_m_step__many_edge_pseudo_counts_are_no_edge(model):
    codes = draw_gaps(list_cells(model)[0], 300)
    none = PseudoCounts.shaped_by(model.factors @ model.prior, model.schema.offsets, 0.0)
    statistics = TreePasses(model.parameters).add_up(DenseBlock(codes))
    found = tree_m_step(statistics, model.parameters, none, 1e12)
    table = found.forest.view_table(found.tables, 0, 1)
    np.testing.assert_allclose(table[0], table[1], atol=1e-6)


def test_tree_m_step__many_pooled_samples_are_one_table_for_all_states_with_the_edge():
    parents = [[-1, 0, 1, 1, 0], [-1, 0, -1, 1, 0], [1, -1, 1, 1, 0]]
    model = make_tree(SIZES, parents)
    codes = draw_gaps(list_cells(model)[0], 300)
    none = PseudoCounts.shaped_by(model.factors @ model.prior, model.schema.offsets, 0.0)
    statistics = TreePasses(model.parameters).add_up(DenseBlock(codes))
    forest, tables = model.forest, tree_m_step(statistics, model.parameters, none, 1e12, 1.0).tables
    mass = forest.view_table(statistics.mass, 0, 2) + forest.view_table(statistics.mass, 2, 2)
    for state in (0, 2):
        expected = mass / mass.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(forest.view_table(tables, state, 2), expected, atol=1e-6)
    # variable 0 is the parent of 1 in two states, and the other way round in the third
    np.testing.assert_allclose(
        forest.view_table(tables, 0, 1), forest.view_table(tables, 1, 1), atol=1e-6
    )
    alone = forest.view_table(statistics.mass, 2, 0)
    np.testing.assert_allclose(
        forest.view_table(tables, 2, 0), alone / alone.sum(axis=1, keepdims=True), atol=1e-6
    )


def test_tree_m_step__pooled_samples_leave_variables_without_parents_as_they_are(model):
    codes = draw_gaps(list_cells(model)[0], 300)
    counts = PseudoCounts.shaped_by(model.factors @ model.prior, model.schema.offsets, 1.0)
    statistics = TreePasses(model.parameters).add_up(DenseBlock(codes))
    with_pool, without = (
        tree_m_step(statistics, model.parameters, counts, 4.0, share) for share in (0.5, 0.0)
    )
    roots = ~model.forest.has_parent
    np.testing.assert_array_equal(with_pool.tables[roots], without.tables[roots])
    assert (with_pool.tables != without.tables).any()


def test_merge__is_the_sum_over_blocks(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    passes = TreePasses(model.parameters)
    whole = passes.add_up(DenseBlock(codes))
    empty = passes.add_up(DenseBlock(codes[:0]))
    parts = [passes.add_up(DenseBlock(each)) for each in (codes[:15], codes[15:])]
    merged = TreeStatistics.merge([empty, *parts])
    np.testing.assert_allclose(merged.mass, whole.mass)
    assert merged.n_rows == 40
    assert merged.log_likelihood == pytest.approx(whole.log_likelihood)


def test_count_pairs__are_posterior_weighted(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    samples = load_samples(codes, model.schema.offsets, model.rank)
    found = count_pairs(samples, model.parameters, 1, 2)
    posteriors, offsets = model.posterior(codes), model.schema.offsets
    observed = (codes[:, 1] == 2) & (codes[:, 4] == 3)
    for k in range(2):
        assert found[k, offsets[1] + 2, offsets[4] + 3] == pytest.approx(
            posteriors[observed, 1 + k].sum(), abs=1e-5
        )
        assert np.array_equal(found[k], found[k].T)


def test_score__of_a_target_is_its_chance_given_the_rest(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    samples = load_samples(codes, model.schema.offsets, model.rank, target=1)
    chances = model.predict_proba(codes, 1)
    observed = codes[:, 1] >= 0
    logs = np.log(chances[observed, codes[observed, 1]])
    assert samples.score([model.parameters], score_under_forests) == pytest.approx(
        logs.sum() / len(codes)
    )


def test_score__of_several_is_their_average(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    other = make_tree(SIZES, model.forest.parents[::-1], 7)
    samples = load_samples(codes, model.schema.offsets, 6)
    joined = TreeParameters.join([model.parameters, other.parameters])
    found = samples.score([model.parameters, other.parameters], score_under_forests)
    assert found == pytest.approx(samples.score([joined], score_under_forests), abs=1e-12)
    gain, error = samples.compare([joined], [model.parameters], score_under_forests)
    assert gain == pytest.approx(found - samples.score([model.parameters], score_under_forests))
    assert error > 0
