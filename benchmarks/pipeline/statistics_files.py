"""Files of SPSS: processor time and memory from a file to samples, and from a table to a file.

    python -m benchmarks.pipeline.statistics_files --megabytes 50 100 200

writes uncompressed .sav files of 30 labelled variables of 5 codes, of which 5 % are declared missing, and reads each to
samples of a store in processes of their own: with our reader; with pyreadstat into a pandas frame of labels, written as
CSV and read by our reader of CSV files, which is what a user without the former would do; and with pyreadstat into a
frame of codes alone, from which nothing is made. Then a Parquet file of labels of as many rows is written as .sav,
.zsav and .dta. Printed are processor seconds and the peak of resident memory above that of a file of 1,000 rows. The
least of several repeats is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat
import readstat_arrow

from benchmarks.pipeline.scaling import read_memory
from pmflib.ingest.dataset.building import build_dataset
from pmflib.ingest.options import DatasetOptions, SchemaOptions, make_source
from pmflib.schema import Schema, Variable
from pmflib.schema.file_columns import FileColumn
from pmflib.store.artefacts import Store
from pmflib.store.table_files import write_file

N_VARIABLES = 30
LABELS: dict[float | str, str] = {
    1.0: "never",
    2.0: "seldom",
    3.0: "sometimes",
    4.0: "often",
    5.0: "always",
}
REFUSED = 9.0
NAMES = [f"q{index:02}" for index in range(N_VARIABLES)]
SCHEMA = Schema(
    tuple(Variable(name, (*LABELS.values(),), missing=("", "refused")) for name in NAMES)
)
DRAWN_ROWS = 1 << 16
SMALL = 1000


def main() -> None:
    """Write, read and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, nargs="+", default=[50, 100, 200])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    options = parser.parse_args()
    sizes = [SMALL, *(int(each * 1e6 / (8 * N_VARIABLES)) for each in options.megabytes)]
    floors: dict[str, float] = {}
    print(f"{'step':14} {'rows':>10} {'MB':>7} {'seconds':>8} {'MiB':>7}")
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_codes(folder / "rows.sav", n_rows)
            write_labels(folder / "labels.parquet", n_rows)
            megabytes = (folder / "rows.sav").stat().st_size / 1e6
            for step in options.steps:
                seconds, peak = measure(step, folder, options.repeats)
                above = peak - floors.setdefault(step, peak)
                if n_rows > SMALL:
                    print(f"{step:14} {n_rows:10,} {megabytes:7.0f} {seconds:8.2f} {above:7.0f}")


def draw(n_rows: int) -> Iterator[np.ndarray]:
    """Codes of the rows, some at a time."""
    for start in range(0, n_rows, DRAWN_ROWS):
        rng = np.random.default_rng(start)
        size = min(DRAWN_ROWS, n_rows - start), N_VARIABLES
        yield np.where(rng.random(size) < 0.05, REFUSED, rng.integers(1, 6, size))


def write_codes(path: Path, n_rows: int) -> None:
    """Write a file of SPSS."""
    named = [
        {"value": code, "label": label} for code, label in {**LABELS, REFUSED: "refused"}.items()
    ]
    metadata = readstat_arrow.Metadata(
        value_labels=dict.fromkeys(NAMES, named),
        missing_values={name: {"values": [REFUSED]} for name in NAMES},
    )
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with readstat_arrow.SavWriter(path, schema, n_rows, metadata) as writer:
        for codes in draw(n_rows):
            writer.write_batch(pa.RecordBatch.from_arrays([*map(pa.array, codes.T)], schema=schema))


def write_labels(path: Path, n_rows: int) -> None:
    """Write a Parquet file of labels, as imputed rows are before they are joined."""
    labels = pa.array([*LABELS.values()])
    schema = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in NAMES])
    with pq.ParquetWriter(path, schema) as writer:
        for codes in draw(n_rows):
            columns = [
                pa.DictionaryArray.from_arrays(pa.array(own - 1, pa.int32(), mask=own > 5), labels)
                for own in codes.T.astype(np.int32)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def make_samples(path: Path, folder: Path) -> None:
    """Read a file to samples of a new store."""
    config = make_source({"path": str(path), "layout": "wide"})
    options = DatasetOptions(config, SchemaOptions(), (str(path),))
    entry = build_dataset(None, Store(folder / "store"), options, SCHEMA)
    assert not entry.summary["rows_quarantined"]


def read_ours(folder: Path) -> None:
    """Read the file of SPSS to samples."""
    make_samples(folder / "rows.sav", folder)


def read_by_csv(folder: Path) -> None:
    """Read the file of SPSS into a frame of labels, and a CSV file of it to samples."""
    frame, _ = pyreadstat.read_sav(folder / "rows.sav", apply_value_formats=True, user_missing=True)
    frame.to_csv(folder / "rows.csv", index=False)
    del frame
    make_samples(folder / "rows.csv", folder)


def read_frame(folder: Path) -> None:
    """Read the file of SPSS into a frame of codes."""
    pyreadstat.read_sav(folder / "rows.sav")


def write_as(suffix: str, folder: Path) -> None:
    """Write the labels as a file with codes."""
    described = dict.fromkeys(NAMES, FileColumn("", "ordinal", LABELS))
    file = pq.ParquetFile(folder / "labels.parquet")
    groups = map(file.read_row_group, range(file.num_row_groups))
    write_file(folder / f"out{suffix}", file.schema_arrow, groups, described)


STEPS: dict[str, Callable[[Path], None]] = {
    "samples": read_ours,
    "samples-by-csv": read_by_csv,
    "pyreadstat": read_frame,
    "write.sav": partial(write_as, ".sav"),
    "write.zsav": partial(write_as, ".zsav"),
    "write.dta": partial(write_as, ".dta"),
}
"""What is measured, by its name."""


def measure(step: str, folder: Path, repeats: int) -> tuple[float, float]:
    """Processor seconds and peak memory, MiB, of a step in a process of its own; the least of several."""
    child = "import sys; from benchmarks.pipeline.statistics_files import run; run(*sys.argv[1:])"
    found = []
    for _ in range(repeats):
        for path in [
            each for each in folder.iterdir() if each.name not in ("rows.sav", "labels.parquet")
        ]:
            subprocess.run(["rm", "-rf", str(path)], check=True)
        words = [sys.executable, "-c", child, step, str(folder)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return min(each[0] for each in found), min(each[1] for each in found)


def run(step: str, folder: str) -> None:
    """Run a step in this process, and print its processor seconds and peak memory, MiB."""
    before = os.times()
    STEPS[step](Path(folder))
    after = os.times()
    seconds = after.user + after.system - before.user - before.system
    # ru_maxrss would include the peak of the process that started this one
    print(json.dumps([seconds, read_memory("VmHWM") / 2**20]))


if __name__ == "__main__":
    main()
