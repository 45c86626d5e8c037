import numpy as np
import pytest

from pmflib.cluster.item_maps import SENT_BYTES
from pmflib.cluster.task_plans import plan_tasks
from pmflib.ingest.chunks import choose_ranges
from pmflib.ingest.dataset.identifiers import choose_buckets, group_buckets
from pmflib.store.sample_blocks import group_blocks
from pmflib_tasks.operations.planning.sizes import LogSize
from pmflib_tasks.operations.planning.task_counts import (
    MapTasks,
    count_ingest,
    list_planned_blocks,
    plan_folds,
)


def make_log(rows=10**6, *, files=4, **options):
    return LogSize(rows, rows, 30, 150, 0.9, files, 60 * rows, 60 * rows, **options)


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("rows", [1, 15, 1000, 10**6, 10**8])
def test_list_planned_blocks__hold_every_sample(rows, identified):
    blocks = list_planned_blocks(make_log(rows, identified=identified), 16)
    assert sum(block.n_rows for block in blocks) == rows
    assert max(block.n_rows for block in blocks) <= 65_536
    rows_of_fold = np.bincount([b.fold for b in blocks], [b.n_rows for b in blocks], 16)
    assert rows_of_fold.max() - rows_of_fold.min() <= len({block.path for block in blocks})


def test_plan_folds__are_grouped_as_a_run_groups_them():
    log = make_log(10**8)
    blocks = [block for block in list_planned_blocks(log, 16) if block.fold < 14]
    part = plan_folds(log, 16, 0, 0, 14)
    assert len(part.costs) == len(group_blocks(blocks))
    assert part.n_rows == sum(block.n_rows for block in blocks)
    assert plan_folds(log, 16, 0, 14, 14).costs == ()


def test_count_ingest__large_files_are_split():
    log = make_log(10**9, files=3)
    shape = count_ingest(log, 16)
    n_ranges = len(choose_ranges(20 * 10**9))
    assert (shape.chunks, shape.looks, shape.split_files) == (3 * n_ranges, 3 * n_ranges, 3)
    packed = count_ingest(make_log(10**9, files=3, cut="not"), 16)
    assert (packed.chunks, packed.looks) == (3, 0)


def test_count_ingest__identifiers_are_assigned_to_buckets():
    log = make_log(10**9, identified=True)
    n_buckets = choose_buckets(log.csv_bytes, 16)
    assert count_ingest(log, 16).partitions == len(group_buckets(log.csv_bytes, n_buckets))
    assert count_ingest(log, 16, 32).partitions == 32


def test_of_plan__shared_values_are_tasks_where_tasks_are_many():
    few, many = plan_tasks([1] * 10, 10), plan_tasks([1] * 4000, 1000)
    assert MapTasks.of_plan(few, 100, SENT_BYTES + 1, None).shared == 2
    # an array that ten tasks are sent is too large for a thousand
    assert MapTasks.of_plan(few, 10_000).shared == 0
    assert MapTasks.of_plan(many, 10_000).shared == 1
    assert MapTasks.of_items(1000, None).total == 1001
