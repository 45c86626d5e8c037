"""Entry point of the command ``pmf``: what can go wrong before the command line is there is one line."""

import atexit
import sys

from pmflib.core.machine import load_while_there_is_room
from pmflib_flows.interruptions import ignore_signals, is_interruption, pass_signals

READING_SECONDS = 10.0
"""Longest wait at the end of the process for the thread in which Zarr reads, seconds."""


def main() -> None:
    """Load the command line and run it: the process ends with it."""
    # the first to be registered is the last to be called: from there on Python takes itself apart, and a signal would
    # take the place of the exit code
    atexit.register(ignore_signals)
    try:
        try:
            load_while_there_is_room()
            from pmflib_flows import cli
        except ModuleNotFoundError as error:
            # the library is installed without it; a module of ours that is absent is a defect, and has its traceback
            if (error.name or "").partition(".")[0] in {"pmflib_flows", "pmflib_tasks", "pmflib"}:
                raise
            print(
                f"error: the command line needs {error.name!r}, which the extra 'pipeline' brings: "
                "pip install 'pmflib[pipeline]'",
                file=sys.stderr,
            )
            sys.exit(2)
        cli.main()
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interruption(error):
            raise
        print("interrupted: the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    finally:
        pass_signals()
        # the last to be registered is the first to be called: before Zarr's own
        atexit.register(_stop_reading)


def _stop_reading() -> None:
    """Stop the loop in which Zarr reads, and wait for it.

    Zarr does so too, but waits a fifth of a second; on a busy machine, after an interruption, that is too short, and it
    prints a traceback. Nothing reads any more: the threads that Python waits for have ended, others are stopped.
    """
    sync = sys.modules.get("zarr.core.sync")
    loop, thread = (getattr(sync, name, [None])[0] for name in ("loop", "iothread"))
    if loop is not None and thread is not None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(READING_SECONDS)


if __name__ == "__main__":
    main()
