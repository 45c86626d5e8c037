import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import MemoryPlanError
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import as_wide, draw_codes, make_schema, store_of
from tests.reference import pair_table

SIZES = (3, 2, 4, 2)
SCHEMA = make_schema(*SIZES)


@pytest.fixture
def counted(pipeline, tmp_path, workers):
    """Configuration, dataset and codes of samples that are ready to be counted."""
    config = pipeline(SCHEMA, {}, store={"folds": 7})
    codes = draw_codes(90, SIZES)
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes))
    return config, ingest.fn(config, workers), codes


def load(config, reference):
    return pmf.PairCounts.load(store_of(config).locate(reference) / "pairs")


def test_count__equals_a_loop_over_the_rows(counted, workers):
    config, dataset, codes = counted
    counts = load(config, count.fn(config, dataset, workers))
    assert counts.n_rows.sum() == 90
    assert len(counts.n_rows) == 7
    np.testing.assert_array_equal(np.triu(counts.to_dense()), pair_table(codes, SIZES))


def test_count__second_call_counts_nothing(counted, workers, monkeypatch):
    config, dataset, _ = counted
    first = count.fn(config, dataset, workers)
    monkeypatch.setattr("pmflib_tasks.stages.count.count_stored_pairs", None)
    assert count.fn(config, dataset, workers) == first


def test_count__refuses_what_does_not_fit_in_memory(counted, pipeline, workers):
    _, dataset, _ = counted
    small = pipeline(SCHEMA, {}, store={"folds": 7}, cluster={"memory_limit": 1000})
    with pytest.raises(MemoryPlanError, match="1000 B"):
        count.fn(small, dataset, workers)


def test_count__from_a_base_counts_the_difference(counted, workers, tmp_path, monkeypatch):
    config, dataset, codes = counted
    base = count.fn(config, dataset, workers)
    more = draw_codes(4, SIZES, seed=1)
    (tmp_path / "data" / "b.csv").write_text(as_wide(more))
    grown = ingest.fn(config, workers)
    full = count.fn(config, grown, workers)
    monkeypatch.setattr("pmflib_tasks.stages.count.count_stored_pairs", None)
    # so little is counted without workers
    changed = count.fn(config, grown, "", (dataset, base))
    loaded = load(config, changed)
    np.testing.assert_array_equal(loaded.tables, load(config, full).tables)
    np.testing.assert_array_equal(
        np.triu(loaded.to_dense()), pair_table(np.vstack([codes, more]), SIZES)
    )
    entry = store_of(config).find(changed.identity)
    assert entry is not None
    assert entry.inputs == {"dataset": grown, "base": base}
    assert (entry.summary["samples"], entry.summary["samples_added"]) == (94, 4)
    assert count.fn(config, grown, "", (dataset, base)) == changed


def test_count__a_base_of_other_folds_is_no_base(counted, pipeline, workers, tmp_path):
    config, dataset, codes = counted
    other = pipeline(SCHEMA, {}, store={"folds": 5})
    base = count.fn(other, dataset, workers)
    counts = count.fn(config, dataset, workers, (dataset, base))
    assert len(load(config, counts).n_rows) == 7
    np.testing.assert_array_equal(
        np.triu(load(config, counts).to_dense()), pair_table(codes, SIZES)
    )
