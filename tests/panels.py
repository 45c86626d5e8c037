"""Panel data drawn from a known chain, and the slow versions of what passes compute."""

import itertools

import numpy as np

import pmflib as pmf
from pmflib.model.transitions import TransitionModel
from pmflib.schema.waves import Waves


def make_model(n_states=2, n_waves=3, sizes=(3, 2), *, seed=0, homogeneous=True, invariant=True):
    """Draw a model whose states differ."""
    rng = np.random.default_rng(seed)
    schema = pmf.Schema.from_cardinalities([*sizes] * n_waves)
    n_tables = (1, 1) if homogeneous else (n_waves - 1, 1)
    moves = rng.dirichlet(np.ones(n_states), (n_tables[0], n_states)) + 2 * np.eye(n_states)
    moves = np.broadcast_to(
        moves / moves.sum(axis=2, keepdims=True), (n_waves - 1, *moves.shape[1:])
    )
    tables = []
    for _ in range(1 if invariant else n_waves):
        tables.append(np.concatenate([rng.dirichlet(np.full(k, 0.4), n_states).T for k in sizes]))
    emissions = np.concatenate(tables * n_waves if invariant else tables)
    initial = rng.dirichlet(np.full(n_states, 5.0))
    waves = Waves.find(schema, n_waves)
    flags = {"homogeneous": homogeneous, "invariant": invariant}
    return TransitionModel(initial, np.array(moves), emissions, schema, waves, **flags)


def draw_panel(model, n_rows, seed=0, *, gaps=0.1, missed=0.2):
    """Draw codes with missing answers and missed waves."""
    rng = np.random.default_rng(seed)
    codes = model.sample(n_rows, rng)
    codes[rng.random(codes.shape) < gaps] = -1
    for positions in model.waves.positions:
        rows = np.flatnonzero(rng.random(n_rows) < missed)
        codes[np.ix_(rows, positions)] = -1
    return codes


def weigh_paths(model, row):
    """Joint probabilities of one row and of all paths of states: the paths, and their probabilities."""
    n_waves, schema = model.n_waves, model.schema
    paths = list(itertools.product(range(model.n_states), repeat=n_waves))
    chances = []
    for path in paths:
        chance = model.initial[path[0]]
        for wave in range(n_waves):
            if wave:
                chance *= model.transitions[wave - 1][path[wave - 1], path[wave]]
            for position in model.waves.positions[wave]:
                if position >= 0 and row[position] >= 0:
                    chance *= model.emissions[schema.offsets[position] + row[position], path[wave]]
        chances.append(chance)
    return np.array(paths), np.array(chances)
