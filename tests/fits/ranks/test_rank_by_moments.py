import numpy as np
import pytest
import zarr

import pmflib as pmf
from pmflib.fits import sum_moments
from pmflib.papers import ColumnMoments
from tests.papers.test_support_union import draw_columns


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


@pytest.mark.parametrize("method", ["generators", "support_union"])
def test_select_nmf_rank__finds_the_planted_components_and_their_rows(method):
    matrix = draw_columns(20, 10_000)
    found = pmf.fits.select_nmf_rank(matrix, method=method)
    assert found.rank == 10
    assert found.method == method
    if method == "generators":
        np.testing.assert_array_equal(found.rows, np.arange(10))
        # the unit of the matrix does not matter
        assert pmf.fits.select_nmf_rank(1000 * matrix).rank == 10
    else:
        assert found.rows.size == 10
        assert found.support.converged


def test_select_nmf_rank__a_stored_matrix_is_the_same_in_parts_and_on_workers(
    tmp_path, thread_client
):
    matrix = draw_columns(12, 3000, rank=5)
    group = zarr.create_group(tmp_path / "group")
    group.create_array("matrix", shape=matrix.shape, chunks=(12, 500), dtype="f8")[...] = matrix
    path = tmp_path / "group" / "matrix"
    for method in ("generators", "support_union"):
        whole = pmf.fits.select_nmf_rank(matrix, method=method)
        stored = pmf.fits.select_nmf_rank(str(path), method=method)
        spread = pmf.fits.select_nmf_rank(path, method=method, client=thread_client)
        assert whole.rows.tolist() == stored.rows.tolist() == spread.rows.tolist()


def test_select_nmf_rank__columns_of_one_sum_take_weights():
    matrix = np.random.default_rng(0).dirichlet(np.full(4, 0.3), 5000).T
    with pytest.raises(pmf.PmfError, match="weights"):
        pmf.fits.select_nmf_rank(matrix, method="support_union")
    weights = [0.1, 0.5, 0.7, 0.9]
    assert pmf.fits.select_nmf_rank(matrix, method="support_union", weights=weights).rank <= 4


def test_select_nmf_rank__refuses():
    with pytest.raises(pmf.PmfError, match="method"):
        pmf.fits.select_nmf_rank(np.eye(2), method="svd")  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="matrix"):
        pmf.fits.select_nmf_rank(np.ones(3))
    with pytest.raises(pmf.PmfError, match="matrix"):
        pmf.fits.select_nmf_rank([[1.0, np.nan]])
