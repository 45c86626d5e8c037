"""What Dask costs: CPU of the kernels alone, as a share of the CPU of everything.

    python -m benchmarks.pipeline.dask_efficiency  # a few minutes
    python -m benchmarks.pipeline.dask_efficiency --only threads  # processes are the slower half

Counting and an EM pass (30 variables of 5 levels, rank 20) as maps over groups of blocks, by two threads of this
process and by two worker processes. First over groups in the memory of the workers, of a given time of kernel each;
then over the groups that the plan makes of blocks in a store, where counting alone is reading, decompressing and the
kernel. "Alone" is a loop over the same groups in one thread; "everything" is client, scheduler and workers, idle ones
included. Both take turns; medians, and the range of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.pipeline.scaling import (
    N_FOLDS,
    N_LEVELS,
    N_VARIABLES,
    RANK,
    list_samples,
    write_samples,
)
from pmflib.cluster.clients import open_client
from pmflib.cluster.item_maps import LoadedItems, keep_loaded
from pmflib.cluster.maps import start_blocks, start_maps
from pmflib.cluster.workers import start_workers
from pmflib.core.blocks import Block, DenseBlock
from pmflib.counting import block_counting
from pmflib.counting.stored_pairs import count_group_pairs, merge_tables, split_fold_blocks
from pmflib.em.block_source import load_group
from pmflib.em.latent_classes import evaluate_group
from pmflib.model.statistics import merge_each
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    COUNTING_COARSENESS,
    BlockGroup,
    BlockReference,
    choose_block_rows,
    group_blocks,
)
from pmflib.synthetic.planted_models import planted_factors
from pmflib_tasks.config import ClusterConfig

SCHEMA = Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
MODEL = planted_factors([N_LEVELS] * N_VARIABLES, RANK, np.random.default_rng(0))
WORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "counting": (count_group_pairs, merge_tables, (SCHEMA.offsets,)),
    "EM": (evaluate_group, merge_each, (SCHEMA.offsets, [MODEL])),
}
"""Function, merge and what all groups share."""
TARGETS = {"threads": (0.004, 0.92, 64), "processes": (0.1, 0.80, 8)}
"""Seconds of kernel in a task, share of the kernel, and tasks."""


def make_group(seed: int, sizes: Sequence[int]) -> list[Block]:
    """Random blocks of some numbers of rows."""
    rng = np.random.default_rng(seed)
    return [
        DenseBlock(rng.integers(0, N_LEVELS, (size, N_VARIABLES), dtype=np.int8)) for size in sizes
    ]


def load_made(item: tuple[int, list[int]]) -> list[Block]:
    """Make the group of a seed, where it will be worked on."""
    _choose_compiled()
    return make_group(*item)


def _choose_compiled() -> None:
    """Choose kernels as a long job does, from the first block on."""
    block_counting.COMPILE_NS.update({"planes": 0, "tiles": 0})


def measure(call: Callable[[], object]) -> float:
    """CPU seconds of everything during a call, without those of finding the processes and their times."""
    children = psutil.Process().children(recursive=True)
    before = [sum(child.cpu_times()[:2]) for child in children]
    start = time.process_time()
    call()
    mine = time.process_time() - start
    after = [sum(child.cpu_times()[:2]) for child in children]
    return float(mine + sum(after) - sum(before))


def choose_sizes(name: str, seconds: float) -> list[int]:
    """Rows of the blocks of a group that keeps the kernel of a work busy for some time."""
    function, _, shared = WORKS[name]
    full = choose_block_rows(N_VARIABLES)
    sizes = [full]
    for _ in range(3):
        group = make_group(0, sizes)
        taken = min(measure(partial(function, group, *shared)) for _ in range(7))
        rows = int(sum(sizes) * seconds / taken)
        sizes = [full] * (rows // full) + ([rows % full] if rows % full else [])
    return sizes


def compare(
    title: str,
    name: str,
    client: object,
    mine: Sequence[Sequence[BlockGroup]],
    theirs: LoadedItems | Mapping[str, Sequence[object]],
    target: float,
    rounds: int,
) -> None:
    """Take turns between the loop alone and the maps on Dask, and print the shares."""
    function, merge, shared = WORKS[name]

    def work_alone() -> None:
        for items in mine:
            for item in items:
                function(item, *shared)

    def work_on_dask() -> None:
        if isinstance(theirs, LoadedItems):
            start_blocks(client, function, theirs, merge, *shared).wait()
        else:
            for pending in start_maps(client, function, theirs, merge, *shared):
                pending.wait()

    work_alone()
    work_on_dask()
    alone, everything = [], []
    for _ in range(rounds):
        alone.append(measure(work_alone))
        everything.append(measure(work_on_dask))
    n_tasks = sum(map(len, mine))
    shares = sorted(one / other for one, other in zip(alone, everything, strict=True))
    share = statistics.median(alone) / statistics.median(everything)
    goal = f"   target {target:.2f}" if target else ""
    extra = (statistics.median(everything) - statistics.median(alone)) / n_tasks * 1e3
    print(
        f"{title:>34} {name:>9}: {n_tasks:4} tasks of {statistics.median(alone) / n_tasks * 1e3:6.1f} ms, "
        f"+{extra:5.2f} ms each, share {share:.2f} [{shares[0]:.2f} to {shares[-1]:.2f}]{goal}",
        flush=True,
    )


def main() -> None:
    """Measure both kinds of workers on groups in memory and in a store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e7, help="samples in the store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(TARGETS), help="this kind of workers alone")
    parser.add_argument("--folder", type=Path, help="for the store; by default a temporary one")
    options = parser.parse_args()
    _choose_compiled()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = Path(folder) / "store"
        write_samples(store, int(options.rows))
        blocks = list_samples(store)
        for kind in [options.only] if options.only else TARGETS:
            cluster = ClusterConfig(processes=kind == "processes", workers=2)
            with start_workers(cluster) as address, open_client(address) as client:
                client.run(_choose_compiled)
                for name in WORKS:
                    compare_loaded(kind, name, client, options.rounds)
                    compare_planned(kind, name, client, blocks, options.rounds)


def compare_loaded(kind: str, name: str, client: object, rounds: int) -> None:
    """Groups in the memory of the workers, of the target's time each."""
    seconds, target, n_tasks = TARGETS[kind]
    sizes = choose_sizes(name, seconds)
    made = [(seed, sizes) for seed in range(n_tasks)]
    theirs = keep_loaded(client, load_made, made)
    mine = [make_group(*item) for item in made]
    compare(f"{kind}, in memory,", name, client, [mine], theirs, target, rounds)


def compare_planned(
    kind: str, name: str, client: object, blocks: list[BlockReference], rounds: int
) -> None:
    """Groups as the stages plan them: counting reads the store, fold by fold; EM works on what it has loaded."""
    title = f"{kind}, {sum(block.n_rows for block in blocks):,} rows as planned,"
    if name == "counting":
        folds = [[block for block in blocks if block.fold == fold] for fold in range(N_FOLDS)]
        groups = [group_blocks(mine, COUNTING_COARSENESS) for mine in folds]
        runs = {f"fold-{n:02}": split_fold_blocks(mine, N_FOLDS, 2) for n, mine in enumerate(folds)}
        compare(title, name, client, groups, runs, 0, rounds)
    else:
        planned = group_blocks(blocks)
        theirs = keep_loaded(client, load_group, planned)
        mine = [load_group(group) for group in planned]
        compare(title, name, client, [mine], theirs, 0, rounds)


if __name__ == "__main__":
    main()
