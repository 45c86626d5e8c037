"""How much of the library takes part in simple things: files and functions that are executed.

    python -m benchmarks.structure.steps
    python -m benchmarks.structure.steps query --files

prints a Markdown table for `pmf.fit_em(frame)`, `pmf query`, `pmf crowd` and `pmf run`, each on 3,000 rows, in a
process of its own whose compiled code is on disk: files of the project's packages with a function executed, such
functions, and files imported. Bodies of modules and classes are no functions, and what runs while a module is imported
does not count; neither do lambdas, comprehensions, compiled loops and what worker processes do. With --files the files
are listed with the functions executed in each.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.pipeline.small_jobs import N_LABELS, make_pipeline, measure_run, write_labels

ROOT = Path(__file__).parents[2]
APART = ("benchmarks", "tests", "docs", "examples", ".venv")
"""Folders of the checkout whose files are not the project's packages."""
N_ROWS, N_COLUMNS, RANK = 3_000, 6, 3
CASES = {
    "fit_em": ("`pmf.fit_em(frame)`", 40),
    "query": ("`pmf query`", 40),
    "crowd": ("`pmf crowd`", 90),
    "run": ("`pmf run`", 120),
}
"""What is measured, and the files executed that are aimed at."""


class Steps:
    """Functions of the project that are executed, in all threads of this process."""

    def __init__(self) -> None:
        self.found: set[CodeType] = set()
        self.local = threading.local()

    def start(self) -> None:
        """Look at every call from here on."""
        threading.setprofile(self.look)
        sys.setprofile(self.look)

    def stop(self) -> None:
        """Look no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def look(self, frame: FrameType, event: str, _: Any) -> None:
        """Take down a call, unless a module is being imported."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":
            imports = getattr(self.local, "imports", 0) + (1 if event == "call" else -1)
            self.local.imports = max(imports, 0)
        elif event == "call" and not getattr(self.local, "imports", 0):
            self.found.add(code)

    def count_files(self) -> dict[str, int]:
        """Number of functions executed of each file."""
        return Counter(
            name
            for code in self.found
            if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
            if (name := name_file(code.co_filename))
        )


def name_file(path: str) -> str:
    """File of the project's packages, seen from the root of the checkout; empty for others."""
    file = Path(path)
    if file.suffix != ".py" or not file.is_relative_to(ROOT):
        return ""
    name = file.relative_to(ROOT)
    return "" if name.parts[0] in APART else name.as_posix()


def run_case(case: str, folder: Path) -> None:
    """Do what is measured in this process, and write what was executed and imported to a file of the folder."""
    steps = Steps()
    if case == "fit_em":
        import pandas as pd

        import pmflib as pmf

        frame = pd.read_csv(folder / "log.csv")
        steps.start()
        pmf.fit_em(frame, rank=RANK)
    else:
        config, labels = str(folder / "pipeline.toml"), str(folder / "labels.csv")
        words = {
            "query": ["query", config, "q1 given q0=a"],
            "crowd": ["crowd", labels, "--output", str(folder / "crowd"), "--json"],
            "run": ["run", config, "--json"],
        }
        (script,) = entry_points(group="console_scripts", name="pmf")
        sys.argv = ["pmf", *words[case]]
        steps.start()
        try:
            script.load()()
        except SystemExit as end:
            if end.code not in (None, 0, 3):
                raise
    steps.stop()
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    imported = {name for file in files if file and (name := name_file(file))}
    found = {"executed": steps.count_files(), "imported": len(imported)}
    (folder / "steps.json").write_text(json.dumps(found), "utf-8")


def measure(case: str, folder: Path) -> tuple[dict[str, int], int]:
    """Functions executed of each file, and files imported, when compiled code is on disk already."""
    for _ in range(2):
        if case == "run":
            shutil.rmtree(folder / "store", ignore_errors=True)
        elif case == "query":
            # the first question to a model fits its standard errors
            measure_run(folder / "pipeline.toml")
        elif case == "crowd":
            shutil.rmtree(folder / "crowd", ignore_errors=True)
        words = [sys.executable, "-m", __spec__.name, case, "--here", str(folder)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{case} ended with exit code {done.returncode}:\n{done.stderr}")
    found = json.loads((folder / "steps.json").read_text("utf-8"))
    return found["executed"], found["imported"]


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="?", choices=[*CASES], help="by default all")
    parser.add_argument("--files", action="store_true", help="list the files, too")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_case(options.case, options.here)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "log"
        make_pipeline(folder, N_ROWS, N_COLUMNS, str(RANK))
        write_labels(folder / "labels.csv", N_ROWS // N_LABELS)
        print("| | files executed | aimed at | functions executed | files imported |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for case in CASES if options.case is None else (options.case,):
            executed, n_imported = measure(case, folder)
            what, aim = CASES[case]
            n_functions = sum(executed.values())
            print(
                f"| {what} | {len(executed)} | {aim} | {n_functions} | {n_imported} |", flush=True
            )
            if options.files:
                for file, n_each in sorted(executed.items()):
                    print(f"{n_each:6d} {file}")


if __name__ == "__main__":
    main()
