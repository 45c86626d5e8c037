import numpy as np
import pytest

from pmflib.apps.crowd.left_out_labels import CHUNK_CELLS
from pmflib.apps.crowd.stored.block_groups import (
    plan_label_passes,
    plan_pair_method,
    plan_worker_counts,
)
from pmflib.apps.crowd.worker_pair_counts import count_worker_pairs
from pmflib.base import MemoryPlanError, SparseBlock
from pmflib.em import plan_em
from pmflib.store import BlockReference


def make_groups(n_rows, n_labels, n_groups=1):
    n_observed = n_rows * n_labels
    nbytes = 8 * (n_rows + 1) + 4 * n_observed
    return [[BlockReference("part", 0, n_rows, 0, n_observed, nbytes)]] * n_groups


def test_plan_label_passes__holds_votes_and_strata_of_every_thread():
    few, many = (plan_label_passes(make_groups(n, 5), 100, 4, 2).needed for n in (1, 100_000))
    # weights of a stratum each, at least what its class has for prior and posterior
    assert many - few > 2 * 100_000 * (5 * 4 + 3 * 8 * 4)
    table = plan_em(400, 4, 2).needed
    assert plan_label_passes(make_groups(100_000, 5), 100, 4, 2).needed > table
    # a task is read whole, and split before its votes are counted
    wide = plan_label_passes(make_groups(1 << 22, 1), 10, 1000, 1)
    assert wide.needed < 8 * 1000 * (1 << 22)
    with pytest.raises(
        MemoryPlanError,
        match=r"passes over the labels would need .* above the 1.0 KiB .* votes of",
    ):
        plan_label_passes(make_groups(100_000, 5), 10, 50, 1).check(1024)  # fmt: skip
    # two more confusion matrices of every worker, and chunks of blocks
    calibration = 2 * 8 * 10 * 2**2 + 12 * 8 * CHUNK_CELLS
    assert plan_label_passes([], 10, 2, 1).needed == plan_em(20, 2, 1).needed + calibration


def test_plan_worker_counts__pairs_without_a_common_task_need_no_room():
    groups = make_groups(1000, 5)
    blind = plan_worker_counts(groups, 50_000, 3, 2)
    seeing = plan_worker_counts(groups, 50_000, 3, 2, 10_000)
    assert blind.needed > 1 << 37
    assert seeing.needed < 1 << 25
    # and meetings more than there are pairs change nothing
    known = plan_worker_counts(groups, 20, 3, 2, 1 << 40).needed
    assert known == plan_worker_counts(groups, 20, 3, 2).needed
    with pytest.raises(MemoryPlanError, match=r"1,249,975,000 pairs of 50,000 workers.*'auto'"):
        blind.check(1 << 30)


def need(method, n_pairs, n_workers, n_classes):
    """Plan of the client, which does this alone."""
    plan = plan_pair_method(method, n_pairs, n_workers, n_classes)
    assert plan.needed == 0
    return plan.join_client()


def test_plan_pair_method__grows_as_the_method_needs():
    pairs = need("robust", 1000, 100, 3).needed
    assert need("robust", 1000, 100_000, 3).needed == pairs
    assert need("designated", 1000, 1000, 3).needed > pairs + 8 * 3000**2
    assert need("symnmf", 2000, 100, 3).needed > 2 * pairs
    with pytest.raises(MemoryPlanError, match=r"matrices of 3,000 x 3,000 levels.*'robust'"):
        need("cnmf", 10, 1000, 3).check(1 << 20)


def test_plan_worker_counts__bounds_what_counting_takes():
    import tracemalloc

    rng = np.random.default_rng(0)
    n_workers, n_classes, n_labels = 300, 3, 10
    steps = rng.integers(1, n_workers // n_labels, (4000, n_labels))
    workers = np.sort((np.cumsum(steps, axis=1)) % n_workers, axis=1)
    levels = workers * n_classes + rng.integers(n_classes, size=workers.shape)
    indptr = np.arange(len(levels) + 1) * n_labels
    block = SparseBlock(indptr, levels.astype(np.int32).ravel())
    tracemalloc.start()
    counts = count_worker_pairs(block, n_workers, n_classes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    met = int(counts.counts.sum())
    plan = plan_worker_counts(make_groups(4000, n_labels), n_workers, n_classes, 1, met)
    assert peak < plan.needed < 5 * peak
