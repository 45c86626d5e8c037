"""Whether answers of pipelines as they are drafted hold on rows that they have never seen.

    python -m benchmarks.models.answers_drafted [TABLE ...] [--questions 100] [--show 10]

Half of each table is written to a file, and goes through `pmf infer` and `pmf run` without an option; `pmf query
--file` answers questions P(a variable | 0 to 3 others) whose conditions at least 500 rows of that half meet, drawn from
rows of the other half. Of each answer one level is taken, drawn by the probabilities that it gives. A line for each
table says of how many of them the share in the other half lies within the interval of 95 %: that of the posterior, with
the sampling error of the other half; and of how many by counts alone, whose misses are chance. Some answers are shown
beside both counts. Processor times are those of the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pmflib as pmf
from benchmarks.models.answers import TABLES, draw_requests, find_within, write_question
from pmflib.counting.table_requests import TableRequest
from pmflib.model.questions.evidence import count_codes

LEAST_ROWS = 500
"""Rows that meet the conditions, at least."""
DRAFTED = ("adult", "mushroom", "pisa2009")


@dataclass(frozen=True)
class Held:
    """One level of an answer, and its share in the other half."""

    question: str
    level: str
    chance: float
    interval: tuple[float, float]
    counted: float
    n_counted: int
    model: float
    n_worth: float
    share: float
    n_other: int
    within: bool
    within_by_counts: bool


def call(*words: str) -> tuple[str, float]:
    """Output of a command of pmf, and the processor time that it took, seconds."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "pmflib_flows", *words], check=True, capture_output=True, text=True
    )
    after = os.times()
    spent = sum(after[2:4]) - sum(before[2:4])
    return done.stdout, spent


def measure(table: pd.DataFrame, n_questions: int, seed: int) -> tuple[list[Held], list[float]]:
    """Put questions to a drafted pipeline of half of a table; give the answers, and seconds of infer, run, query."""
    rng = np.random.default_rng(seed)
    table = table.iloc[rng.permutation(len(table))]
    half = len(table) // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table.iloc[:half].to_csv(folder / "half.csv", index=False)
        times = [call("infer", str(folder / "half.csv"), "--output", name)[1]]
        config = str(folder / "pipeline.toml")
        times.append(call("run", config, "--json")[1])
        schema = pmf.Schema.load(folder / "schema.json")
        codes = schema.encode(table[list(schema.names)])
        first, second = codes[:half], codes[half:]
        requests = draw_supported(first, second, schema, n_questions, rng)
        asked = [write_question(schema, each) for each in requests]
        (folder / "questions.txt").write_text("\n".join(asked), "utf-8")
        said, spent = call("query", config, "--file", str(folder / "questions.txt"), "--json")
        times.append(spent)
    truths = count_codes(second, schema, requests)
    found = []
    for request, answer, truth in zip(requests, json.loads(said), truths, strict=True):
        found.append(compare(schema, request, answer, truth.tolist(), rng))
    return found, times


def draw_supported(
    first: np.ndarray, second: np.ndarray, schema: pmf.Schema, number: int, rng: np.random.Generator
) -> list[TableRequest]:
    """Questions of none to three conditions in turn, which enough rows of the first half meet."""
    kept: list[TableRequest] = []
    for n_conditions in range(4):
        wanted = number * (n_conditions + 1) // 4
        while len(kept) < wanted:
            drawn = draw_requests(second, n_conditions, number, rng)
            counted = count_codes(first, schema, drawn)
            ample = [each for each, n in zip(drawn, counted, strict=True) if n.sum() >= LEAST_ROWS]
            kept += ample[: wanted - len(kept)]
    return kept


def compare(
    schema: pmf.Schema,
    request: TableRequest,
    answer: dict[str, Any],
    truth: list[int],
    rng: np.random.Generator,
) -> Held:
    """Take a level of an answer, and hold it against the other half."""
    rows = answer["levels"]
    chances = np.array([row["probability"] for row in rows])
    row = rows[rng.choice(len(rows), p=chances / chances.sum())]
    (label,) = row["level"].values()
    chance, n_counted = row["probability"], sum(each["samples"] for each in rows)
    (worth,) = answer["equivalent_samples"]
    n_other, n_level = sum(truth), truth[schema[request.targets[0]].levels.index(label)]
    tables = np.array([chance, 1 - chance]), np.array([n_level, n_other - n_level])
    within = find_within(tables[0], n_counted + worth, tables[1], rng)[0]
    alone = np.array([row["counted"], 1 - row["counted"]])
    # with a row that is spread evenly, as answers from counts have it
    alone = (n_counted * alone + 0.5) / (n_counted + 1)
    by_counts = find_within(alone, n_counted + 1, tables[1], rng)[0]
    return Held(
        answer["question"],
        label,
        chance,
        tuple(row["interval"]),
        row["counted"],
        n_counted,
        row["model"],
        worth,
        n_level / max(n_other, 1),
        n_other,
        within,
        by_counts,
    )


def show(name: str, held: list[Held], times: list[float], n_shown: int) -> None:
    """Print a line of a table, and its first answers of each number of conditions."""
    infer, run, query = (f"{each:.1f} s" for each in times)
    n_within = sum(each.within for each in held)
    alone = sum(each.within_by_counts for each in held)
    print(f"\n{name}: {n_within} of {len(held)} within, by counts alone {alone}")
    print(f"infer {infer}, run {run}, query {query}\n")
    head = "question, level | answer | interval | counted, rows | model, worth | other half, rows | within"
    print(f"| {head} |\n|{'---|' * 7}")
    chosen = np.linspace(0, len(held) - 1, min(n_shown, len(held))).round().astype(int)
    for each in (held[n] for n in chosen):
        low, high = each.interval
        cells = [f"{each.question}, {each.level}", f"{each.chance:.3f}", f"{low:.3f} to {high:.3f}"]
        cells += [
            f"{each.counted:.3f}, {each.n_counted:,}",
            f"{each.model:.3f}, {each.n_worth:,.0f}",
        ]
        cells += [f"{each.share:.3f}, {each.n_other:,}", "yes" if each.within else "no"]
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", flush=True)


def main() -> None:
    """Read the arguments and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(DRAFTED), help=", ".join(TABLES))
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.tables:
        held, times = measure(TABLES[name](), given.questions, given.seed)
        show(name, held, times, given.show)


if __name__ == "__main__":
    main()
