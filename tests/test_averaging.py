import numpy as np
import pytest
from reference import make_model

import pmflib as pmf
from pmflib.averaging import average_models
from pmflib.errors import PmfError, RankError, SchemaError

SCHEMA = pmf.Schema.from_cardinalities([3, 2])


def make(seed, rank=2, schema=SCHEMA):
    return pmf.JointPMF(
        *make_model(np.random.default_rng(seed), schema.cardinalities.tolist(), rank), schema
    )


def test_average_models__states_in_another_order_are_the_same_model():
    model = make(0)
    turned = pmf.JointPMF(model.prior[::-1], model.factors[:, ::-1], SCHEMA)
    mean = average_models([model, turned, model])
    np.testing.assert_allclose(mean.prior, model.prior, rtol=1e-12)
    np.testing.assert_allclose(mean.factors, model.factors, rtol=1e-12)


def test_average_models__is_the_mean_of_matched_parameters():
    sharp, soft = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.3, 0.7], [0.7, 0.3]])
    schema = pmf.Schema.from_cardinalities([2])
    mean = average_models(
        [
            pmf.JointPMF(np.array([0.6, 0.4]), sharp, schema),
            pmf.JointPMF(np.array([0.4, 0.6]), soft, schema),
        ]
    )
    np.testing.assert_allclose(mean.prior, [0.6, 0.4])
    np.testing.assert_allclose(mean.factors, [[0.8, 0.2], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("models", "error", "match"),
    [
        ([], PmfError, "models is empty"),
        ([make(0), make(0, rank=3)], RankError, r"models have ranks \[2, 3\]"),
        (
            [make(0), make(0, schema=pmf.Schema.from_cardinalities([2, 3]))],
            SchemaError,
            "models have different schemas",
        ),
    ],
)
def test_average_models__refuses(models, error, match):
    with pytest.raises(error, match=match):
        average_models(models)
