"""Published marginals are those of a crosstab, by any reader of Zarr, after a full count and after an increment."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.counts import GROUP, StoredTables, write_marginals
from pmflib.store import Store
from tests.counts.test_counted_selection import count, write_samples
from tests.pipelines import draw_codes, make_schema

SIZES = (3, 2, 4, 2, 5)
ATTRIBUTES: dict[str, object] = {"schema": "abc", "lineage": {"counts": "def"}}


def open_group(folder) -> Any:
    return zarr.open_group(folder / GROUP, mode="r", use_consolidated=True)


def check_group(group, frame, schema):
    """Compare an open group with crosstabs of a frame of levels as texts, None where missing."""
    levels = group["level"][...].tolist()
    assert levels == [f"{each.name}={level}" for each in schema for level in each.levels]
    assert levels == group["co_level"][...].tolist()
    names = group["variable"][...].tolist()
    assert names == [*schema.names] == group["co_variable"][...].tolist()
    counts, shares = group["pair_count"][...], group["pair_probability"][...]
    support, own = group["support"][...], group["probability"][...]
    for j, one in enumerate(names):
        rows = [levels.index(f"{one}={level}") for level in schema[one].levels]
        mine = frame[one].value_counts(normalize=True)
        expected = mine.reindex(schema[one].levels, fill_value=0).to_numpy()
        if frame[one].notna().any():
            np.testing.assert_allclose(own[rows], expected, rtol=1e-12)
        else:
            assert np.isnan(own[rows]).all()
        for k, other in enumerate(names):
            columns = [levels.index(f"{other}={level}") for level in schema[other].levels]
            found = pd.crosstab(frame[one].to_numpy(), frame[other].to_numpy())
            table = found.reindex(
                index=schema[one].levels, columns=schema[other].levels, fill_value=0
            ).to_numpy()
            block = np.ix_(rows, columns)
            assert np.array_equal(counts[block], table)
            assert support[j, k] == table.sum()
            if table.sum():
                np.testing.assert_allclose(shares[block], table / table.sum(), rtol=1e-7)
            else:
                assert np.isnan(shares[block]).all()


def as_frame(codes, schema):
    frame = pd.DataFrame(codes.astype(str), columns=schema.names, dtype=object)
    return frame.where(codes >= 0, None)


@pytest.mark.parametrize("chunk", [512, 4])
def test_write_marginals__are_crosstabs(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("pmflib.counts.open_marginals.CHUNK_LEVELS", chunk)
    schema, codes = make_schema(*SIZES), draw_codes(60, SIZES, missing=0.3)
    # two variables that nobody has both, and one that nobody has
    codes[::2, 0] = codes[1::2, 4] = codes[:, 3] = -1
    pmf.count_pairs(codes, schema, n_folds=3).save(tmp_path / "pairs")
    write_marginals(tmp_path / GROUP, StoredTables(tmp_path / "pairs"), ATTRIBUTES)
    group = open_group(tmp_path)
    arrays = {"pair_probability", "pair_count", "support", "probability"}
    names = {"level", "co_level", "variable", "co_variable"}
    assert group.metadata.consolidated_metadata.metadata.keys() == arrays | names
    check_group(group, as_frame(codes, schema), schema)
    known = {"kind": "marginals", "samples": 60, "weighted": False}
    assert dict(group.attrs) == known | ATTRIBUTES
    assert group["pair_count"].dtype == np.uint8
    assert group["pair_probability"].metadata.dimension_names == ("level", "co_level")
    assert group["support"].metadata.dimension_names == ("variable", "co_variable")


def test_write_marginals__chunks_are_whole_variables_and_absent_if_unobserved(tmp_path):
    schema = make_schema(*[5] * 205)
    codes = np.full((9, 205), -1)
    codes[:, [0, 1, 204]] = draw_codes(9, (5, 5, 5), missing=0)
    pmf.count_pairs(codes, schema).save(tmp_path / "pairs")
    write_marginals(tmp_path / GROUP, StoredTables(tmp_path / "pairs"), {})
    assert open_group(tmp_path)["pair_count"].chunks == (510, 510)
    folder = tmp_path / GROUP / "pair_probability" / "c"
    chunks = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert chunks == {f"{row}/{column}" for row in (0, 2) for column in (0, 2)}


def test_write_marginals__weighted_sums(tmp_path):
    schema, codes = make_schema(3, 2), draw_codes(40, (3, 2), missing=0.2)
    weight = np.linspace(0.5, 3, 40).round(2)
    pmf.count_pairs(codes, schema, weight=weight).save(tmp_path / "pairs")
    write_marginals(tmp_path / GROUP, StoredTables(tmp_path / "pairs"), {})
    group = open_group(tmp_path)
    seen = (codes >= 0).all(axis=1)
    table = np.zeros((3, 2))
    np.add.at(table, tuple(codes[seen].T), weight[seen])
    np.testing.assert_allclose(group["pair_count"][:3, 3:], table, rtol=1e-12)
    np.testing.assert_allclose(group["pair_probability"][:3, 3:], table / table.sum(), rtol=1e-6)
    np.testing.assert_allclose(group["support"][0, 1], table.sum(), rtol=1e-12)
    assert group.attrs["weighted"]


def test_write_marginals__of_an_increment_and_of_some_variables(tmp_path):
    store, schema = Store(tmp_path), make_schema(*SIZES)
    codes = draw_codes(60, SIZES, missing=0.5).astype(np.int8)
    more = draw_codes(5, SIZES, seed=1, missing=0.5).astype(np.int8)
    counted = np.array([0, 1, 4])
    first = write_samples(store, schema, codes, sparse=False)
    base, _ = count(store, schema, first, counted)
    second = write_samples(store, schema, codes, more, sparse=False)
    _, path = count(store, schema, second, counted, (first, base))
    tables = StoredTables(path)
    assert len(tables.base) > 0
    write_marginals(tmp_path / GROUP, tables, {})
    own = schema.select(counted)
    every = np.concatenate([codes, more])[:, counted]
    check_group(open_group(tmp_path), as_frame(every, own), own)


def test_open_marginals__needs_xarray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(pmf.PmfError, match="pip install xarray"):
        pmf.open_marginals(tmp_path)


def test_open_marginals__selects_by_name(tmp_path):
    pytest.importorskip("xarray")
    schema, codes = make_schema(3, 2), draw_codes(40, (3, 2), missing=0.2)
    pmf.count_pairs(codes, schema).save(tmp_path / "pairs")
    write_marginals(tmp_path / GROUP, StoredTables(tmp_path / "pairs"), {})
    found = pmf.open_marginals(tmp_path).pair_count.sel(level="v0=1", co_level="v1=0")
    assert int(found) == ((codes[:, 0] == 1) & (codes[:, 1] == 0)).sum()
    with pytest.raises(StoreError, match="no marginals"):
        pmf.open_marginals(tmp_path / "pairs")
