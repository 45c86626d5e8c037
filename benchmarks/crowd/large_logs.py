"""Label logs of the sizes that spark-crowd's authors published: time, memory and error of ``pmf crowd``.

    python -m benchmarks.crowd.large_logs [--sizes 1e4 1e5 1e6 1e7] [--methods dawid_skene auto]

Their logs ``binary1`` to ``binary4`` have 1e4, 1e5, 1e6 and 1e7 tasks of two classes with ten annotations each
(Rodrigo, Aledo, Gamez, 2019; the documentation of the package, "Comparison with other packages"). The files are no
longer to be had, and how they were drawn is not written; what is written are the accuracies of majority vote (.936) and
of Dawid-Skene (.994). The logs here are drawn so that both can come out: ten workers label every task, five of them
guess and five are right in ``SKILL`` of all cases; the vote is then right in .935 of all tasks, and the best rule that
there is in .995 (all 1,024 sets of labels enumerated: `bound_accuracy`). Their times are of another machine, and stand
beside ours for orientation: one machine (t1), and a cluster of 3 nodes with 10 cores and 30 GB each (tc).
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.crowd.throughput import run_command

SKILL = 0.915
"""Share of right labels of a worker who does not guess."""
SKILLS = np.repeat([0.5, SKILL], 5)
PART = 1_000_000
"""Tasks that are drawn and written at a time."""
PUBLISHED = {
    10_000: "t1 31 s, tc 32 s",
    100_000: "t1 60 s, tc 51 s",
    1_000_000: "t1 111 s, tc 69 s",
    10_000_000: "t1 703 s, tc 426 s",
}
"""Seconds of Dawid-Skene by spark-crowd, by tasks, as its authors give them."""


def bound_accuracy() -> tuple[float, float]:
    """Probability that majority vote is right, ties counted in half, and that the best rule is, all skills known."""
    given = np.array(list(itertools.product([False, True], repeat=SKILLS.size)))
    chances = np.where(given, SKILLS, 1 - SKILLS).prod(axis=1)
    votes = given.sum(axis=1) - SKILLS.size / 2
    evidence = np.where(given, 1, -1) @ np.log(SKILLS / (1 - SKILLS))
    found = [
        float(chances @ ((rule > 1e-9) + 0.5 * (np.abs(rule) <= 1e-9)))
        for rule in (votes, evidence)
    ]
    return found[0], found[1]


def write_log(path: Path, n_tasks: int, seed: int) -> npt.NDArray[np.bool_]:
    """Draw a log and write it as Parquet, the labels of a part of the tasks in random order; return the truth."""
    rng = np.random.default_rng([seed, n_tasks])
    fields = pa.schema([("task", pa.int32()), ("worker", pa.int16()), ("label", pa.int8())])
    truths = []
    with pq.ParquetWriter(path, fields) as writer:
        for first in range(0, n_tasks, PART):
            n = min(PART, n_tasks - first)
            truth = rng.random(n) < 0.5
            labels = truth[:, None] ^ (rng.random((n, SKILLS.size), np.float32) >= SKILLS)
            order = rng.permutation(labels.size).astype(np.int32)
            columns = [first + order // SKILLS.size, order % SKILLS.size, labels.ravel()[order]]
            arrays = [
                pa.array(column.astype(field.type.to_pandas_dtype()))
                for column, field in zip(columns, fields, strict=True)
            ]
            writer.write_table(pa.table(arrays, fields))
            truths.append(truth)
    return np.concatenate(truths)


def find_error(output: Path, truth: npt.NDArray[np.bool_]) -> float:
    """Share of tasks whose label is wrong."""
    found = pq.read_table(output / "labels", columns=["task", "label"])
    tasks = found["task"].to_numpy().astype(np.int64)
    return float((found["label"].to_numpy().astype(np.int64) != truth[tasks]).mean())


def main() -> None:
    """Draw each log, run each method, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--methods", nargs="+", default=["dawid_skene", "auto"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    vote, best = bound_accuracy()
    print(f"accuracy that can be had: majority vote {vote:.4f}, the best rule {best:.4f}")
    rows: list[dict[str, Any]] = []
    for n_tasks in map(int, options.sizes):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "labels.parquet"
            truth = write_log(path, n_tasks, options.seed)
            for method in options.methods:
                output = Path(name) / method
                facts = run_command(path, output, "--method", method)
                row = {
                    "tasks": n_tasks,
                    "method": method,
                    "seconds": facts["seconds"],
                    "peak_bytes": facts["peak_bytes"],
                    "passes": facts.get("passes"),
                    "accuracy": 1 - find_error(output, truth),
                }
                rows.append(row)
                theirs = PUBLISHED.get(n_tasks, "none")
                print(
                    f"{n_tasks:>10,} tasks, {method:12} accuracy {row['accuracy']:.4f}, "
                    f"{row['seconds']:7.1f} s, peak {row['peak_bytes'] / 1e9:.2f} GB, "
                    f"passes {row['passes']}; Dawid-Skene of spark-crowd: {theirs}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
