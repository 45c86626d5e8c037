import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import find_most_likely
from pmflib.base import MemoryPlanError, SchemaError
from pmflib.families.forests import Forest, TreeParameters, TreePMF
from pmflib.model import digest_model, measure_associations
from pmflib_tasks.gate import compare_hidden
from pmflib_tasks.stages import score_hidden
from tests.families.forests.conftest import SIZES, draw_gaps, list_cells, make_tree, match
from tests.reference import make_model


def find_joint(model):
    chances = list_cells(model)[1]
    return chances.reshape(model.schema.cardinalities)


def test_log_prob__is_that_of_all_completions(model):
    cells, chances = list_cells(model)
    codes = np.concatenate([draw_gaps(cells, 60), cells[:20]])
    expected = [np.log(chances[match(cells, row)].sum()) for row in codes]
    np.testing.assert_allclose(model.log_prob(codes), expected, atol=1e-12)


def test_posterior__is_the_share_of_each_state(model):
    codes = draw_gaps(list_cells(model)[0], 30)
    alone = []
    for state in range(model.rank):
        prior = np.eye(model.rank)[state]
        one = TreePMF.make(model.parameters._replace(prior=prior), model.schema)
        alone.append(model.prior[state] * np.exp(one.log_prob(codes)))
    expected = np.array(alone).T / np.sum(alone, axis=0)[:, None]
    np.testing.assert_allclose(model.posterior(codes), expected, atol=1e-12)


@pytest.mark.parametrize("least", [0.0, 1e-100])
def test_invert_cells__equals_hiding_one_after_another(model, least):
    """Also of states without edges, and where a state makes a cell nearly impossible, which is then not divided by."""
    plain = Forest.without_edges(2, model.schema.offsets)
    forest = Forest.join([model.forest, plain])
    tables = np.concatenate([model.tables, plain.spread_levels(model.factors[:, :2])])
    if least:
        tables[forest.rows[forest.row_sizes > 1][::3]] = least
        tables = forest.normalise(tables, tables)
    prior = np.append(model.prior, [0.5, 0.3])
    mixed = TreePMF.make(TreeParameters(prior / prior.sum(), forest, tables), model.schema)
    codes = np.concatenate([draw_gaps(list_cells(model)[0], 200), np.full((1, len(SIZES)), -1)])
    found = mixed.invert_cells(codes, mixed.posterior(codes))
    for position in range(len(SIZES)):
        rows = np.flatnonzero(codes[:, position] >= 0)
        pmf_found = mixed.predict_proba(codes[rows], position)
        expected = 1 / pmf_found[np.arange(rows.size), codes[rows, position]]
        np.testing.assert_allclose(found[rows, position], expected, rtol=1e-9)
    assert not found[codes < 0].any()


@pytest.mark.parametrize("position", range(len(SIZES)))
def test_predict_proba__is_that_of_all_completions(model, position):
    cells, chances = list_cells(model)
    codes = draw_gaps(cells, 40)
    found = model.predict_proba(codes, position)
    for row, pmf_found in zip(codes, found, strict=True):
        observed = np.where(np.arange(len(row)) == position, -1, row)
        kept = match(cells, observed)
        expected = np.bincount(cells[kept, position], chances[kept], minlength=SIZES[position])
        np.testing.assert_allclose(pmf_found, expected / expected.sum(), atol=1e-12)


def test_complete__takes_the_most_probable_level_of_each(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    completed = model.complete(codes)
    assert np.array_equal(completed[codes >= 0], codes[codes >= 0])
    for position in range(len(SIZES)):
        gaps = codes[:, position] < 0
        expected = model.predict_proba(codes[gaps], position).argmax(axis=1)
        assert np.array_equal(completed[gaps, position], expected)


def test_predict_in_states__is_that_of_the_completions_of_one_state(model):
    codes = draw_gaps(list_cells(model)[0], 40)
    states = np.random.default_rng(3).integers(model.rank, size=len(codes))
    for position in range(len(SIZES)):
        rows = np.flatnonzero(codes[:, position] < 0)
        found = model.predict_in_states(codes[rows], states[rows], position)
        for state in range(model.rank):
            mine = states[rows] == state
            one = TreePMF.make(
                model.parameters._replace(prior=np.eye(model.rank)[state]), model.schema
            )
            expected = one.predict_proba(codes[rows[mine]], position)
            np.testing.assert_allclose(found[mine], expected, atol=1e-12)


def test_marginal__is_the_sum_of_the_joint(model):
    joint = find_joint(model)
    expected = joint.sum(axis=(1, 3)).transpose(2, 0, 1)
    np.testing.assert_allclose(model.marginal([4, 0, 2]), expected, atol=1e-14)
    np.testing.assert_allclose(model.marginal(["v1"]), joint.sum(axis=(0, 2, 3, 4)), atol=1e-14)


def test_marginal__given_sets_of_levels(model):
    joint = find_joint(model)[:, [0, 2]][..., [3]]
    expected = joint.sum(axis=(1, 3, 4)) / joint.sum()
    np.testing.assert_allclose(model.marginal([0, 2], {1: [0, 2], 4: 3}), expected, atol=1e-14)


def test_condition__is_a_model_of_the_same_forests(model):
    joint = find_joint(model)[:, [0, 2]]
    given = model.condition({1: [0, 2]})
    assert np.array_equal(given.forest.parents, model.forest.parents)
    found = find_joint(given)
    np.testing.assert_allclose(found[:, [0, 2]], joint / joint.sum(), atol=1e-14)
    assert not found[:, 1].any()


def test_condition__what_only_an_edge_rules_out(model):
    forest = Forest(np.array([[-1, 0]], np.int32), pmf.Schema.from_cardinalities([2, 2]).offsets)
    tables = np.array([0.5, 0.5, 1.0, 0.0, 0.0, 1.0])
    copies = TreePMF.make(
        TreeParameters(np.ones(1), forest, tables), pmf.Schema.from_cardinalities([2, 2])
    )
    with pytest.raises(pmf.PmfError, match="v0=0 and v1=1"):
        copies.condition({0: 0, 1: 1})
    assert copies.marginal([1], {0: 1}).tolist() == [0.0, 1.0]


def test_find_pairs__equals_marginals(model):
    pairs, offsets = model.find_pairs(), model.schema.offsets
    for one, other in ((0, 1), (2, 4), (1, 4), (3, 0)):
        block = pairs[offsets[one] : offsets[one + 1], offsets[other] : offsets[other + 1]]
        np.testing.assert_allclose(block, model.marginal([one, other]), atol=1e-14)
    found = measure_associations(model, np.array([0, 1, 4]))
    joint = model.marginal([1, 4])
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert found.mutual_information[1, 2] == pytest.approx((joint * np.log(joint / apart)).sum())


def test_sample__has_the_joint_and_the_seed(model):
    cells, chances = list_cells(model)
    drawn = model.sample(40_000, 3)
    shares = np.bincount(
        np.ravel_multi_index(tuple(drawn.T), tuple(SIZES)), minlength=len(cells)
    ) / len(drawn)
    assert np.abs(shares - chances).max() < 4 * np.sqrt(chances.max() / len(drawn))
    assert np.array_equal(drawn, model.sample(40_000, 3))
    assert set(model.sample(50, 0, given={1: 2})[:, 1].tolist()) == {2}
    assert model.sample(0, 0).shape == (0, len(SIZES))


def test_load__gives_the_same_model(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    assert isinstance(loaded, TreePMF)
    assert digest_model(loaded) == digest_model(model)
    codes = draw_gaps(list_cells(model)[0], 20)
    assert np.array_equal(loaded.log_prob(codes), model.log_prob(codes))
    assert digest_model(make_tree(SIZES, model.forest.parents, 1)) != digest_model(model)


def test_tree_pmf__without_edges_is_the_plain_model(tmp_path):
    schema = pmf.Schema.from_cardinalities(SIZES)
    plain = pmf.JointPMF(*make_model(np.random.default_rng(0), SIZES, 3), schema)
    tree = TreePMF.make(TreeParameters.plain(plain.prior, plain.factors, schema.offsets), schema)
    codes = draw_gaps(list_cells(tree)[0], 50)
    assert tree.n_parameters == plain.n_parameters
    assert np.array_equal(tree.factors, plain.factors)
    np.testing.assert_allclose(tree.log_prob(codes), plain.log_prob(codes), atol=1e-12)
    np.testing.assert_allclose(tree.posterior(codes), plain.posterior(codes), atol=1e-12)
    np.testing.assert_allclose(
        tree.predict_proba(codes, 1), plain.predict_proba(codes, 1), atol=1e-12
    )
    np.testing.assert_allclose(
        tree.marginal([0, 4], {1: 2}), plain.marginal([0, 4], {1: 2}), atol=1e-12
    )
    np.testing.assert_allclose(
        measure_associations(tree).mutual_information,
        measure_associations(plain).mutual_information,
        atol=1e-12,
    )
    for one, other in zip(tree.expect_logs(), plain.expect_logs(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    cells = np.array([[0, 1], [1, 3]])
    np.testing.assert_allclose(
        tree.weigh_combinations([0, 4], cells), plain.weigh_combinations([0, 4], cells), rtol=1e-12
    )
    assert tree.edges() == plain.edges() == []
    assert np.array_equal(tree.complete(codes), plain.complete(codes))
    # the logarithm of 1, of a row that holds the only level of a variable, is 0 or what rounding leaves of it
    observed = codes[(codes[:, np.array(SIZES) > 1] >= 0).any(axis=1)]
    scored, expected = (each.score(observed).to_pydict() for each in (tree, plain))
    for name in ("log_prob", "anomaly_score", "surprising_probability", "expected_probability"):
        np.testing.assert_allclose(scored[name], expected[name], rtol=1e-9)
    for name in ("surprising_variable", "state", "expected_level"):
        assert scored[name] == expected[name]


def test_score_hidden__predicts_from_what_is_shown(model):
    cells, _ = list_cells(model)
    codes = cells[np.random.default_rng(0).integers(len(cells), size=50)]
    hidden = np.zeros(codes.shape, bool)
    hidden[np.arange(50), np.arange(50) % 5] = True
    baseline = model.factors @ model.prior
    found = score_hidden(codes, hidden, model, baseline)
    expected = 0.0
    for row, variable in zip(codes, np.arange(50) % 5, strict=True):
        expected += np.log(model.predict_proba(row[None], int(variable))[0, row[variable]])
    assert found.sums[:, 1].sum() == pytest.approx(expected)
    rounds = np.where(hidden, 0, -1)
    assert compare_hidden(codes, rounds, 1, model, model)[2] == 0.0


def test_ask__answers_by_the_joint(model):
    joint = find_joint(model)
    expected = joint[1, :, :, :, 2].sum() / joint[..., 2].sum()
    assert model.ask("P(v0=1 | v4=2)").value == pytest.approx(expected)


def test_expected_value__is_the_mean_over_levels():
    schema = pmf.Schema(
        tuple(
            pmf.Variable(name, ("1", "2", "3"), values=(1.0, 2.0, 3.0)) for name in ("one", "two")
        )
    )
    forest = Forest(np.array([[-1, 0]], np.int32), schema.offsets)
    tables = np.array([0.2, 0.3, 0.5, 0.8, 0.1, 0.1, 0.1, 0.8, 0.1, 0.1, 0.1, 0.8])
    model = TreePMF.make(TreeParameters(np.ones(1), forest, tables), schema)
    found = model.expected_value(np.array([[1, -1], [3, -1]]), "two")
    np.testing.assert_allclose(found, [1.3, 2.7])


def test_edges__by_the_share_of_their_states(model):
    edges = model.edges()
    prior = model.prior
    assert dict((each[:2], each[2]) for each in edges)["v0", "v4"] == pytest.approx(
        prior[0] + prior[1]
    )
    assert len(edges) == 6


def test_tree_pmf__refuses_what_it_does_not_do(model):
    with pytest.raises(MemoryPlanError):
        find_most_likely(make_tree([4] * 9, np.full((1, 9), -1)), list(range(9)), 1)
    with pytest.raises(SchemaError):
        model.marginal([0, 0])


def test_marginal__too_many_cells():
    model = make_tree([2] * 30, np.full((1, 30), -1))
    with pytest.raises(MemoryPlanError):
        model.marginal(list(range(30)))


def test_forest__refuses_a_circle():
    with pytest.raises(pmf.PmfError, match="state 1"):
        Forest(np.array([[-1, 0, 1], [1, 2, 0]]), np.array([0, 2, 4, 6]))


def test_tree_pmf__refuses_tables_of_another_forest(model):
    with pytest.raises(pmf.PmfError, match="tables"):
        TreePMF.make(model.parameters._replace(tables=np.ones(3)), model.schema)


def test_tree_pmf__long_chain_does_not_underflow():
    n = 600
    model = make_tree([3] * n, np.arange(-1, n - 1)[None])
    codes = np.full((1, n), -1, np.int8)
    codes[0, ::2] = 1
    assert -n < model.log_prob(codes)[0] < -1
    assert model.predict_proba(codes, 1)[0].sum() == pytest.approx(1.0)


def test_plot_forest__draws_every_edge_and_variable_once(model):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("matplotlib.pyplot")
    matplotlib.use("Agg")
    ax = model.plot_forest(least_share=0.0)
    assert len(ax.lines) == len(model.edges())
    assert sorted(each.get_text() for each in ax.texts) == list(model.schema.names)
    # a tree of five variables has four edges: the others would close a circle
    assert sum(each.get_linestyle() == "-" for each in ax.lines) == 4
    with pytest.raises(pmf.PmfError):
        model.plot_forest(least_share=1.0)
    matplotlib.pyplot.close(ax.figure)
