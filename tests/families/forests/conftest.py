import itertools

import numpy as np
import pytest

import pmflib as pmf
from pmflib.families.forests import Forest, TreeParameters, TreePMF

SIZES = [2, 3, 2, 1, 4]
PARENTS = np.array([[-1, 0, 1, 1, 0], [4, -1, 4, -1, 1], [-1, -1, -1, -1, -1]])


def make_tree(sizes, parents, seed=0, prior=None):
    """A model of random tables on given forests."""
    rng = np.random.default_rng(seed)
    schema = pmf.Schema.from_cardinalities(sizes)
    forest = Forest(np.asarray(parents, np.int32), schema.offsets)
    tables = forest.normalise(rng.random(forest.n_entries), np.zeros(forest.n_entries))
    prior = rng.dirichlet(np.full(forest.rank, 3.0)) if prior is None else prior
    return TreePMF.make(TreeParameters(prior, forest, tables), schema)


def list_cells(model):
    """All rows without gaps, and the probability of each, a product at a time."""
    sizes = model.schema.cardinalities.tolist()
    cells = np.array(list(itertools.product(*map(range, sizes))), np.int8)
    chances = np.zeros(len(cells))
    for state, prior in enumerate(model.prior.tolist()):
        for number, cell in enumerate(cells.tolist()):
            chance = prior
            for position, parent in enumerate(model.forest.parents[state].tolist()):
                table = model.forest.view_table(model.tables, state, position)
                chance *= table[cell[parent] if parent >= 0 else 0, cell[position]]
            chances[number] += chance
    return cells, chances


def match(cells, row):
    """Which cells agree with what a row holds."""
    return ((cells == row) | (np.asarray(row) < 0)).all(axis=1)


def draw_gaps(cells, n_rows, seed=1):
    """Some of the cells, with gaps; the first row has nothing observed."""
    rng = np.random.default_rng(seed)
    codes = cells[rng.integers(len(cells), size=n_rows)].copy()
    codes[rng.random(codes.shape) < 0.5] = -1
    codes[0] = -1
    return codes


@pytest.fixture
def model():
    return make_tree(SIZES, PARENTS)


@pytest.fixture
def few_starts(monkeypatch):
    """Forests are looked for from two starts: enough where what is planted is plain."""
    monkeypatch.setattr("pmflib.families.forests.tree_fit.MOST_STARTS", 2)
    monkeypatch.setattr("pmflib.families.forests.tree_fit.ROUNDS", ((4, 2),))
