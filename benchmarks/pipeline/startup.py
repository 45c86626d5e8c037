"""What a process waits for before it works: imports, and the first call of each kernel.

    python -m benchmarks.pipeline.startup

Every figure is the median of processes of their own: CPU seconds of an import, over those of Python alone, and of the
first call on a few rows, with an empty folder for compiled code ("cold") and with the folder that another process has
filled ("warm"). Modules that the call needs are imported before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping

IMPORTS = [
    "pmflib",
    "numba",
    "pmflib.kernels.planes",
    "pmflib.cluster.maps",
    "pmflib_tasks.count",
    "pmflib_flows.cli",
]

SETUP = """
import time
import numba
import numpy as np
import pmflib as pmf
from pmflib.core.blocks import DenseBlock
rng = np.random.default_rng(0)
codes = rng.integers(0, 5, (2000, 30), dtype=np.int8)
codes[rng.random(codes.shape) < 0.1] = -1
offsets = np.arange(31) * 5
block, table = DenseBlock(codes), np.zeros((150, 150), np.int64)
sparse = block.to_sparse(offsets)
"""
CALLS: dict[str, tuple[str, str]] = {
    "scatter": (
        "from pmflib.kernels.scatter import add_dense",
        "add_dense(codes, offsets, table)",
    ),
    "bit planes": (
        "from pmflib.kernels.planes import add_planes",
        "add_planes(codes, offsets, table)",
    ),
    "tiles": (
        "from pmflib.kernels.scatter import add_tiles",
        "add_tiles(sparse.indptr, sparse.indices, offsets, table)",
    ),
    "level indices": (
        "from pmflib.kernels.em_rows import find_observed",
        "find_observed(codes, offsets)",
    ),
    "NNLS": (
        "from pmflib.solvers.numeric.least_squares import solve_nnls",
        "solve_nnls(np.eye(5), rng.random((5, 9)))",
    ),
    "CSV records": (
        "from pmflib.kernels.texts import scan_records",
        "scan_records(np.frombuffer(b'a,b\\n', np.uint8), 44, np.zeros((9, 3), np.int64))",
    ),
    "text hashes": (
        "from pmflib.kernels.texts import hash_texts",
        "hash_texts(np.frombuffer(b'ab', np.uint8), np.array([0, 2], np.int32), np.zeros(1, np.uint64), "
        "np.zeros(1, np.uint8))",
    ),
    "sampling": (
        "from pmflib.synthetic.planted_models import planted_factors; from pmflib.model.sampling import sample_codes;"
        "model = planted_factors([5] * 30, 4, rng)",
        "sample_codes(*model, offsets, 9, rng)",
    ),
    "crowd model": (
        "from pmflib.solvers.crowd.annotator_model import AnnotatorModel;"
        "from pmflib.solvers.crowd.shrinkage import update_crowd_model",
        "update_crowd_model(rng.random((60, 3)), np.ones(3), AnnotatorModel()).take_logs()",
    ),
    "EM pass": (
        "from pmflib.synthetic.planted_models import planted_factors;"
        "from pmflib.model.statistics import em_statistics, take_logs;"
        "model = planted_factors([5] * 30, 4, rng)",
        "em_statistics(block, offsets, *take_logs(*model))",
    ),
}


def main() -> None:
    """Time imports, and all first calls with an empty and a filled folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    nothing = run("pass", "pass", os.environ)
    print(f"{'import':>22}    seconds")
    for name in IMPORTS:
        times = [run("pass", f"import {name}", os.environ) for _ in range(options.repeats)]
        print(f"{name:>22} {statistics.median(times) - nothing:10.2f}", flush=True)
    print(f"{'first call':>22} {'cold s':>10} {'warm s':>10}")
    for name, (before, call) in CALLS.items():
        cold, warm = [], []
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                environment = os.environ | {"NUMBA_CACHE_DIR": folder}
                cold.append(run(SETUP + before, call, environment))
                warm.append(run(SETUP + before, call, environment))
        print(
            f"{name:>22} {statistics.median(cold):10.2f} {statistics.median(warm):10.2f}",
            flush=True,
        )


def run(before: str, call: str, environment: Mapping[str, str]) -> float:
    """CPU seconds of a call in a process of its own."""
    text = f"{before}\nimport time\nstart = time.process_time()\n{call}\nprint(time.process_time() - start)"
    words = [sys.executable, "-c", text]
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
