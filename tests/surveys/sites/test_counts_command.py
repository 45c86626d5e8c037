"""Counts of pipelines handed on by a command, and added up."""

import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.store import list_exports
from tests.flows.nights import draw_ratings, make_movies

OPTIONS = {"em": {"max_passes": 3}, "store": {"folds": 4}}


@pytest.fixture
def pipeline(nights):
    pipeline = nights(4, **OPTIONS)
    pipeline.deliver("0.csv", draw_ratings(90, 4), range(90))
    return pipeline


def test_export__of_the_last_run_is_exact_or_rounded(pipeline, call):
    pipeline.run()
    code, out, _ = call("counts", "export", pipeline.path, "--output", "a.counts")
    assert code == 0
    assert "Wrote counts of 90 rows to a.counts, exact; digest" in out
    whole = pmf.count_pairs(draw_ratings(90, 4), make_movies(4))
    assert np.array_equal(pmf.surveys.read_counts("a.counts").to_dense(), whole.to_dense())
    rounded = ("--minimum", "5", "--seed", "3", "--json")
    for name in ("b.counts", "c.counts"):
        code, out, _ = call("counts", "export", pipeline.path, "--output", name, *rounded)
        assert code == 0
    found = json.loads(out)
    assert (found["rows"], found["minimum"], len(found["digest"])) == (90, 5, 64)
    assert not (pmf.surveys.read_counts("b.counts").tables % 5).any()
    with pytest.raises(pmf.PmfError, match="are the same"):
        pmf.surveys.read_counts(["b.counts", "c.counts"])
    assert {each.kind for each in list_exports(pipeline.store)} == {"counts"}


def test_export__takes_the_seed_from_the_environment(pipeline, call, monkeypatch):
    pipeline.run()
    monkeypatch.setenv("PMF_COUNTS_SEED", "12345678901234567890")
    for name in ("a.counts", "b.counts"):
        assert call("counts", "export", pipeline.path, "--output", name, "--minimum", 5)[0] == 0
    assert pmf.surveys.read_counts("a.counts").tables.any()
    with pytest.raises(pmf.PmfError, match="are the same"):
        pmf.surveys.read_counts(["a.counts", "b.counts"])


def test_export__refuses_what_cannot_be_exported(pipeline, call):
    code, _, err = call("counts", "export", pipeline.path)
    assert code == 4
    assert "no complete run yet" in err
    pipeline.run()
    code, _, err = call("counts", "export", pipeline.path, "--minimum", "91")
    assert code == 2
    assert "counts have 90 rows, fewer than minimum=91; export none" in err
