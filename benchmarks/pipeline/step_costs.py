"""What single steps of a run take on this machine, beside what `pmf plan` has in its table of them.

    python -m benchmarks.pipeline.step_costs

The table is `pmflib_tasks.operations.planning.speeds`. Each step that can be done alone is done some times on data
drawn for it, and the least of the CPU seconds counts; sizes are of what would be sent, listed or loaded. The table
has round numbers that suit whole runs (`python -m benchmarks.pipeline.cost_model`):
what is far from them here is a step that has
changed, or another machine.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pmflib.core.blocks import DenseBlock
from pmflib.counting.pair_counts import count_pairs
from pmflib.em.forests.structure import find_residuals
from pmflib.em.traits.passes import Coefficients, PassModel, sum_traits
from pmflib.em.traits.samples import count_group_levels
from pmflib.fitting.auto_method import run_auto
from pmflib.ingest.sources import digest_source, find_sources
from pmflib.ingest.splitting import follow_range
from pmflib.model import JointPMF
from pmflib.model.sampling import sample_codes
from pmflib.model.traits.level_scores import LevelScores
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference
from pmflib.store.checkpoints import save_arrays
from pmflib.store.sample_blocks import BlockReference
from pmflib.synthetic.planted_models import planted_factors
from pmflib_tasks.operations.planning import speeds

N_VARIABLES, N_LEVELS, RANK = 30, 5, 20
"""Size of the models."""
CLIENT = "import psutil, pmflib_flows.etl; print(psutil.Process().memory_info().rss)"
"""What a client imports, and its bytes."""


def time_call(call: Callable[[], object], rounds: int = 3) -> float:
    """Least CPU seconds of some calls, after one that loads and compiles what it needs."""
    call()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return max(min(taken), 1e-9)


def measure_files(folder: Path, n_bytes: int) -> dict[str, float]:
    """Bytes in a second: hashing a file, finding row starts to split it at, adding up tables, saving them."""
    line = b"12345,1,2,3,4,5,,1,2,3\n"
    (folder / "log.csv").write_bytes(line * (n_bytes // len(line)))
    (source,) = find_sources((str(folder / "log.csv"),))
    table = np.random.default_rng(0).integers(0, 1000, n_bytes // 8)
    total = np.zeros_like(table)
    calls: dict[str, Callable[[], object]] = {
        "HASH_BYTES": lambda: digest_source(source),
        "LOOK_BYTES": lambda: follow_range((source, 0, source.size), ","),
        "ADD_BYTES": lambda: np.add(total, table, out=total),
        "SAVED_BYTES": lambda: save_arrays(folder / "table", {"table": table}),
    }
    return {name: n_bytes / time_call(call) for name, call in calls.items()}


def measure_models(n_rows: int) -> dict[str, float]:
    """Steps of fits: a first model, residuals of pairs, counts of levels, an update of traits."""
    rng = np.random.default_rng(0)
    schema = Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
    prior, factors = planted_factors([N_LEVELS] * N_VARIABLES, RANK, rng)
    codes = sample_codes(prior, factors, schema.offsets, n_rows, rng, observed=0.9)
    block, model = DenseBlock(codes), JointPMF(prior, factors, schema)
    counts = count_pairs(codes, schema)
    small = count_pairs(codes[:1000, :3], Schema.from_cardinalities([N_LEVELS] * 3))
    sparse = block.to_sparse(schema.offsets)
    scores = LevelScores.make(schema, np.zeros(schema.n_levels))
    start = Coefficients.draw(scores, 8, rng)
    sums = sum_traits([DenseBlock(codes[:2000])], PassModel(scores, start.values))
    sum_bytes = sums.gradients.nbytes + sums.curvatures.nbytes + sums.moments.nbytes
    return {
        "FIT_SECONDS": time_call(lambda: run_auto(small, 2, np.random.default_rng(0))),
        "RESIDUAL_NS": time_call(lambda: find_residuals(model, counts)) / schema.n_levels**2 * 1e9,
        "COUNT_NS": time_call(lambda: count_group_levels([sparse], schema.n_levels, schema.offsets))
        / np.count_nonzero(codes >= 0)
        * 1e9,
        "UPDATED_BYTES": sum_bytes / time_call(lambda: start.update(scores, sums, 1.0)),
    }


def measure_sizes() -> dict[str, float]:
    """Bytes of a client, of a block's reference as it is sent, and of an artefact's as it is listed."""
    loaded = subprocess.run([sys.executable, "-c", CLIENT], check=True, capture_output=True)
    digest = "0123456789abcdef" * 4
    path = f"/data/pipelines/store/samples/{digest[:24]}/samples"
    blocks = [BlockReference(path, k << 16, k + 1 << 16, k, 1 << 20, 1 << 21) for k in range(16)]
    reference = Reference("samples", digest, digest)
    return {
        "CLIENT_BYTES": float(loaded.stdout.split()[-1]),
        "BLOCK_SENT": len(pickle.dumps(blocks)) / len(blocks),
        "REFERENCE_BYTES": len(json.dumps(asdict(reference), indent=1)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=float, default=2**26, help="of files and tables")
    parser.add_argument("--rows", type=float, default=2**16, help="of samples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measure_files(Path(name), int(options.bytes))
    found |= measure_models(int(options.rows))
    found |= measure_sizes()
    print(f"{'step':<18}{'in the table':>14}{'measured':>14}")
    for step, value in found.items():
        print(f"{step:<18}{getattr(speeds, step):>14.3g}{value:>14.3g}")


if __name__ == "__main__":
    main()
