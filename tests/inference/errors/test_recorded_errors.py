"""Errors of parameters that a run records."""

import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import COLUMNS
from pmflib.inference.errors import recorded as recorded_errors
from pmflib.inference.errors.recorded import record_errors
from pmflib.model import ModelOrigin, planted_factors
from pmflib.store import Store
from pmflib_tasks.report import gather_report, list_intervals
from tests.report.report_runs import run_two_nights
from tests.stored_samples import write_partition

SIZES = [3] * 6
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


@pytest.fixture(scope="module")
def fitted():
    prior, factors = planted_factors(SIZES, 2, np.random.default_rng(2), concentration=0.5)
    truth = pmf.JointPMF(prior, factors, SCHEMA)
    codes = truth.sample(800, 0)
    return pmf.fit_em(codes, truth, pseudo_count=0, tol=1e-10).model, codes


@pytest.fixture
def stored(fitted, tmp_path):
    blocks = write_partition(tmp_path, fitted[1], SCHEMA, block_rows=300)
    return pmf.em.StoredSamples(blocks, SCHEMA)


def test_they_are_those_of_standard_errors(fitted, stored):
    model, codes = fitted
    found = record_errors(model, stored)
    known = pmf.inference.standard_errors(model, codes)
    assert found["columns"] == list(COLUMNS)
    assert len(found["rows"]) == 2 + 2 * 18
    shares = [row for row in found["rows"] if row[0] == "share"]
    np.testing.assert_allclose([row[5] for row in shares], known["prior"].errors, rtol=1e-9)
    np.testing.assert_allclose([row[6] for row in shares], known["prior"].lower, rtol=1e-9)
    assert json.loads(json.dumps(found)) == found


def test_what_is_not_determined_is_null_and_said(stored):
    wide = pmf.JointPMF(np.full(2, 0.5), np.full((18, 2), 1 / 3), SCHEMA)
    found = record_errors(wide, stored)
    shares = [row for row in found["rows"] if row[0] == "share"]
    assert [row[5:] for row in shares] == [[None] * 3] * 2
    assert list_intervals(found)[0] == ("share of the samples", "0", "0.500", "not determined", "")


def test_none_of_averages_and_of_what_takes_long(fitted, stored, monkeypatch):
    model, _ = fitted
    assert (
        record_errors(
            pmf.JointPMF(model.prior, model.factors, SCHEMA, ModelOrigin(final=True)), stored
        )
        is None
    )
    monkeypatch.setattr(recorded_errors, "MOST_RECORDED", 37)
    assert record_errors(model, stored) is None
    monkeypatch.setattr(recorded_errors, "MOST_RECORDED", 38)
    monkeypatch.setattr(recorded_errors, "MOST_WORK", 800 * 38**2 - 1)
    assert record_errors(model, stored) is None
    assert list_intervals({}) == []


def test_gather_report__parameters_have_intervals(tmp_path):
    run_two_nights(tmp_path)
    learnt = gather_report(Store(tmp_path / "store"), "hostile", 2).model
    assert len(learnt.intervals) == 3 + 3 * learnt.model.schema.n_levels
