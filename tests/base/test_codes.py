"""Arrays of codes keep their type where they are selected from, and lose it where they are computed with."""

import copy
import pickle

import numpy as np
import pytest

import pmflib as pmf

PLAIN = np.array([[0, 2, 1], [-1, 0, 3], [1, 1, -1]], np.int8)
CODES = pmf.Codes(PLAIN)


@pytest.mark.parametrize(
    "function",
    [
        lambda codes: codes[:2],
        lambda codes: codes[codes[:, 0] >= 0],
        lambda codes: codes[[2, 0, 0]],
        lambda codes: codes[:, [2, 1]],
        lambda codes: codes[0],
        lambda codes: codes.copy(),
        lambda codes: codes.astype(np.int16),
        lambda codes: codes.T,
        lambda codes: codes.reshape(-1, 1),
        lambda codes: codes.take([1, 2], axis=0),
        lambda codes: np.concatenate([codes, codes]),
        lambda codes: np.vstack([codes[:1], codes]),
        lambda codes: np.where(codes == 1, -1, codes),
        lambda codes: np.array_split(codes, 2)[0],
        copy.deepcopy,
        lambda codes: pickle.loads(pickle.dumps(codes)),
    ],
)
def test_codes__selected_joined_or_copied_are_codes(function):
    found = function(CODES)
    assert type(found) is pmf.Codes
    np.testing.assert_array_equal(found, function(PLAIN))
    assert found.dtype == function(PLAIN).dtype


@pytest.mark.parametrize(
    "function",
    [
        lambda codes: codes + 1,
        lambda codes: codes >= 0,
        lambda codes: np.maximum(codes, 0),
        lambda codes: codes.sum(axis=0),
        lambda codes: codes.max(axis=1),
        lambda codes: np.array([5, 6, 7, 8])[codes],
        lambda codes: np.where(codes < 0, np.nan, codes),
        lambda codes: np.concatenate([codes, [[7, 7, 7]]]),
        np.asarray,
        np.ascontiguousarray,
    ],
)
def test_codes__that_are_computed_with_are_none(function):
    found = function(CODES)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, function(PLAIN))


def test_codes__share_memory_and_have_plain_elements():
    assert np.shares_memory(CODES, PLAIN)
    assert type(CODES[0, 0]) is np.int8
    assert type(CODES.max()) is np.int8
    assert CODES.tolist() == PLAIN.tolist()
    changed = CODES.copy()
    changed[0] += 1
    assert type(changed) is pmf.Codes
    assert changed[0].tolist() == [1, 3, 2]


def test_codes__are_what_the_library_returns(tmp_path):
    schema = pmf.Schema((pmf.Variable("a", ("no", "yes")), pmf.Variable("b", ("x", "y", "z"))))
    model = pmf.JointPMF(np.ones(1), np.array([[0.5], [0.5], [0.2], [0.3], [0.5]]), schema)
    codes = schema.encode({"a": ["yes", None], "b": ["z", "x"]})
    for each in (codes, model.sample(3, 0), model.complete(codes), model.complete(codes[:1])):
        assert type(each) is pmf.Codes
    assert model.log_prob(codes).shape == (2,)
