"""Speeds of machines, network and scheduler, and what single steps take: what sizes become seconds and bytes by.

This is the one table of what is measured. `Speeds` has what differs from machine to machine: `pmf plan --calibrate`
measures most of it, and it is printed with a plan. The constants before it are of steps that take a small part of a
run: `python -m benchmarks.pipeline.step_costs` measures those that stand alone, and prints them beside the values here.
Everything else that a plan needs is asked of the code that decides it in a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

FIT_SECONDS = 0.2
"""Seconds of a first model, however small."""
PASS_SECONDS = 0.015
"""Seconds of the client in a pass: the update, its checkpoint, progress."""
CHOICE_SECONDS = 0.005
"""Seconds of a pass of a choice of traits besides the work itself: threads, and words on it."""
OPENING_SECONDS = 5e-4
"""Seconds of opening a spill and finding the pages of some buckets."""
LATENCY = 0.003
"""Seconds between the end of a task and the beginning of one that waits for it, besides the scheduler's work."""
HASH_BYTES = 1.2e9
"""Bytes of a file that a core hashes in a second."""
LOOK_BYTES = 500e6
"""Bytes of a file that a core looks through for positions to split at in a second."""
ADD_BYTES = 2e9
"""Bytes of tables that a core adds up in a second."""
SAVED_BYTES = 2e8
"""Bytes of tables and states that the client saves in a second."""
UPDATED_BYTES = 1e8
"""Bytes of the sums of a pass of traits that the client makes new coefficients of in a second."""
TLS_TIMES = 1.1
"""Seconds of a task of the scheduler whose connections are encrypted, as a multiple of those without:
`python -m benchmarks.pipeline.scheduler_tls`."""
COUNT_NS = 5.0
"""Nanoseconds of counting the level of an observed cell."""
RESIDUAL_NS = 200.0
"""Nanoseconds of comparing the counts of a pair of levels with the model."""
SCORED_SHARE = 0.5
"""Seconds of scoring a sample, as a share of those of a pass."""
DIMENSION_SHARE = 0.2
"""Seconds that each dimension of traits adds to a pass, as a share of those of the two biases alone: `python -m
benchmarks.models.trait_passes --people 1e5 --dimensions 0 1 2 4 8 16 --threads 1` prints what a cell takes."""
FOLD_TIMES = 2.0
"""Seconds of folding a sample in and predicting what is hidden of it, as a multiple of those of a pass."""
VARIED_PASSES = 120
"""Passes of a search for forests by which the shrinkage of the best run is varied, in all."""
CLIENT_BYTES = 320 << 20
"""Bytes of a client that has imported what it needs."""
READING_BYTES = 192 << 20
"""Bytes that a thread holds while it reads a file, or a chunk of one."""
SORTED_TIMES = 6
"""Size of what a thread holds while it sorts the rows of a partition, as a multiple of their spills."""
FIT_TABLES = 10
"""Tables of pairs that the client holds while it makes a first model."""
BLOCK_RECORD = 700
"""Bytes of a block's reference in the memory of the client, and of what it keeps of its task."""
ROW_BYTES = 1.5
"""Bytes of a row number and of its counts, compressed."""
ENTRY_BYTES = 3000
"""Bytes of a manifest entry, without the references of its inputs."""
REFERENCE_BYTES = 260
"""Bytes of a reference to an artefact in a list or an entry."""
BLOCK_SENT = 75
"""Bytes of a block's reference as it travels with a task: its numbers, and its share of the partition's path."""
RESIDENT_SENT = 300.0
"""Bytes of a task on blocks that a worker holds, and of what is sent along with it."""
JOB_BYTES, LEVEL_BYTES = 2000, 40
"""Bytes of the settings that tasks of ingest share: of themselves, and for each level of the schema."""
ROOT_BYTES = 100
"""Length of the address of a store."""
LOADING = {
    "ingest": (1.0, 0.9),
    "count": (0.1, 0.1),
    "fit": (0.1, 0.0),
    "refine": (0.1, 0.1),
    "fit_traits": (0.1, 0.1),
    "choose": (0.05, 0.05),
    "evaluate": (0.02, 0.03),
}
"""Processor seconds that a stage takes whatever its data, of the client and of each worker: modules, kernels:
`python -m benchmarks.pipeline.planned_measured --loading` measures them."""


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
        Seconds of counting as a multiple of what `pmflib.counting.block_counting.estimate_costs` says.
    em_ns
        Nanoseconds of an EM pass for an observed cell and a latent state.
    evaluate_ns
        The same, of hiding and predicting answers.
    trait_ns
        Nanoseconds of a pass of a fit of traits for an observed cell, with the two biases of people alone.
    tree_ns
        Nanoseconds of a pass with forests for a cell and a latent state, without gaps.
    tree_gap_ns
        What gaps add to it, times the share of missing cells.
    belief_ns
        Nanoseconds of predicting missing cells with forests for a cell and a latent state, times the root of the share
        of missing cells.
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
    client_bytes
        Bytes of a client that has imported what it needs, without data.
    client_held
        The same by the names of stages, as runs have shown it: what later ones need is imported by them.
    loading
        Factors of ``LOADING``, by the names of stages: what runs have shown, 1 before the first.
    starting
        Seconds that stages of a run take besides, by their names: what runs have shown, none before the first.
    """

    read_bytes: float = 60e6
    sort_bytes: float = 45e6
    block_bytes: float = 650e6
    count_share: float = 0.6
    em_ns: float = 0.1
    evaluate_ns: float = 4.5
    trait_ns: float = 500.0
    tree_ns: float = 1.0
    tree_gap_ns: float = 20.0
    belief_ns: float = 100.0
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
    client_bytes: int = CLIENT_BYTES
    client_held: tuple[tuple[str, float], ...] = ()
    loading: tuple[tuple[str, float], ...] = ()
    starting: tuple[tuple[str, float], ...] = ()

    def find_loading(self, stage: str) -> tuple[float, float]:
        """Processor seconds in which a stage, named as in a run, loads what it needs: of the client, of each worker."""
        factor = dict(self.loading).get(stage, 1.0)
        client, worker = LOADING.get(stage, (0.0, 0.0))
        return factor * client, factor * worker


BY_STAGE = {"client_held", "loading", "starting"}
"""Fields of `Speeds` that have a number for each stage."""


@dataclass(frozen=True)
class Learnt:
    """What runs of a pipeline have shown of its machines.

    Parameters
    ----------
    speeds
        Speeds by name, as they were corrected: see `Speeds`.
    client_held
        Bytes that the client holds in each stage besides its data.
    loading
        Processor time in which each stage loads what it needs, as a multiple of ``LOADING``.
    starting
        Seconds that each stage takes besides what is planned: workers start.
    """

    speeds: Mapping[str, float] = field(default_factory=dict)
    client_held: Mapping[str, float] = field(default_factory=dict)
    loading: Mapping[str, float] = field(default_factory=dict)
    starting: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> Learnt:
        """Read what the facts of a run hold; nothing of a run before which nothing was learnt."""
        found = facts.get("learnt") or {}
        return cls(*(dict(found.get(each.name, {})) for each in fields(cls)))

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return asdict(self)

    def apply(self, speeds: Speeds) -> Speeds:
        """Speeds with what was learnt."""
        numbers = {each.name for each in fields(Speeds)} - BY_STAGE
        known: dict[str, Any] = {n: each for n, each in self.speeds.items() if n in numbers}
        known |= {name: tuple(sorted(getattr(self, name).items())) for name in BY_STAGE}
        return replace(speeds, **known)
