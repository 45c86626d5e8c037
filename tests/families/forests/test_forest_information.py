import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, IdentificationWarning
from pmflib.families.forests import Forest, TreeParameters, TreePMF
from pmflib.families.forests.information import ForestInformation, find_factor_slopes
from tests.inference.errors.test_standard_errors import list_directions


def test_sum_information__scores_of_forests_are_the_derivatives_of_rows():
    offsets = np.array([0, 3, 5, 8])
    rng = np.random.default_rng(0)
    forest = Forest(np.array([[-1, 0, 1], [1, -1, -1]]), offsets)
    tables = forest.normalise(rng.random(forest.n_entries) + 0.2, np.ones(forest.n_entries))
    schema = pmf.Schema.from_cardinalities([3, 2, 3])
    model = TreePMF.make(TreeParameters(np.array([0.4, 0.6]), forest, tables), schema)
    codes = model.sample(50, 0)
    codes[rng.random(codes.shape) < 0.3] = -1
    information = ForestInformation(model)
    entries, starts = information.entries, information.starts
    found = information.sum_information([DenseBlock(codes)])
    steps, width = list_directions(starts, entries.size), 1e-5

    def move(moved):
        return TreePMF.make(TreeParameters(moved[:2], forest, moved[2:]), schema)

    moved = [(move(entries + width * s), move(entries - width * s)) for s in steps.T]
    scores = np.array([(a.log_prob(codes) - b.log_prob(codes)) / width / 2 for a, b in moved])
    np.testing.assert_allclose(
        steps.T @ found.outer @ steps, scores @ scores.T, rtol=1e-5, atol=1e-5
    )
    slopes = np.array([(a.factors - b.factors).ravel() / width / 2 for a, b in moved]).T
    np.testing.assert_allclose(find_factor_slopes(model.parameters) @ steps, slopes, atol=1e-8)


def test_standard_errors__of_forests():
    sizes, offsets = [3, 2, 3, 2, 2], np.array([0, 3, 5, 8, 10, 12])
    rng = np.random.default_rng(2)
    forest = Forest(np.array([[-1, 0, -1, -1, -1], [-1, -1, -1, 2, -1]]), offsets)
    tables = forest.normalise(rng.random(forest.n_entries) ** 3 + 0.05, np.ones(forest.n_entries))
    schema = pmf.Schema.from_cardinalities(sizes)
    model = TreePMF.make(TreeParameters(np.array([0.5, 0.5]), forest, tables), schema)
    codes = model.sample(4000, 0)
    with pytest.warns(IdentificationWarning):
        # the truth is not the maximum for these samples
        found = pmf.inference.standard_errors(model, codes)
    assert found.method == "products of scores"
    assert found["tables"].errors.shape == (forest.n_entries,)
    assert found["factors"].errors.shape == model.factors.shape
    assert (found["factors"].errors[:3] > 0).all()
