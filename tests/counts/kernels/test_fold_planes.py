"""Bit planes of rows that are assigned to folds on the way."""

from itertools import product

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import IntArray, SchemaError, assign_folds
from pmflib.counts import pair_counts
from pmflib.counts.kernels import fold_planes
from pmflib.counts.kernels.fold_planes import count_folds
from pmflib.counts.kernels.planes import GROUP_ROWS
from pmflib.counts.kernels.scatter import add_dense
from tests.reference import make_codes, offsets_of

SHAPES = [
    (0, [2, 3], 4),
    (1, [1], 1),
    (63, [1, 1, 2], 2),
    (700, [3] * 17, 5),
    (3000, [5, 1, 127, 2] * 5, 16),
    (9000, [4] * 16, 3),
    (20_000, [2, 5, 3], 1),
    (2000, [200, 3, 4], 7),
]


def count_copies(
    codes: IntArray, cardinalities: list[int], n_folds: int
) -> tuple[IntArray, IntArray]:
    """Tables and rows of the folds, of a copy for each."""
    offsets = offsets_of(cardinalities)
    tables = np.zeros((n_folds, offsets[-1], offsets[-1]), np.int64)
    folds = assign_folds(np.arange(len(codes)), n_folds)
    for fold in range(n_folds):
        add_dense(codes[folds == fold].astype(np.int16), offsets, tables[fold])
    return tables, np.bincount(folds, minlength=n_folds)


def count(
    codes: IntArray, cardinalities: list[int], n_folds: int
) -> tuple[IntArray, IntArray] | None:
    offsets = offsets_of(cardinalities)
    tables = np.zeros((n_folds, offsets[-1], offsets[-1]), np.int64)
    n_rows = np.zeros(n_folds, np.int64)
    return (tables, n_rows) if count_folds(codes, offsets, tables, n_rows) else None


@pytest.mark.parametrize(("n_rows", "cardinalities", "n_folds"), SHAPES)
@pytest.mark.parametrize("missing", [0.0, 0.4, 1.0])
def test_count_folds__equals_copies(
    n_rows: int,
    cardinalities: list[int],
    n_folds: int,
    missing: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # planes that are full several times
    monkeypatch.setattr(fold_planes, "FOLD_ROWS", 2 * GROUP_ROWS)
    rng = np.random.default_rng(n_rows)
    codes = make_codes(rng, n_rows, cardinalities, missing).astype(
        pmf.Schema.from_cardinalities(cardinalities).code_dtype
    )
    found = count(codes, cardinalities, n_folds)
    assert found is not None
    for each, expected in zip(found, count_copies(codes, cardinalities, n_folds), strict=True):
        np.testing.assert_array_equal(each, expected)


DTYPES = ["i1", "i2", "i4", "i8", ">i4", ">i2", "u1", "u2", "u8"]
LAYOUTS = ["fortran", "reversed", "read-only"]


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [*product(DTYPES, ["plain", "strided"]), *product(["i1", "i8"], LAYOUTS)],
)
def test_count_folds__dtypes_and_layouts(
    dtype: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_planes, "BLOCK_ROWS", 700)
    cardinalities = [3, 127, 2, 5]
    codes = make_codes(np.random.default_rng(1), 2000, cardinalities, 0.3)
    if dtype.startswith("u"):
        codes = np.abs(codes)
    expected = count_copies(codes, cardinalities, 5)
    given = codes.astype(dtype)
    if layout == "fortran":
        given = np.asfortranarray(given)
    elif layout == "strided":
        wide = np.full((2 * len(given), 9), 1, dtype)
        wide[::2, ::2][:, :4] = given
        given = wide[::2, ::2][:, :4]
    elif layout == "reversed":
        given = np.ascontiguousarray(given[::-1, ::-1])[::-1, ::-1]
    elif layout == "read-only":
        given.flags.writeable = False
    before = given.copy()
    found = count(given, cardinalities, 5)
    assert found is not None
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(given, before)


def test_count_folds__tables_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    cardinalities = [3, 4, 2]
    monkeypatch.setattr(fold_planes, "TABLES_BYTES", 2 * 9 * 9 * 8)
    codes = make_codes(np.random.default_rng(2), 3000, cardinalities, 0.2).astype(np.int8)
    found = count(codes, cardinalities, 5)
    assert found is not None
    np.testing.assert_array_equal(found[0], count_copies(codes, cardinalities, 5)[0])


OUTSIDE = [
    (dtype, value)
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u8")
    for value in (3, 126, 127, -2, -128, 128, 255, 32_767, 65_535, 2**31 - 1, 2**62)
    if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
]


@pytest.mark.parametrize(("dtype", "value"), OUTSIDE)
@pytest.mark.parametrize("row", [0, 511, 4999])
def test_count_folds__code_out_of_range(dtype: str, row: int, value: int) -> None:
    codes = np.abs(make_codes(np.random.default_rng(3), 5000, [3, 3], 0.0)).astype(dtype)
    codes[row, 1] = value
    assert count(codes, [3, 3], 4) is None


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_count_pairs__names_the_code_out_of_range(
    dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_counts, "choose_fold_planes", lambda *arguments: True)
    codes = np.zeros((100, 2), dtype)
    codes[40, 1] = 3
    with pytest.raises(SchemaError, match=r"codes\[40, 1\]"):
        pmf.count_pairs(codes, [3, 3])


@pytest.mark.parametrize("n_folds", [1, 3, 16])
def test_count_pairs__any_path_gives_the_same(
    n_folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cardinalities = [5, 2, 3, 1, 9]
    codes = make_codes(np.random.default_rng(4), 5000, cardinalities, 0.4)
    found = []
    for planes in (False, True):
        monkeypatch.setattr(
            pair_counts, "choose_fold_planes", lambda *arguments, planes=planes: planes
        )
        found.append(pmf.count_pairs(codes, cardinalities, n_folds=n_folds))
    np.testing.assert_array_equal(found[0].tables, found[1].tables)
    np.testing.assert_array_equal(found[0].n_rows, found[1].n_rows)
