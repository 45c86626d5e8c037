import numpy as np

import pmflib as pmf

SCHEMA = pmf.Schema(
    (
        pmf.Variable("age", ("young", "old")),
        pmf.Variable("pet", ("cat", "dog")),
        pmf.Variable("car", ("no", "yes")),
    )
)
# nobody young has a car, and nobody has both a cat and a car
FACTORS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.0], [0.4, 1.0], [1.0, 0.3], [0.0, 0.7]])

SURVEY = pmf.Schema(
    (
        pmf.Variable("stars", ("1", "2", "3", "4"), (1.0, 2.0, 3.0, 4.0)),
        pmf.Variable("kind", ("drama", "comedy", "other"), other="other"),
        pmf.Variable("free text", ("yes, and no", "x=y", "don't know")),
        pmf.Variable("income", ("low", "middle", "high"), edges=(10.0, 20.0)),
    )
)


def make_pets():
    return pmf.JointPMF(np.array([0.5, 0.5]), FACTORS, SCHEMA)


def make_survey(seed=0, rank=3):
    rng = np.random.default_rng(seed)
    factors = np.vstack([rng.dirichlet(np.ones(each.cardinality), rank).T for each in SURVEY])
    return pmf.JointPMF(rng.dirichlet(np.ones(rank)), factors, SURVEY)


def tabulate(model):
    """The whole joint PMF, the slow way."""
    joint = 0.0
    for state in range(model.rank):
        cell = model.prior[state]
        for position in range(model.schema.n_variables):
            cell = np.multiply.outer(cell, model.factor(position)[:, state])
        joint = joint + cell
    return joint


def draw_counts(model, n_rows, seed, n_folds=16):
    return pmf.count_pairs(model.sample(n_rows, seed), model.schema, n_folds=n_folds)
