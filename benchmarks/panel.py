"""What the product is worth: one line a measure with its standard error, by public names and commands alone.

    python -m benchmarks.panel --json panel.json
    python -m benchmarks.panel --only digests --compare benchmarks/panel_before.json

prints the sections that are chosen. With `--compare` an older output stands beside it, and a line is marked "worse"
where it is worse by more than one standard error, where a command or call takes more than 10 % more of processor time,
or where a digest differs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.data import DATA
from benchmarks.panels.answers import measure_answers, measure_coverage
from benchmarks.panels.commands import measure_digests, measure_seconds
from benchmarks.panels.labels import measure_logs, measure_regimes
from benchmarks.panels.lines import Line
from benchmarks.panels.models import (
    measure_accuracy,
    measure_cells,
    measure_kinds,
    measure_likelihood,
    measure_optima,
    measure_ratings,
    measure_recovery,
)

SECTIONS: dict[str, Callable[[Path], Iterator[Line]]] = {
    "digests": measure_digests,
    "seconds": measure_seconds,
    "logs": measure_logs,
    "regimes": measure_regimes,
    "recovery": measure_recovery,
    "ratings": measure_ratings,
    "answers": measure_answers,
    "coverage": measure_coverage,
    "likelihood": measure_likelihood,
    "accuracy": measure_accuracy,
    "cells": measure_cells,
    "optima": measure_optima,
    "kinds": measure_kinds,
}


def main() -> None:
    """Print the sections."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", type=Path, help="where to save the lines")
    parser.add_argument("--compare", type=Path, help="an older output of --json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before: dict[str, Line] = {}
    if options.compare:
        saved = json.loads(options.compare.read_text("utf-8"))
        before = {each["name"]: Line(**each) for each in saved}
    lines = []
    for section in options.only.split(","):
        began = time.process_time()
        for line in SECTIONS[section](options.data):
            lines.append(line)
            old = before.get(line.name)
            beside = "" if old is None else f"  before {old.show():24}"
            mark = "  worse" if old is not None and line.is_worse(old) else ""
            print(f"{line.name:62}{line.show():24}{beside}{mark}", flush=True)
        print(f"# {section}: {time.process_time() - began:.0f} s of this process", flush=True)
        if options.json:
            saved_lines = [asdict(each) for each in lines]
            options.json.write_text(json.dumps(saved_lines, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
