"""Nights on machines whose clock goes back, or whose memory is limited: a code, a sentence, and the same digests after.

    python -m tests.faults.odd_machines

makes two nights of a small pipeline. The second is run under a clock that has gone back since the first (libfaketime, a
package of Debian), and under limits of memory: a control group (of version 1 or 2, where this user may make one), and
limits of the address space. Then the same command is run as the machine is, and the digests of its stages are compared
with those of a night where nothing was odd. Prints a table; fails where a command ends with exit code 1, a traceback,
or not within five minutes, or where digests differ.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fault_runs import read_digests
from tests.faults.random_damages import RATINGS, SETTINGS, write_night
from tests.pipelines import make_schema

FILMS = (5, 5, 5, 5, 5, 5)
SECONDS = 300.0
"""Time that a night may take."""
CODES = {0, 2, 3, 4, 5, 6, -9}
"""How a night may end; -9 is the kernel's kill of a process beyond the limit of its control group."""
FAKETIME = "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1"
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Case:
    """Something odd about the machine that runs the second night.

    Parameters
    ----------
    name
        In words.
    environment
        Variables.
    limit
        Called in the process before the program is started.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    limit: Callable[[], None] | None = None


def find_faketime() -> str | None:
    """Library of libfaketime; None where it is not installed."""
    path = FAKETIME.format(os.uname().machine)
    return path if os.path.exists(path) else None


def list_clocks() -> Iterator[Case]:
    """Clocks that have gone back, or ahead."""
    library = find_faketime()
    if library is None:
        return
    clocks = {
        "an hour behind": "-1h",
        "a day behind": "-1d",
        "ten years behind": "-10y",
        "a year ahead": "+1y",
    }
    for name, offset in clocks.items():
        yield Case(f"clock {name}", {"LD_PRELOAD": library, "FAKETIME": offset})


def list_address_limits() -> Iterator[Case]:
    """Limits of the address space."""
    for megabytes in (400, 700, 1000, 1500, 2500):
        size = megabytes * MEGABYTE

        def limit(size: int = size) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        yield Case(f"address space of {megabytes} MB", limit=limit)


@contextmanager
def make_group(n_bytes: int) -> Iterator[Path | None]:
    """Make a control group with a limit of memory; None where this user may not."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"pmf-odd-machine-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / name).write_text(str(n_bytes))
                yield group
                return
            finally:
                with suppress(OSError):
                    group.rmdir()
    yield None


def run_night(folder: Path, case: Case) -> tuple[int | None, str]:
    """Exit code of a run under a case, and what it says; no code of one that takes too long."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "PMF_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "pmflib_flows", "run", str(folder / "pipeline.toml"), "--json"],
        env={**kept, **case.environment},
        preexec_fn=case.limit,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[0]
    return process.returncode, said


def make_nights(folder: Path) -> None:
    """A store of one night, and the delivery of the next."""
    (folder / "data").mkdir(parents=True)
    (folder / "pipeline.toml").write_text(RATINGS + SETTINGS)
    make_schema(*FILMS).save(folder / "schema.json")
    write_night(folder / "data", 1)
    code, said = run_night(folder, Case("first"))
    assert code == 0, said
    write_night(folder / "data", 2)


def judge(folder: Path, case: Case, expected: Mapping[str, str]) -> tuple[str, list[str]]:
    """A line of the table for a case, and what was wrong."""
    code, said = run_night(folder, case)
    again, said_again = run_night(folder, Case("again"))
    wrong = []
    if code not in CODES or again not in CODES - {-9}:
        wrong.append(f"{case.name}: {code}, then {again}: {said[-800:]}\n{said_again[-800:]}")
    if "Traceback (most" in said + said_again:
        wrong.append(f"{case.name}: a traceback: {said[-1500:]}\n{said_again[-800:]}")
    same = again == 0 and read_digests(folder / "pipeline.toml") == expected
    if again == 0 and not same:
        wrong.append(f"{case.name}: other digests")
    sentences = [
        line for line in said.splitlines() if re.match(r"[A-Z][a-z]+ ?[Ee]rror|error", line)
    ]
    what = "" if code == 0 else (sentences or said.strip().splitlines() or [""])[0][:160]
    return f"| {case.name} | {code} | {again} | {'yes' if same else 'no'} | {what} |", wrong


def main() -> None:
    """Run the nights, and print the table."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_nights(folder / "kept")
        shutil.copytree(folder / "kept", folder / "usual")
        code, said = run_night(folder / "usual", Case("second"))
        assert code == 0, said
        expected = read_digests(folder / "usual" / "pipeline.toml")
        print("| machine | exit code | the same command again | same digests | what it says |")
        print("|---|---|---|---|---|", flush=True)

        def try_case(case: Case) -> None:
            here = folder / "here"
            shutil.rmtree(here, ignore_errors=True)
            shutil.copytree(folder / "kept", here)
            line, found = judge(here, case, expected)
            print(line, flush=True)
            wrong.extend(found)

        for case in (*list_clocks(), *list_address_limits()):
            try_case(case)
        for megabytes in (150, 250, 350, 500, 800):
            with make_group(megabytes * MEGABYTE) as group:
                if group is None:
                    continue

                def enter(group: Path = group) -> None:
                    (group / "cgroup.procs").write_text(str(os.getpid()))

                try_case(Case(f"control group of {megabytes} MB", limit=enter))
    print(*wrong, sep="\n")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
