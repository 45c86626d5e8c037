import numpy as np
import pytest

from pmflib.base import DenseBlock
from pmflib.families.forests.split_states import SplitStates
from pmflib.families.forests.statistics import TreePasses
from tests.families.forests.conftest import PARENTS, SIZES, draw_gaps, list_cells, make_tree

NONE = np.full(5, -1)


@pytest.mark.parametrize(
    "parents",
    [PARENTS, PARENTS[:2], PARENTS[2:], [NONE, PARENTS[0], NONE, NONE, PARENTS[1]]],
    ids=["one apart", "all with edges", "none with edges", "in turn"],
)
def test_split_states__equal_forests_without_edges(parents):
    model = make_tree(SIZES, parents)
    split, whole = SplitStates(model.parameters), TreePasses(model.parameters)
    codes = draw_gaps(list_cells(model)[0], 50)
    found, expected = (np.empty((50, model.rank)) for _ in range(2))
    scores, known = np.empty(50), np.empty(50)
    split.score_block(DenseBlock(codes), scores, found)
    whole.find_posteriors(codes, expected, known)
    np.testing.assert_allclose(scores, known, atol=1e-12)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(split.score(DenseBlock(codes)), known, atol=1e-12)
    assert scores[0] == 0.0
    beliefs = whole.find_beliefs(codes, expected)
    for position in range(len(SIZES)):
        hidden = codes.copy()
        hidden[:, position] = -1
        posteriors = model.posterior(hidden)
        beliefs = whole.find_beliefs(hidden, posteriors)[:, model.schema.rows_of(position)]
        for predicted in (
            model.predict_hidden(hidden, posteriors, position),
            model.predict_proba(hidden, position),
        ):
            np.testing.assert_allclose(predicted, beliefs, atol=1e-12)


def test_sample__states_without_edges_have_their_shares():
    model = make_tree(SIZES, [NONE, PARENTS[0], NONE])
    drawn = model.sample(40_000, 0)
    cells, chances = list_cells(model)
    places = np.ravel_multi_index(drawn.T, SIZES)
    shares = np.bincount(places, minlength=len(cells)) / 40_000
    assert np.abs(shares - chances).max() < 5 * np.sqrt(chances.max() / 40_000)
