"""Ten deliveries of a label log, each a hundredth of it, against a full run: processor time, and the same labels.

    python -m benchmarks.crowd.deliveries [--labels 3e6] [--workers 1000] [--deliveries 10] [--warm]

A drawn log (see `benchmarks.crowd.throughput`) is delivered as Parquet: a first file, and then night by night one more,
half of whose labels are of tasks that are there already, and in which a few workers are new. Prints processor seconds
of ``pmf crowd`` for the first night, each delivery and a full run of all files in another folder, less those of a night
with nothing new (starting, and looking for files); whether labels, confidence and workers are the same bits; and, of
the tasks that the last delivery has no label of, how many have another confidence, and another label, than before it.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from benchmarks.crowd.throughput import draw

LABELS_PER_TASK, CLASSES = 5, 3


def split(
    n_labels: int, n_workers: int, n_nights: int, seed: int = 0
) -> list[tuple[np.ndarray, ...]]:
    """Tasks, workers and labels of a first file and of each delivery, about a hundredth of all labels each."""
    share = n_labels // 100
    n_tasks = n_labels // LABELS_PER_TASK
    workers, labels, _ = draw(n_tasks, n_workers, LABELS_PER_TASK, CLASSES, seed)
    tasks = np.repeat(np.arange(n_tasks), LABELS_PER_TASK)
    columns = tasks, workers.ravel(), labels.ravel()
    # the last tasks come night by night, and of some early tasks a label is late
    n_late = n_nights * share // 2
    rng = np.random.default_rng(seed + 1)
    late = rng.choice(n_labels - n_late, n_late, replace=False)
    # some workers are new in each delivery
    fresh = n_workers - 1 - np.arange(n_nights)
    is_late = np.zeros(tasks.size, np.bool_)
    is_late[late] = True
    is_late[tasks >= (n_labels - n_late) // LABELS_PER_TASK] = True
    is_late[np.isin(columns[1], fresh)] = True
    night = np.where(is_late, 1 + (rng.random(tasks.size) * n_nights).astype(int), 0)
    for index, worker in enumerate(fresh.tolist()):
        mine = columns[1] == worker
        night[mine] = np.maximum(night[mine], 1 + index)
    return [tuple(column[night == each] for column in columns) for each in range(n_nights + 1)]


def write(path: Path, columns: tuple[np.ndarray, ...]) -> None:
    """Write labels as columns of texts."""
    names = ("task", "worker", "label")
    texts = [pa.array(column).cast(pa.string()) for column in columns]
    pq.write_table(pa.Table.from_arrays(texts, list(names)), path)


def run_command(log: Path, output: Path) -> tuple[float, dict[str, object]]:
    """Processor seconds of ``pmf crowd``, and its facts."""
    command = [sys.executable, "-m", "pmflib_flows", "crowd", str(log), "--output", str(output)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, json.loads(done.stdout)


def compare_nights(before: pa.Table, after: pa.Table) -> tuple[float, float]:
    """Shares of the tasks with as many labels as before whose confidence, and whose label, is another; per cent."""
    both = before.join(after, "task", right_suffix=" after", join_type="inner")
    both = both.filter(pa.compute.equal(both["n_labels"], both["n_labels after"]))
    names = ("confidence", "label")
    changed = [pa.compute.not_equal(both[name], both[f"{name} after"]) for name in names]
    shares = [100 * pa.compute.mean(each.cast(pa.float64())).as_py() for each in changed]
    return shares[0], shares[1]


def have_same_bytes(first: Path, second: Path) -> bool:
    """Whether labels and workers in two folders are the same bytes."""
    names = [path.relative_to(first) for path in first.glob("labels/*")] + [Path("workers.parquet")]
    same = [filecmp.cmp(first / name, second / name, shallow=False) for name in names]
    return all(same) and len(names) == 1 + len([*second.glob("labels/*")])


def main() -> None:
    """Deliver, run, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=float, default=3e6)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--deliveries", type=int, default=10)
    parser.add_argument("--warm", action="store_true", help="nights with [crowd] warm = true")
    options = parser.parse_args()
    files = split(int(options.labels), options.workers, options.deliveries)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "log").mkdir()
        spent = []
        tables: list[pa.Table] = []
        for night, columns in enumerate(files):
            write(root / "log" / f"{night:02}.parquet", columns)
            seconds, facts = run_command(root / "log", root / "nights")
            if options.warm and not night:
                file = root / "nights" / "pipeline.toml"
                text = file.read_text("utf-8").replace("\n[crowd]", "\n[crowd]\nwarm = true")
                file.write_text(text, "utf-8")
            spent.append(seconds)
            if night >= options.deliveries - 1:
                names = ["task", "label", "confidence", "n_labels"]
                tables.append(pq.read_table(root / "nights" / "labels", columns=names))
            print(
                f"night {night:2}: {columns[0].size:10,} labels {seconds:8.2f} s, {facts['passes']} passes, "
                f"{facts['outcome']}",
                flush=True,
            )
        idle, _ = run_command(root / "log", root / "nights")
        full, _ = run_command(root / "log", root / "full")
        same = have_same_bytes(root / "nights", root / "full")
        labels = [
            pq.read_table(root / each / "labels", columns=["label"])["label"]
            for each in ("nights", "full")
        ]
        others = np.count_nonzero(pa.compute.not_equal(*labels))
    print(f"nothing new: {idle:.2f} s; a full run of all files: {full:.2f} s")
    usual = median(spent[1:])
    print(f"a delivery, median: {usual:.2f} s, {100 * usual / full:.0f} % of a full run")
    share = (usual - idle) / (full - idle)
    print(f"less what a night with nothing new takes: {100 * share:.0f} %")
    confidence, label = compare_nights(*tables)
    print(
        f"of tasks without a new label, {confidence:.1f} % have another confidence, {label:.2f} % another label"
    )
    print(f"labels, confidence and workers are the same bits: {same}; other labels: {others:,}")


if __name__ == "__main__":
    main()
