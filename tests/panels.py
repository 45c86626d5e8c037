"""Panel data drawn from a known chain, and the slow versions of what passes compute."""

import itertools
from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

import pmflib as pmf
from pmflib.families.panels import TransitionModel, Waves


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
    """All paths of states, and the logarithms of the joint probabilities of one row and each of them.

    Zeros count as `FLOOR`, as in all models.
    """
    n_waves, schema, chain = model.n_waves, model.schema, model.chain.take_logs()
    paths = list(itertools.product(range(model.n_states), repeat=n_waves))
    logs = []
    for path in paths:
        log = chain.initial[path[0]]
        for wave in range(n_waves):
            if wave:
                log += chain.transitions[wave - 1][path[wave - 1], path[wave]]
            for position in model.waves.positions[wave]:
                if position >= 0 and row[position] >= 0:
                    log += chain.emissions[schema.offsets[position] + row[position], path[wave]]
        logs.append(log)
    return np.array(paths), np.array(logs)


def find_posterior(model, row):
    """All paths of states, their probabilities given one row, and the log-probability of the row."""
    paths, logs = weigh_paths(model, row)
    log_prob = logsumexp(logs)
    return paths, np.exp(logs - log_prob), log_prob


def make_hard_model(seed, n_states=3, n_waves=4):
    """Draw a model with zeros, and with answers that tell states apart by more than floats can hold."""
    rng = np.random.default_rng(seed)
    plain = make_model(n_states, n_waves, sizes=(3, 3, 2), seed=seed, homogeneous=False)
    moves = plain.transitions * (rng.random(plain.transitions.shape) < 0.5)
    moves += np.eye(n_states) * (moves.sum(axis=2, keepdims=True) == 0)
    initial = plain.initial * (np.arange(n_states) == rng.integers(n_states))
    exponents = rng.choice([0.0, -5.0, -250.0, -400.0], plain.emissions.shape)
    shares = np.where(exponents > -400, 10.0**exponents, 0.0)
    sums = np.add.reduceat(shares, plain.schema.offsets[:-1])
    widths = np.diff(plain.schema.offsets)
    shares = np.where(np.repeat(sums == 0, widths, axis=0), 1.0, shares)
    shares /= np.repeat(np.add.reduceat(shares, plain.schema.offsets[:-1]), widths, axis=0)
    return replace(
        plain,
        initial=initial / initial.sum(),
        transitions=moves / moves.sum(axis=2, keepdims=True),
        emissions=shares,
        invariant=False,
    )
