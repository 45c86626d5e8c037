import numpy as np
import pytest

import pmflib as pmf
from pmflib.model.score_tables import digest_model
from tests.reference import make_model


@pytest.fixture(scope="session")
def truth():
    """A model of two states and four variables."""
    cardinalities = [3, 2, 4, 3]
    parameters = make_model(np.random.default_rng(0), cardinalities, 2)
    return pmf.JointPMF(*parameters, pmf.Schema.from_cardinalities(cardinalities))


@pytest.fixture(scope="session")
def codes(truth):
    """Samples of it, a fifth of the cells missing."""
    drawn = truth.sample(3000, rng=1)
    drawn[np.random.default_rng(2).random(drawn.shape) < 0.2] = -1
    drawn.flags.writeable = False
    return drawn


def same_fit(one, other):
    """Whether two fits are equal to the last bit, and in what they say."""
    return digest_model(one.model) == digest_model(other.model) and all(
        getattr(one, name) == getattr(other, name)
        for name in ("loss_history", "held_out", "log_likelihoods", "comparisons", "notes")
    )
