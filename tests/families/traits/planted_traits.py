"""Trait models to draw samples from."""

import numpy as np

import pmflib as pmf
from pmflib.families.traits import TraitModel, TraitPMF


def plant_traits(cardinalities, n_traits, seed, *, nominal=(), size=0.8):
    """Ordered variables, of partial credit along one vector each; those named nominal have a vector a level."""
    rng = np.random.default_rng(seed)
    schema = make_schema(cardinalities, nominal)
    base = rng.normal(0, 0.5, schema.n_levels)
    slopes = np.empty((schema.n_levels, n_traits))
    for position, variable in enumerate(schema):
        rows = schema.rows_of(position)
        if position in nominal:
            slopes[rows] = rng.normal(0, size, (variable.cardinality, n_traits))
        else:
            steps = np.arange(variable.cardinality) - (variable.cardinality - 1) / 2
            slopes[rows] = steps[:, None] * rng.normal(0, size, n_traits)
    return TraitModel(schema, base, slopes, np.zeros(n_traits), np.eye(n_traits))


def make_schema(cardinalities, nominal=()):
    schema = pmf.Schema.from_cardinalities(cardinalities)
    return pmf.Schema(
        tuple(
            pmf.Variable(variable.name, variable.levels, None if n in nominal else variable.values)
            for n, variable in enumerate(schema)
        )
    )


def draw_samples(model, n_rows, seed, *, missing=0.0):
    """Codes and traits of samples."""
    rng = np.random.default_rng(seed)
    traits = rng.multivariate_normal(model.mean, model.covariance, n_rows)
    factors = model.find_factors(traits)
    codes = np.empty((n_rows, model.schema.n_variables), np.int8)
    for position in range(model.schema.n_variables):
        ends = factors[model.schema.rows_of(position)].cumsum(axis=0)
        codes[:, position] = (rng.random(n_rows) > ends[:-1]).sum(axis=0)
    codes[rng.random(codes.shape) < missing] = -1
    return codes, traits


def integrate(model, codes, n_nodes=40):
    """Posterior mean and covariance of the traits of one row, and its log-probability, by quadrature on a grid."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grids = np.meshgrid(*[nodes] * model.n_traits, indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], axis=1)
    mass = np.ones(len(points))
    for each in np.meshgrid(*[weights / weights.sum()] * model.n_traits, indexing="ij"):
        mass = mass * each.ravel()
    points = model.mean + points @ np.linalg.cholesky(model.covariance).T
    factors = model.find_factors(points)
    for position, code in enumerate(codes):
        if code >= 0:
            mass = mass * factors[model.schema.offsets[position] + code]
    total = mass.sum()
    mean = mass @ points / total
    off = points - mean
    return mean, (off * mass[:, None]).T @ off / total, np.log(total), factors @ mass / total


def plant_items(cardinalities, n_traits, seed):
    """Item response model, each of whose variables is moved by one trait in its turn, at a slope of .8 to 1.6."""
    schema, rng = pmf.Schema.from_cardinalities(cardinalities), np.random.default_rng(seed)
    base, slopes = rng.normal(0, 0.7, schema.n_levels), np.zeros((schema.n_levels, n_traits))
    for position, cardinality in enumerate(cardinalities):
        ends = np.linspace(-1, 1, cardinality)
        slopes[schema.rows_of(position), position % n_traits] = rng.uniform(0.8, 1.6) * ends
    return TraitModel(schema, base, slopes, np.zeros(n_traits), np.eye(n_traits))


def traits_of(model):
    """Trait model of a joint PMF."""
    assert isinstance(model, TraitPMF)
    return model.trait_model
