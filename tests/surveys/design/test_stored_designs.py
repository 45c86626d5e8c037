"""Errors of parameters of stored samples by their design: those of the same samples in memory."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.em import StoredSamples
from pmflib.inference.errors import find_design_errors
from pmflib.store import SampleWriter, StoredReplicates, list_blocks, scale_blocks
from pmflib.surveys.design import StoredRows, find_stored_replicates
from pmflib.surveys.design.sample_designs import StoredUnits

SIZES = [2, 3, 2, 2, 3]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)
N_REPLICATES = 10


def draw(n_rows=900, n_units=30, seed=0):
    """Codes, weights, strata and units that differ in the share of the first state, and Fay's replicates."""
    rng = np.random.default_rng(seed)
    unit = np.sort(rng.integers(n_units, size=n_rows))
    state = rng.random(n_rows) < rng.uniform(0.2, 0.8, n_units)[unit]
    answer = np.where(state[:, None], 0, np.array(SIZES) - 1)
    other = rng.integers(0, SIZES, (n_rows, len(SIZES)))
    codes = np.where(rng.random(answer.shape) < 0.85, answer, other).astype(np.int8)
    codes[rng.random(codes.shape) < 0.03] = -1
    weights = rng.gamma(4, 0.25, n_rows).round(3) + 0.1
    kept = rng.choice([0.5, 1.5], (n_units, N_REPLICATES))
    return codes, weights, unit // 6, unit, (weights[:, None] * kept[unit]).round(6)


def store_samples(path, codes, weights, units=None, replicates=None):
    """Stored samples of one fold, in blocks of 200 rows; the last three are superseded."""
    writer = SampleWriter(path, SCHEMA, sparse=False, weight_decimals=6, block_rows=200)
    n = len(codes)
    block = DenseBlock(codes, np.rint(weights * 1e6))
    writer.append(block, np.zeros(n, np.int64), np.arange(n), units=units, replicates=replicates)
    writer.close()
    return StoredSamples(scale_blocks(list_blocks(path)), SCHEMA)


@pytest.fixture(scope="module")
def survey():
    codes, weights, stratum, unit, replicates = draw()
    tables = [np.where(np.arange(size)[:, None] == [0, size - 1], 6.0, 1.0) for size in SIZES]
    start = np.concatenate([table / table.sum(axis=0) for table in tables])
    design = pmf.surveys.SurveyDesign(weights, stratum=stratum, psu=unit)
    options: dict[str, Any] = {"pseudo_count": 0.5, "tol": 1e-13, "max_passes": 3000}
    model = pmf.fit_em(
        codes, pmf.JointPMF(np.full(2, 0.5), start, SCHEMA), weight=design, **options
    )
    return model.model, codes, weights, stratum, unit, replicates


def check(found, expected, rtol):
    for name in ("prior", "factors"):
        for part in ("values", "errors", "lower", "upper"):
            mine, other = (getattr(each[name], part) for each in (found, expected))
            np.testing.assert_allclose(mine, other, rtol=rtol, atol=1e-9, err_msg=f"{name} {part}")
    assert found.method == expected.method


@pytest.mark.parametrize(("method", "rtol"), [("linear", 1e-6), ("refit", 5e-3)])
def test_replicate_weights(survey, tmp_path, thread_client, method, rtol):
    model, codes, weights, _, _, replicates = survey
    units = np.rint(replicates * 1e6).astype(np.int64)
    stored = store_samples(tmp_path / "p", codes, weights, replicates=units)
    design = pmf.surveys.SurveyDesign(
        weights, replicates=replicates, method="Fay", fay=0.5, decimals=6
    )
    expected = pmf.inference.standard_errors(model, codes, design, method=method)
    of_store = StoredReplicates(design.record)
    found = find_stored_replicates(model, stored, of_store, method)
    check(find_design_errors(found), expected, rtol)
    # the same bits on workers
    on_workers = find_stored_replicates(model, stored.with_client(thread_client), of_store, method)
    for one, other in zip(found.models, on_workers.models, strict=True):
        assert (one.factors == other.factors).all()


def test_a_replicate_that_empties_a_level(survey, tmp_path):
    model, codes, weights, _, _, replicates = survey
    emptied = np.where((codes[:, 1] == 2)[:, None] & (np.arange(N_REPLICATES) == 4), 0, replicates)
    units = np.rint(emptied * 1e6).astype(np.int64)
    stored = store_samples(tmp_path / "p", codes, weights, replicates=units)
    design = pmf.surveys.SurveyDesign(
        weights, replicates=emptied, method="Fay", fay=0.5, decimals=6
    )
    expected = pmf.inference.standard_errors(model, codes, design)
    found = find_stored_replicates(model, stored, StoredReplicates(design.record))
    errors = find_design_errors(found)
    check(errors, expected, 1e-6)
    assert errors["factors"].errors[4].max() > errors["factors"].errors[3].max()


@pytest.mark.parametrize(("method", "rtol"), [("linear", 1e-6), ("refit", 5e-3)])
def test_strata_and_units(survey, tmp_path, method, rtol):
    model, codes, weights, stratum, unit, _ = survey
    hashes = np.column_stack([stratum * 7919, unit * 104_729 + 13]).astype(np.int64)
    stored = store_samples(tmp_path / "p", codes, weights, units=hashes)
    design = pmf.surveys.SurveyDesign(weights, stratum=stratum, psu=unit, decimals=6)
    expected = pmf.inference.standard_errors(model, codes, design, method=method)
    found = find_stored_replicates(model, stored, StoredUnits(), method)
    check(find_design_errors(found), expected, rtol)


@pytest.mark.parametrize(("method", "rtol"), [("auto", 1e-6), ("refit", 5e-3)])
def test_weights_alone(survey, tmp_path, thread_client, method, rtol):
    model, codes, weights, _, _, _ = survey
    codes, weights = codes[:180], weights[:180]
    model = pmf.fit_em(codes, model, weight=weights, pseudo_count=0.5, tol=1e-13).model
    stored = store_samples(tmp_path / "p", codes, weights)
    design = pmf.surveys.SurveyDesign(weights, decimals=6)
    expected = pmf.inference.standard_errors(model, codes, design, method=method)
    check(pmf.inference.standard_errors(model, stored, method=method), expected, rtol)
    on_workers = pmf.inference.standard_errors(model, stored.with_client(thread_client))
    check(on_workers, pmf.inference.standard_errors(model, codes, design), 1e-6)
    with pytest.raises(pmf.PmfError, match="design is given and samples are stored"):
        pmf.inference.standard_errors(model, stored, design)
    forests = pmf.fit_em(codes, schema=SCHEMA, rank=2, dependence="tree").model
    with pytest.raises(
        pmf.PmfError, match=r"samples have a design or weights, and model .*forests"
    ):
        pmf.inference.standard_errors(forests, stored)


def test_many_rows_with_weights_are_put_into_groups(survey, tmp_path):
    _, codes, weights, *_ = survey
    stored = store_samples(tmp_path / "p", codes, weights)
    drawn = StoredRows().reduce(stored.blocks, 100)
    first, second = stored.blocks[:2]
    columns = np.concatenate([drawn.read_scaled(first, 0), drawn.read_scaled(second, first.n_rows)])
    assert columns.size == 400
    assert set(columns.tolist()) == set(range(100)) == set(range(drawn.record.n_columns))
    assert drawn.record.degrees == len(codes) - 1
    assert "900 rows are put into groups" in drawn.record.notes[0]


def test_reduce__many_units_are_left_out_in_groups_of_their_stratum(survey, tmp_path):
    _, codes, weights, stratum, unit, _ = survey
    hashes = np.column_stack([stratum * 7919, unit * 104_729 + 13]).astype(np.int64)
    stored = store_samples(tmp_path / "p", codes, weights, units=hashes)
    found = StoredUnits().reduce(stored.blocks, 12)
    assert found is not None
    assert found.record.strata is not None
    assert found.columns is not None
    assert np.bincount(found.record.strata).tolist() == [2] * 5
    assert np.bincount(found.columns).tolist() == [3] * 10
    assert found.record.degrees == 25
    # a stratum with a single unit is taken with another
    hashes[unit == 29, 0] = 1
    alone = store_samples(tmp_path / "q", codes, weights, units=hashes)
    found = StoredUnits().reduce(alone.blocks, 1000)
    assert found is not None
    assert found.record.strata is not None
    assert np.bincount(found.record.strata).min() > 1
    assert found.record.notes
