"""Answers of a pipeline with weights next to a weighted GROUP BY: 66,690 pupils of PISA 2009 with planted weights.

    python -m benchmarks.pipeline.weighted_answers ../shared/data [long]

The data have no weights. Those planted are of the size that pupils of the three countries stand for, about 34 in
Mexico, 16 in Canada and 642 in the United States, times a gamma variable of mean 1 and shape 8; four rows have none.
Printed are the share among rows alike, by a GROUP BY with weights, what the pipeline has counted, and what
it answers, with Kish's effective number of samples of the rows that meet the condition, and that of the answer. With
``long`` the same pupils are a log with a row for each answer, in two files that come in two nights.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

STANDS_FOR = {"Mexico": 34.2, "Canada": 15.6, "United States": 642.3}
"""Mean weight by country."""
SHAPE = 8.0
"""Shape of the gamma distribution that weights of a country vary by."""
N_COLUMNS = 13
"""The country and the first questions."""
BAD = {10: "0", 20: "", 30: "-3", 40: "n/a"}
"""Weights that are none, by row."""
QUESTIONS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("CNT", {}, "United States"),
    ("ST24Q01", {"CNT": "Mexico"}, "Agree"),
    ("ST24Q01", {"ST24Q02": "Agree", "ST24Q03": "Agree"}, "Disagree"),
)
"""What is asked, the conditions, and the level that is printed."""


def plant(source: Path, target: Path) -> tuple[list[str], list[list[str]], list[float]]:
    """Write the table with weights, in random order; give header, rows and weights of those that have one."""
    rng = np.random.default_rng(31)
    with gzip.open(source / "pisa2009" / "pisaitems.csv.gz") as packed:
        rows = [row[:N_COLUMNS] for row in csv.reader(io.TextIOWrapper(packed, "utf-8"))]
    header, rows = rows[0], rows[1:]
    texts = [f"{STANDS_FOR[row[0]] * rng.gamma(SHAPE, 1 / SHAPE) + 1e-4:.4f}" for row in rows]
    texts = [BAD.get(number, text) for number, text in enumerate(texts)]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["student", *header, "W_FSTUWT"])
        for number in rng.permutation(len(rows)).tolist():
            writer.writerow([f"s{number:05}", *rows[number], texts[number]])
    kept = [number for number in range(len(rows)) if number not in BAD]
    return header, [rows[number] for number in kept], [float(texts[number]) for number in kept]


def group_by(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    weights: Sequence[float],
    question: tuple[str, dict[str, str], str],
) -> tuple[float, float, float]:
    """Share of a level among rows alike, by weights, and Kish's number of the rows that it is a share of."""
    asked, given, level = question
    place = header.index(asked)
    meets = [(header.index(name), text) for name, text in given.items()]
    mine = [
        (row[place] == level, weight)
        for row, weight in zip(rows, weights, strict=True)
        if row[place] and all(row[n] == text for n, text in meets)
    ]
    holds, weighed = (np.array(each, float) for each in zip(*mine, strict=True))
    kish = weighed.sum() ** 2 / (weighed**2).sum()
    return float(holds.mean()), float(holds @ weighed / weighed.sum()), float(kish)


def call(*words: object) -> str:
    """What a command prints."""
    made = subprocess.run(
        [sys.executable, "-m", "pmflib_flows", *map(str, words)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return made.stdout


def ask(pipeline: Path, question: tuple[str, dict[str, str], str]) -> dict[str, Any]:
    """What the pipeline says of the level of a question."""
    asked, given, level = question
    conditions = ", ".join(f'{name}="{text}"' for name, text in given.items())
    text = f"P({asked} | {conditions})" if given else f"P({asked})"
    answer = json.loads(call("query", pipeline, text, "--json"))
    found: dict[str, Any] = next(e for e in answer["levels"] if e["level"][asked] == level)
    return found


def melt(path: Path, folder: Path) -> list[Path]:
    """Write a row for each answer of a wide file, in two files of about a half of the pupils each."""
    folder.mkdir()
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    found = []
    for night, part in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        found.append(folder / f"night{night}.csv")
        with found[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["student", "question", "answer", header[-1]])
            for student, *answers, weight in part:
                pairs = zip(header[1:-1], answers, strict=True)
                writer.writerows([student, *pair, weight] for pair in pairs)
    return found


def main(source: Path, *, is_long: bool) -> None:
    """Run the pipeline and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        header, rows, weights = plant(source, Path(folder) / "pisa.csv")
        data = [Path(folder) / "pisa.csv", "--sample", "student", "--weight", "W_FSTUWT"]
        if is_long:
            second = melt(Path(folder) / "pisa.csv", Path(folder) / "nights")[1]
            second.rename(Path(folder) / "second.csv")
            data[0] = Path(folder) / "nights"
            data += ["--variable", "question", "--value", "answer"]
        call("infer", *data, "--rank", 6, "--output", work)
        facts = json.loads(call("run", work / "pipeline.toml", "--json"))
        if is_long:
            (Path(folder) / "second.csv").rename(second)
            facts = json.loads(call("run", work / "pipeline.toml", "--accept-quality", "--json"))
        print(f"rows {facts['rows']['rows_in']:,}, quarantined {facts['rows']['reasons']}")
        print("question | rows alike | GROUP BY | counted | answer, interval | Kish | worth")
        for question in QUESTIONS:
            alike, weighted, kish = group_by(header, rows, weights, question)
            found = ask(work / "pipeline.toml", question)
            low, high = found["interval"]
            worth = found["samples"] / found["counted"]
            print(
                f"{question[0]}={question[2]} given {question[1]} | {alike:.6f} | {weighted:.6f} | "
                f"{found['counted']:.6f} | {found['probability']:.4f}, {low:.4f} to {high:.4f} | {kish:,.0f} | "
                f"{worth:,.0f}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), is_long=sys.argv[2:] == ["long"])
