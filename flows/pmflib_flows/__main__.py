"""Entry point of the command ``pmf``, which reports failures before the command line is loaded in one line."""

import atexit
import sys

from pmflib_flows.interruptions import ignore_signals, is_interruption, pass_signals

READING_SECONDS = 10.0
"""Maximum time to wait at exit for the thread in which Zarr reads, seconds."""


def main() -> None:
    """Load and run the command line, then end the process."""
    # registered first, so called last: from here on Python shuts down, and a signal would replace the exit code
    atexit.register(ignore_signals)
    try:
        try:
            # where an interruption is reported, too
            from pmflib.base.machine import load_while_there_is_room

            load_while_there_is_room()
            from pmflib_flows import cli
        except ModuleNotFoundError as error:
            # the library is installed without the extra; a missing module of our own is a defect, shown with its
            # traceback
            if (error.name or "").partition(".")[0] in {"pmflib_flows", "pmflib_tasks", "pmflib"}:
                raise
            print(
                f"error: the command line needs {error.name!r}, which the extra 'pipeline' installs: "
                "pip install 'pmflib[pipeline]'",
                file=sys.stderr,
            )
            sys.exit(2)
        cli.main()
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_interruption(error):
            raise
        print("interrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(130)
    finally:
        pass_signals()
        # registered last, so called first: before Zarr's own handler
        atexit.register(_stop_reading)


def _stop_reading() -> None:
    """Stop the event loop in which Zarr reads, and wait for it.

    Zarr also does so, but waits only a fifth of a second; on a busy machine, after an interruption, that is too short
    and prints a traceback. Nothing is being read at this point: threads that Python waits for have ended, and others
    are stopped.
    """
    sync = sys.modules.get("zarr.core.sync")
    loop, thread = (getattr(sync, name, [None])[0] for name in ("loop", "iothread"))
    if loop is not None and thread is not None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(READING_SECONDS)


if __name__ == "__main__":
    main()
