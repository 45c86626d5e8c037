"""Speeds of machines, network and scheduler: what sizes become seconds by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speeds:
    """Speeds that a plan takes.

    Those of a core are what `pmf plan --calibrate` prints, those of the scheduler what
    `python -m benchmarks.pipeline.scheduler_costs` prints, both on two cores of a virtual machine with AVX-512. What
    `python -m benchmarks.models.trait_passes --people 1e5 --dimensions 0` prints is that of traits, and what
    `python -m benchmarks.models.trees passes` does, those of forests. Network, storage and the spread of workers are
    assumptions: of a network of 10 Gbit/s, a disk or an object store, and machines of one kind.

    Parameters
    ----------
    read_bytes
        Plain CSV that a core reads, checks and encodes in a second, bytes.
    sort_bytes
        Encoded rows that a core sorts into samples and writes in a second, bytes of their spills.
    block_bytes
        Blocks that a core decompresses in a second, bytes in memory.
    count_share
        Seconds of counting as a multiple of what `pmflib.counting.kernel_choice.estimate_costs` says.
    em_ns
        Nanoseconds of an EM pass for an observed cell and a latent state.
    evaluate_ns
        The same, of hiding and predicting answers.
    trait_ns
        Nanoseconds of a pass of a fit of traits for an observed cell, with the two biases of people alone.
    tree_ns
        Nanoseconds of a pass with forests for a cell and a latent state, without gaps.
    tree_gap_ns
        What gaps add to it, times the root of the shares of observed and of missing cells.
    pair_ns
        Nanoseconds of counting a pair of observed cells by its weight in a latent state.
    fit_ns
        Nanoseconds of a first model for each unit of its work, on the client: `AutoSettings.plan_work` counts the most
        there can be, and most fits converge before.
    table_bytes
        Bytes of a table of pairs that the client looks through in a second, for the cells that are not zero.
    task_seconds
        Scheduler: CPU seconds of a task.
    map_seconds
        Scheduler: CPU seconds of a map, or of a level of its merges, whatever the number of its tasks.
    sent_byte_seconds
        Scheduler: CPU seconds of a byte that travels along with a task.
    idle_share
        Scheduler: share of its time that heartbeats take.
    worker_task_seconds
        Worker: CPU seconds of a task around the work itself.
    client_task_seconds
        Client: CPU seconds of a task.
    network_bytes
        Bytes that a worker receives in a second.
    storage_bytes
        Bytes that a worker reads from, or writes to, the storage of the store in a second.
    storage_total
        Bytes that this storage gives all workers together in a second; infinity for one that grows with them.
    request_seconds
        Seconds that an operation on a file, or an object, waits for.
    artefact_seconds
        Client: seconds of looking up and listing one artefact.
    spread
        Standard deviation of the workers' speeds, as a share of their mean.
    """

    read_bytes: float = 60e6
    sort_bytes: float = 45e6
    block_bytes: float = 650e6
    count_share: float = 0.6
    em_ns: float = 0.1
    evaluate_ns: float = 4.5
    trait_ns: float = 500.0
    tree_ns: float = 5.0
    tree_gap_ns: float = 120.0
    pair_ns: float = 1.0
    fit_ns: float = 1.5
    table_bytes: float = 1e9
    task_seconds: float = 4.5e-4
    map_seconds: float = 2.5e-3
    sent_byte_seconds: float = 3e-9
    idle_share: float = 0.06
    worker_task_seconds: float = 1e-3
    client_task_seconds: float = 6e-5
    network_bytes: float = 1.25e9
    storage_bytes: float = 200e6
    storage_total: float = float("inf")
    request_seconds: float = 0.0
    artefact_seconds: float = 2e-3
    spread: float = 0.05
