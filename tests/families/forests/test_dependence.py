import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PairedDifference
from pmflib.em import BlockSource
from pmflib.families.forests import TreePMF
from pmflib.model import digest_model
from tests.families.forests.conftest import make_tree

CHAIN = [-1, 0, 1, 2, 3, 4]


def plant(share, n_states=2):
    """A chain of variables in each state; of share 0, variables are independent there."""
    model = make_tree([3] * 6, [CHAIN] * n_states, prior=np.full(n_states, 1 / n_states))
    forest, rng = model.forest, np.random.default_rng(3)
    tables = model.tables.copy()
    for state in range(n_states):
        for position in range(6):
            table = forest.view_table(tables, state, position)
            own = rng.dirichlet(np.ones(3))
            shifted = np.eye(3)[(np.arange(len(table)) + state) % 3]
            table[:] = (1 - share) * own + share * shifted
    return TreePMF.make(model.parameters._replace(tables=tables), model.schema)


def test_fit_em__auto_finds_the_planted_chain():
    truth = plant(0.6)
    found = pmf.fit_em(truth.sample(4000, 1), rank=2, schema=truth.schema, dependence="auto")
    assert isinstance(found.model, TreePMF)
    assert {each[:2] for each in found.model.edges()} == {(f"v{k}", f"v{k + 1}") for k in range(5)}
    fresh = truth.sample(4000, 2)
    assert found.model.log_prob(fresh).mean() > truth.log_prob(fresh).mean() - 0.02
    assert found.model.origin["dependence"] == "tree"
    chosen = found.comparisons[-1]
    assert chosen.chosen.settings == {"dependence": "tree"}


def test_fit_em__auto_finds_none_where_there_is_none():
    truth = plant(0.0, 3)
    codes = truth.sample(3000, 1)
    found = pmf.fit_em(codes, rank=3, schema=truth.schema, dependence="auto")
    plain = pmf.fit_em(codes, rank=3, schema=truth.schema)
    assert not isinstance(found.model, TreePMF)
    assert digest_model(found.model) == digest_model(plain.model)


def test_fit_em__auto_tries_no_forests_of_thousands_of_levels_in_memory(monkeypatch):
    half = np.random.default_rng(0).integers(0, 2, (60, 550))
    codes = np.concatenate([half, half], axis=1)
    monkeypatch.delattr("pmflib.families.forests.dependence.ForestSearch")
    found = pmf.fit_em(codes, rank=1, dependence="auto")
    assert not isinstance(found.model, TreePMF)
    assert any("dependence none" in note for note in found.notes)


@pytest.mark.parametrize(("gain", "taken"), [(0.019, False), (0.021, True)])
def test_fit_em__auto_takes_forests_where_samples_gain_two_standard_errors(
    monkeypatch, gain, taken
):
    compare = BlockSource.compare

    def compare_models(self, first, second, *score_under):
        if not score_under:
            return compare(self, first, second)
        return PairedDifference(gain if first[0].forest.n_edges else -gain, 0.01)

    truth = plant(0.6)
    monkeypatch.setattr(BlockSource, "compare", compare_models)
    found = pmf.fit_em(truth.sample(600, 1), rank=2, schema=truth.schema, dependence="auto")
    assert isinstance(found.model, TreePMF) == taken


def test_fit_em__tree_has_few_edges_where_there_are_none():
    truth = plant(0.0)
    found = pmf.fit_em(truth.sample(2000, 1), rank=2, schema=truth.schema, dependence="tree")
    assert isinstance(found.model, TreePMF)
    assert found.model.forest.n_edges == 0


def test_fit_em__members_are_averaged():
    truth = plant(0.6)
    codes, held_out = truth.sample(600, 1), truth.sample(300, 2)
    found = pmf.fit_em(
        codes,
        rank=2,
        schema=truth.schema,
        validation=held_out,
        members=3,
        dependence="tree",
    )
    assert found.model.rank == 6
    assert found.model.origin["average"] == 3
    assert found.model.origin["final"]


@pytest.mark.usefixtures("few_starts")
def test_fit_em__same_bits_for_any_number_of_threads(monkeypatch):
    truth, found = plant(0.6), []
    codes = truth.sample(900, 1)
    # more blocks than threads, of few samples
    monkeypatch.setattr("pmflib.em.block_source.BLOCK_WORK", 1000)
    for n_threads in (1, 3):
        monkeypatch.setattr("pmflib.em.block_source.count_processors", lambda n=n_threads: n)
        fitted = pmf.fit_em(codes, rank=2, schema=truth.schema, dependence="tree", max_passes=20)
        found.append(digest_model(fitted.model))
    assert found[0] == found[1]


def test_fit_em__gaps_and_a_variable_never_observed():
    truth = plant(0.6)
    codes = truth.sample(800, 1)
    codes[np.random.default_rng(0).random(codes.shape) < 0.3] = -1
    codes[:, 3] = -1
    found = pmf.fit_em(codes, rank=2, schema=truth.schema, dependence="tree", max_passes=20)
    assert np.isfinite(found.model.log_prob(codes)).all()
    assert isinstance(found.model, TreePMF)
    assert not any("v3" in each[:2] for each in found.model.edges())


@pytest.mark.parametrize(("n_rows", "sizes"), [(30, [2, 2]), (200, [2, 2]), (200, [1, 3])])
def test_fit_em__tree_of_two_variables_and_few_rows(n_rows, sizes):
    rng = np.random.default_rng(0)
    first = rng.integers(0, sizes[0], n_rows)
    codes = np.stack([first, first if sizes[0] == 2 else rng.integers(0, 3, n_rows)], axis=1)
    schema = pmf.Schema.from_cardinalities(sizes)
    found = pmf.fit_em(codes, rank=1, schema=schema, dependence="tree")
    assert isinstance(found.model, TreePMF)
    assert found.model.forest.n_edges == (sizes[0] > 1)
    np.testing.assert_allclose(found.model.marginal([0, 1]).sum(), 1.0)


def test_fit_em__a_target_is_scored_by_its_own_likelihood():
    truth = plant(0.6)
    found = pmf.fit_em(
        truth.sample(1500, 1), rank=2, schema=truth.schema, dependence="tree", target="v2"
    )
    fresh = truth.sample(1000, 2)
    chances = found.model.predict_proba(fresh, "v2")[np.arange(1000), fresh[:, 2]]
    best = truth.predict_proba(fresh, "v2")[np.arange(1000), fresh[:, 2]]
    assert np.log(chances).mean() > np.log(best).mean() - 0.05
    assert max(found.held_out) > -1.0


def test_fit_em__refuses_other_dependences():
    with pytest.raises(pmf.PmfError, match="dependence"):
        pmf.fit_em(np.zeros((3, 2), int), rank=1, dependence="chain")  # type: ignore[arg-type]


def test_fit_em__forest_for_a_target_with_a_rank_that_is_chosen():
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, 800)
    codes = np.column_stack([np.where(rng.random(800) < 0.8, side, 1 - side) for _ in range(5)])
    codes[:, 4] = np.where(rng.random(800) < 0.9, codes[:, 3], 1 - codes[:, 3])
    schema = pmf.Schema.from_cardinalities([2] * 5)
    found = pmf.fit_em(codes, rank="auto", schema=schema, target=4, dependence="tree")
    assert isinstance(found.model, TreePMF)
    assert found.model.edges()
    # nine of ten agree with the variable before it
    assert (found.model.predict(codes, 4) == codes[:, 4]).mean() > 0.85
    compared = [name for each in found.comparisons for name in each.chosen.settings]
    assert {"rank", "dependence"} <= {*compared}


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.parametrize("dependence", [None, "tree"])
@pytest.mark.usefixtures("few_starts")
def test_fit_em__a_chosen_rank_is_of_classes_and_forests_follow_where_asked_for(dependence):
    truth = plant(0.6)
    codes = truth.sample(400, 1)
    found = pmf.fit_em(
        codes, rank="auto", schema=truth.schema, dependence=dependence, max_passes=10
    )
    assert found.comparisons[0].chosen.settings["rank"] == found.model.rank <= 20
    assert isinstance(found.model, TreePMF) is (dependence == "tree")


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_fit_em__refines_a_model_with_forests():
    truth = plant(0.6)
    codes, held_out = truth.sample(1000, 1), truth.sample(500, 2)
    first = pmf.fit_em(
        codes[:300], rank=2, schema=truth.schema, dependence="tree", max_passes=8
    ).model
    better = pmf.fit_em(codes, first, validation=held_out, max_passes=20)
    assert isinstance(better.model, TreePMF)
    assert better.model.origin["method"] == "given+em"
    assert better.model.origin["penalty"] == first.origin["penalty"]
    assert max(better.held_out) > better.held_out[0]
    assert better.model.log_prob(held_out).mean() == pytest.approx(max(better.held_out))
    again = pmf.fit_em(codes, better.model, max_passes=3, pseudo_count=2.0)
    assert again.model.origin["pseudo_count"] == 2.0
    # that of the start, and after each pass
    assert len(again.log_likelihoods) == 4
