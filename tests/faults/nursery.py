"""A process that runs the command line in children forked from it, each with one fault: they need not import again.

It reads one job per line of standard input, and answers each with a line, both JSON.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
"""Faults that are a signal to the run itself."""
ERRORS = {"disk full": errno.ENOSPC, "no permission": errno.EACCES, "input/output": errno.EIO}
"""Faults that are an error of the system; a full disk stays full, the others happen once."""
PID = "pid"
"""File in the folder of a job with the id of the process that runs it."""
LONGEST = 110
"""Time of a run, seconds; then it is killed, and counts as one that hangs."""


class Fault:
    """A fault at the n-th time that something of a store is written: a file opened, renamed, linked or removed.

    Parameters
    ----------
    store
        The store; its folder of Prefect does not count.
    kind
        What happens; "" for nothing.
    n
        When it happens, from 1.
    report
        File for what was being written then, or for the number of times in all.
    """

    def __init__(self, store: str, kind: str, n: int, report: Path) -> None:
        self._store, self._kind, self._n, self._report = store, kind, n, report
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, event: str, words: tuple[Any, ...]) -> None:
        """Audit hook of Python."""
        if event == "open":
            if not isinstance(words[2], int) or not words[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT
            ):
                return
        elif event not in ("os.rename", "os.link", "os.mkdir", "os.remove"):
            return
        try:
            path = os.fspath(words[0])
        except TypeError:
            return
        if isinstance(path, bytes) or not path.startswith(self._store):
            return
        with self._lock:
            self._count += 1
            count = self._count
        if count == self._n and self._kind:
            self._write(path[len(self._store) + 1 :])
        if count == self._n and self._kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self._kind])
        number = ERRORS.get(self._kind)
        if number is not None and (
            count == self._n or (number == errno.ENOSPC and count > self._n)
        ):
            raise OSError(number, os.strerror(number), path)

    def finish(self) -> None:
        """Report how often it could have happened, if it has not."""
        if not self._kind:
            self._write(str(self._count))

    def _write(self, text: str) -> None:
        descriptor = os.open(self._report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def main() -> None:
    """Serve jobs until standard input ends."""
    # loaded once, for all children
    import pmflib_flows.etl  # noqa: F401
    import pmflib_tasks.stages.evaluation  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(job["folder"])
        child = os.fork()
        if not child:
            _run(job, folder)
        (folder / PID).write_text(str(child))
        deadline = time.monotonic() + job.get("longest", LONGEST)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.01)
        report = folder / "report"
        answer = {
            "code": os.waitstatus_to_exitcode(ended[1]),
            "hangs": time.monotonic() > deadline,
            "report": report.read_text() if report.exists() else "",
            "out": (folder / "out").read_text(),
            "err": (folder / "err").read_text(),
        }
        report.unlink(missing_ok=True)
        print(json.dumps(answer), flush=True)


def _run(job: dict[str, Any], folder: Path) -> NoReturn:
    os.setsid()
    for number, name in ((0, os.devnull), (1, folder / "out"), (2, folder / "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(folder)
    os.environ.update(job["variables"])
    fault = Fault(str(folder / "store"), job["kind"], job["n"], folder / "report")
    sys.addaudithook(fault)
    sys.argv = ["pmf", *job["words"]]
    # of a run that hangs, standard error says where
    faulthandler.dump_traceback_later(0.9 * job.get("longest", LONGEST))
    code = 1
    try:
        from pmflib_flows.__main__ import main as run

        run()
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    fault.finish()
    os._exit(code)


if __name__ == "__main__":
    main()
