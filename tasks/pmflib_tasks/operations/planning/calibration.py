"""Speeds of this machine, measured in some seconds on samples made for the purpose."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmflib.core.blocks import DenseBlock
from pmflib.core.hashing import mix_hashes
from pmflib.core.machine import make_private_folder
from pmflib.counting.block_counting import COMPILE_NS
from pmflib.counting.pair_counts import count_pairs
from pmflib.counting.stored_pairs import count_group_pairs
from pmflib.em.traits.passes import Coefficients, PassModel, sum_traits
from pmflib.fitting.auto_method import SETTINGS, run_auto
from pmflib.model import JointPMF
from pmflib.model.sampling import sample_codes
from pmflib.model.statistics import em_statistics, take_logs
from pmflib.model.traits.level_scores import LevelScores
from pmflib.schema import Schema
from pmflib.store.sample_blocks import list_blocks, read_blocks
from pmflib.store.sample_writer import SampleWriter
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize, spill_row_bytes
from pmflib_tasks.operations.planning.speeds import HASH_BYTES, Speeds
from pmflib_tasks.operations.planning.stages import Planner
from pmflib_tasks.scoring.evaluation import choose_hidden, score_hidden

N_VARIABLES, N_LEVELS, RANK, OBSERVED = 30, 5, 20, 0.9
"""Size of what is measured: of any other size the rules of cost say how the times differ."""
N_ROWS = 1 << 18
N_READ = 1 << 16
"""Rows that are written as CSV, and read."""
N_PEOPLE = 1 << 14
"""Rows that a pass of a fit of traits is made over."""


def measure_speeds(speeds: Speeds) -> Speeds:
    """Measure the speeds of a core of this machine: reading, sorting, blocks, counting, fits, passes, predictions.

    Parameters
    ----------
    speeds
        Gives the speeds that are not measured here: those of the scheduler, the network and the storage, and of
        forests, which take longer to measure.

    Returns
    -------
    The speeds. Kernels are compiled before they are timed.
    """
    from pmflib.synthetic.planted_models import planted_factors

    schema = Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
    rng = np.random.default_rng(0)
    prior, factors = planted_factors([N_LEVELS] * N_VARIABLES, RANK, rng)
    codes = sample_codes(prior, factors, schema.offsets, N_ROWS, rng, observed=OBSERVED)
    offsets = schema.offsets
    with make_private_folder() as name:
        folder = Path(name)
        writer = SampleWriter(folder / "part", schema, sparse=False)
        writer.append(DenseBlock(codes), np.zeros(N_ROWS, np.int64), np.arange(N_ROWS))
        writer.close()
        blocks = list_blocks(folder / "part")
        decoding = _time(lambda: sum(block.n_rows for block in read_blocks(blocks)))
        read_bytes, sort_bytes = _measure_ingest(folder, schema, codes[:N_READ])
    loaded = [DenseBlock(codes)]
    before = dict(COMPILE_NS)
    # what a long job chooses, from the first block on
    COMPILE_NS.update({"planes": 0.0, "tiles": 0.0})
    try:
        counting = _time(lambda: count_group_pairs(loaded, offsets))
    finally:
        COMPILE_NS.update(before)
    log = LogSize(N_ROWS, N_ROWS, N_VARIABLES, schema.n_levels, OBSERVED, 1, N_ROWS, N_ROWS)
    planner = Planner(log, FitSize(RANK), ClusterSize(1), replace(speeds, count_share=1.0))
    logs = take_logs(prior, factors)
    cells = float(np.count_nonzero(codes >= 0))
    counts = count_pairs(codes[:N_READ], schema)
    fitting = _time(lambda: run_auto(counts, RANK, np.random.default_rng(0)))
    passing = _time(lambda: em_statistics(loaded[0], offsets, *logs))
    scores = LevelScores.make(schema, np.zeros(schema.n_levels))
    biased = PassModel(scores, Coefficients.draw(scores, 0, rng).values)
    people = DenseBlock(codes[:N_PEOPLE])
    of_people = _time(lambda: sum_traits([people], biased))
    model = JointPMF(prior, factors, schema)
    few = codes[: N_ROWS // 8]
    hidden = choose_hidden(few, np.arange(len(few)), 0.2, 0)
    baseline = np.full(schema.n_levels, 1 / N_LEVELS)
    predicting = _time(lambda: score_hidden(few, hidden, model, baseline))
    return replace(
        speeds,
        read_bytes=read_bytes,
        sort_bytes=sort_bytes,
        block_bytes=sum(block.nbytes for block in blocks) / decoding,
        count_share=counting / (N_ROWS * planner.count_row_seconds()),
        fit_ns=fitting / SETTINGS.plan_work(schema.n_levels, RANK) * 1e9,
        em_ns=passing / cells / RANK * 1e9,
        trait_ns=of_people / np.count_nonzero(people.codes >= 0) * 1e9,
        evaluate_ns=predicting / np.count_nonzero(few >= 0) / RANK * 1e9,
    )


def _measure_ingest(folder: Path, schema: Schema, codes: np.ndarray) -> tuple[float, float]:
    """Bytes of CSV that are encoded in a second, and bytes of spills that are sorted."""
    from pmflib.ingest.dataset.assembly import assemble_buckets
    from pmflib.ingest.dataset.wide import spill_wide
    from pmflib.ingest.options import SchemaOptions, make_source
    from pmflib.ingest.sources import find_sources

    labels = [[*variable.levels, ""] for variable in schema.variables]
    names = ("id", *schema.names)
    lines = [",".join(names)]
    keys = mix_hashes(np.arange(len(codes), dtype=np.uint64)) % np.uint64(10**9)
    for key, row in zip(keys.tolist(), codes.tolist(), strict=True):
        fields = (labels[index][code] for index, code in enumerate(row))
        lines.append(f"{key:09},{','.join(fields)}")
    file = folder / "log.csv"
    file.write_text("\n".join([*lines, ""]))
    source = make_source({"path": str(file), "layout": "wide", "sample": "id"})
    (found,) = find_sources((str(file),))
    policy = SchemaOptions()
    numbers = iter(range(100))

    def spill() -> Path:
        path = folder / f"spill-{next(numbers)}"
        spill_wide(found, schema, source, policy, n_buckets=1, folder=path)
        return path

    def sort() -> None:
        path = folder / f"sorted-{next(numbers)}"
        assemble_buckets(
            [spilled],
            [found.name],
            (0, 1),
            schema,
            source,
            policy,
            n_buckets=1,
            n_folds=1,
            folder=path,
        )

    spilled = spill()
    reading, sorting = _time(spill), _time(sort)
    log = LogSize(
        len(codes),
        len(codes),
        schema.n_variables,
        schema.n_levels,
        1.0,
        1,
        0,
        0,
        identified=True,
        identifier_bytes=9,
    )
    size = file.stat().st_size
    return size / max(reading - size / HASH_BYTES, 1e-9), len(codes) * spill_row_bytes(
        log
    ) / sorting


def _time(call: Callable[[], object], rounds: int = 3) -> float:
    """Least CPU seconds of some calls, after one that loads and compiles what it needs."""
    call()
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)
