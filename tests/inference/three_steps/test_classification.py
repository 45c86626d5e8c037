import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import Criteria


def make():
    factors = np.tile([[0.9, 0.1], [0.1, 0.9]], (4, 1))
    schema = pmf.Schema.from_cardinalities([2] * 4)
    model = pmf.JointPMF(np.array([0.6, 0.4]), factors, schema)
    return model, model.sample(2000, 0)


def test_classify__is_made_of_the_posteriors():
    model, codes = make()
    found = pmf.inference.classify(model, codes)
    posteriors = model.posterior(codes)
    likeliest = posteriors.argmax(axis=1)
    assert np.allclose(found.average_posteriors[1], posteriors[likeliest == 1].mean(axis=0))
    assert np.allclose(
        found.errors[0, 1], posteriors[likeliest == 1, 0].sum() / posteriors[:, 0].sum()
    )
    assert np.allclose(found.assigned, [(likeliest == 0).mean(), (likeliest == 1).mean()])
    assert np.isclose(found.error_rate, 1 - posteriors.max(axis=1).mean())
    criteria = pmf.fit_em(codes, model, max_passes=0).criteria(codes)
    assert isinstance(criteria, Criteria)
    assert np.isclose(found.entropy_r2, criteria.relative_entropy)


def test_classify__weights_are_rows_again_and_empty_rows_are_left_out():
    model, codes = make()
    codes[0] = -1
    weight = np.random.default_rng(0).integers(0, 3, len(codes))
    weighted = pmf.inference.classify(model, codes, weight=weight)
    again = pmf.inference.classify(model, np.repeat(codes, weight, axis=0))
    assert np.isclose(weighted.entropy_r2, again.entropy_r2)
    assert np.allclose(weighted.average_posteriors, again.average_posteriors)
    assert again.n_rows == weight[1:].sum()


def test_classify__a_class_that_nobody_is_likeliest_in_has_no_average():
    model, codes = make()
    rare = pmf.JointPMF(
        np.array([0.6, 0.399, 0.001]),
        np.column_stack([model.factors, np.full(8, 0.5)]),
        model.schema,
    )
    found = pmf.inference.classify(rare, codes)
    assert np.isnan(found.average_posteriors[2]).all()
    assert found.assigned[2] == 0


def test_classify__of_one_class_is_certain():
    model, codes = make()
    one = pmf.fit_em(codes, rank=1, schema=model.schema).model
    found = pmf.inference.classify(one, codes)
    assert np.isnan(found.entropy_r2)
    assert found.error_rate == 0
    with pytest.raises(pmf.PmfError):
        pmf.inference.classify(one, np.full((2, 4), -1))
