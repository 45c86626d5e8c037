import numpy as np

from pmflib.fitting.small_fits import average_parameters
from tests.reference import make_model


def test_average_parameters__states_in_another_order_are_the_same_model():
    prior, factors = make_model(np.random.default_rng(0), [3, 2], 2)
    reordered = prior[::-1], factors[:, ::-1]
    mean = average_parameters([(prior, factors), reordered, (prior, factors)])
    np.testing.assert_allclose(mean[0], prior, rtol=1e-12)
    np.testing.assert_allclose(mean[1], factors, rtol=1e-12)


def test_average_parameters__is_the_mean_of_matched_parameters():
    sharp, soft = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([[0.3, 0.7], [0.7, 0.3]])
    prior, factors = average_parameters(
        [(np.array([0.6, 0.4]), sharp), (np.array([0.4, 0.6]), soft)]
    )
    np.testing.assert_allclose(prior, [0.6, 0.4])
    np.testing.assert_allclose(factors, [[0.8, 0.2], [0.2, 0.8]])
