"""Answers and parameters of a pipeline with replicate weights, against sums over the replicates by hand.

    python -m benchmarks.pipeline.replicated_answers ../shared/data  # two minutes

The table is PISA 2009 in its order, which has no weights: planted are a weight by country, spread by a gamma law,
schools of 30 pupils as they stand in the file, and 80 replicates by Fay's method with .5, by the columns of a Hadamard
matrix over pairs of schools. The commands are those of a user: infer, the lines of the draft without their "#" and
latent classes without forests, run, query. Printed are shares and standard errors by
hand and by the pipeline, what the record says of the parameters, sizes of artefacts, and what stages took, beside
those of a run that takes rows alike and finds no errors.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from benchmarks.pipeline.weighted_answers import call

STANDS_FOR = {"Mexico": 34.0, "Canada": 16.0, "United States": 642.0}
"""Pupils that one stands for, on average."""
N_REPLICATES, PUPILS, FAY = 80, 30, 0.5
QUESTIONS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("CNT", {}, "United States"),
    ("ST24Q01", {"CNT": "Mexico"}, "Agree"),
    ("ST24Q01", {"ST24Q02": "Agree", "ST24Q03": "Agree"}, "Disagree"),
)
"""What is asked, the conditions, and the level that is printed."""

Floats = npt.NDArray[np.float64]


def plant(source: Path, target: Path) -> tuple[list[str], list[list[str]], Floats, Floats]:
    """Write the table with weights and replicates; give header, rows, weights and replicates."""
    rng = np.random.default_rng(9)
    with gzip.open(source / "pisa2009" / "pisaitems.csv.gz") as packed:
        header, *rows = csv.reader(io.TextIOWrapper(packed, "utf-8"))
    country = np.array([row[0] for row in rows])
    weights = np.array([STANDS_FOR[each] for each in country]) * rng.gamma(4, 0.25, len(rows))
    school, first = np.zeros(len(rows), np.int64), 0
    for name in dict.fromkeys(country.tolist()):
        own = np.flatnonzero(country == name)
        school[own] = first + np.arange(own.size) // PUPILS
        first += 2 * -(-own.size // (2 * PUPILS))
    pair = school // 2
    signs = hadamard(128)[:, 1 : N_REPLICATES + 1][pair % 128]
    signs = signs * np.where(school % 2, -1, 1)[:, None] * np.where(pair // 128 % 2, -1, 1)[:, None]
    weights = weights.round(4)
    replicates = (weights[:, None] * np.where(signs > 0, 2 - FAY, FAY)).round(4)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = [f"W_FSTR{number + 1}" for number in range(N_REPLICATES)]
        writer.writerow(["student", *header, "W_FSTUWT", *names])
        for number, row in enumerate(rows):
            drawn = (f"{each:.4f}" for each in (weights[number], *replicates[number]))
            writer.writerow([f"s{number:05}", *row, *drawn])
    return header, rows, weights, replicates


def sum_by_hand(
    header: list[str],
    rows: list[list[str]],
    weights: Floats,
    replicates: Floats,
    question: tuple[str, dict[str, str], str],
) -> tuple[float, float]:
    """Weighted share of a level, and its standard error by the replicates."""
    asked, given, level = question
    places = {name: header.index(name) for name in (asked, *given)}
    mine = np.array(
        [
            bool(row[places[asked]]) and all(row[places[n]] == text for n, text in given.items())
            for row in rows
        ]
    )
    holds = np.array([row[places[asked]] == level for row in rows])[mine]
    share = float(np.average(holds, weights=weights[mine]))
    each = holds @ replicates[mine] / replicates[mine].sum(axis=0)
    return share, float(np.sqrt(((each - share) ** 2).sum() / (N_REPLICATES * (1 - FAY) ** 2)))


def ask(pipeline: Path, question: tuple[str, dict[str, str], str]) -> dict[str, Any]:
    """What the pipeline says of the level of a question."""
    asked, given, level = question
    conditions = ", ".join(f'{name}="{text}"' for name, text in given.items())
    text = f'P({asked}="{level}" | {conditions})' if given else f'P({asked}="{level}")'
    found: dict[str, Any] = json.loads(call("query", pipeline, text, "--json"))
    return found


def run(data: Path, work: Path, errors: str, *options: object) -> dict[str, Any]:
    """Draft a pipeline, run it, and give the facts of the run."""
    call("infer", data, "--sample", "student", "--rank", 4, "--output", work, *options)
    path = work / "pipeline.toml"
    drafted = path.read_text("utf-8")
    chosen = re.sub(r"(?m)^# (replicates|replicate_method|fay) = ", r"\1 = ", drafted)
    if not options:
        chosen = drafted
    chosen = re.sub(r"(?m)^dependence = .*\n", "", chosen)
    path.write_text(f'{chosen}\n[em]\nerrors = "{errors}"\n', "utf-8")
    facts: dict[str, Any] = json.loads(call("run", path, "--json"))
    return facts


def main(source: Path) -> None:
    """Run the pipeline with and without weights, and print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        data, work = Path(folder) / "pisa.csv", Path(folder) / "work"
        header, rows, weights, replicates = plant(source, data)
        facts = run(data, work, "linear", "--weight", "W_FSTUWT")
        print(f"rows {facts['rows']['rows_in']:,}, quarantined {facts['rows']['reasons']}")
        print(facts["model"]["errors"]["sentence"])
        print("question | by hand | pipeline")
        for question in QUESTIONS:
            share, error = sum_by_hand(header, rows, weights, replicates, question)
            found = ask(work / "pipeline.toml", question)
            print(
                f"{question[0]}={question[2]} given {question[1]} | {share:.4f} +- {error:.5f} | "
                f"{found['value']:.4f} +- {found['standard_error']:.5f}"
            )
        for kind in ("spill", "samples", "counts"):
            files = (work / "store" / kind).rglob("*")
            n_bytes = sum(file.stat().st_size for file in files if file.is_file())
            print(f"{kind} | {n_bytes / 1e6:.1f} MB")
        plain = run(data, Path(folder) / "plain", "off")
        print("stage | with replicates, s of processor | rows alike | memory of the run, MB")
        for mine, other in zip(facts["timings"], plain["timings"], strict=True):
            seconds = (each["processor_seconds"] for each in (mine, other))
            shown = " | ".join(f"{each:.1f}" for each in seconds)
            print(f"{mine['stage']} | {shown} | {mine['client_memory'] / 1e6:.0f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
