import numpy as np
import pytest
import zarr

from pmflib.errors import StoreError
from pmflib.support_union.column_moments import ColumnMoments
from pmflib.support_union.stored_moments import sum_moments


@pytest.fixture
def stored(tmp_path):
    """A matrix of ragged chunks of columns, and where it is."""
    matrix = np.random.default_rng(0).gamma(1.0, size=(5, 1003))
    group = zarr.create_group(tmp_path / "group")
    array = group.create_array("matrix", shape=matrix.shape, chunks=(5, 100), dtype="f8")
    array[...] = matrix
    group.create_array("flat", shape=(3,), dtype="f8")
    return matrix, tmp_path / "group"


def test_sum_moments__is_the_whole_and_the_same_bits_on_workers(stored, thread_client):
    matrix, path = stored
    # parts of two chunks each
    alone = sum_moments(None, path, "matrix", part_bytes=8 * 5 * 200)
    whole = ColumnMoments.of_columns(matrix).to_cumulant_moment()
    assert alone.n_columns == 1003
    np.testing.assert_allclose(alone.to_cumulant_moment(), whole, rtol=1e-9, atol=1e-9)
    spread = sum_moments(thread_client, path, "matrix", part_bytes=8 * 5 * 200)
    for name in ("first", "second", "third", "fourth"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(spread, name))


def test_sum_moments__weights_and_refusals(stored):
    matrix, path = stored
    weights = np.arange(5.0)
    found = sum_moments(None, path, "matrix", weights=weights)
    wanted = ColumnMoments.of_columns(matrix, weights=weights)
    np.testing.assert_allclose(
        found.to_cumulant_moment(), wanted.to_cumulant_moment(), rtol=1e-9, atol=1e-9
    )
    for name in ("flat", "absent"):
        with pytest.raises(StoreError, match="is no matrix with a column"):
            sum_moments(None, path, name)
