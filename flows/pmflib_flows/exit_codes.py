"""Exit codes of the command, by what has stopped it, and what it says then.

0 done; 1 a defect of ours, shown with ``--debug``; 2 wrong usage or configuration; 3 the data do not fit: source or
schema; 4 the store: an artefact is missing or damaged; 5 it would not fit in memory; 6 held back by a guard of quality;
7 the cluster: no scheduler, or no workers; 130 interrupted; 141 whoever read the output closed it; 143 terminated.
What goes wrong before this file can be imported is said by `pmflib_flows.__main__`, with the same codes.
"""

from __future__ import annotations

from pmflib.core.errors import (
    ClusterError,
    ConfigError,
    MemoryPlanError,
    PmfError,
    QualityError,
    QuestionError,
    RankError,
    SchemaError,
    SourceError,
    StoreError,
)

DEFECT = 1
"""Exit code of an error that no user can correct."""
USAGE = 2
"""Exit code of wrong usage, and of errors of no class that has one."""
INTERRUPTED = 130
"""Exit code of an interruption, as shells have it for SIGINT."""
OUTPUT_CLOSED = 141
"""Exit code where whoever read the output has closed it, as shells have it for SIGPIPE."""
TERMINATED = 143
"""Exit code of a termination, as shells have it for SIGTERM."""

NO_MEMORY = (
    "failed to map segment",
    "annot allocate memory",
    "cannot create shared object descriptor",
    "can't start new thread",
    "Failed to launch worker thread",
)
"""What the loader of libraries, Python and Arrow say where the process may take no more memory, or no more threads."""

EXIT_CODES: dict[type[PmfError], int] = {
    ConfigError: USAGE,
    ClusterError: 7,
    RankError: USAGE,
    SourceError: 3,
    SchemaError: 3,
    StoreError: 4,
    MemoryPlanError: 5,
    QualityError: 6,
}
"""Exit code of the command by the class of the error."""


def find_exit_code(error: type[PmfError]) -> int:
    """Exit code of a class of errors: that of the nearest class it is made from that has one."""
    return next((EXIT_CODES[each] for each in error.__mro__ if each in EXIT_CODES), USAGE)


def explain(error: Exception) -> tuple[list[str], int]:
    """Say what stopped a command.

    Parameters
    ----------
    error
        What was raised, and is no interruption.

    Returns
    -------
    Lines to print, as they are: secrets in them are not masked. And the exit code.
    """
    # a store that could not be read for want of memory is not damaged, whatever its error says
    is_whole = isinstance(error, StoreError) and _says_no_memory(error.__cause__)
    if isinstance(error, PmfError) and not is_whole:
        message = f"error: {error}"
        # options that are wrong, findings, and the question and the carets under it, are lines of their own
        has_lines = isinstance(error, ConfigError | QuestionError | QualityError)
        lines = message.split("\n") if has_lines else [message]
        return lines, find_exit_code(type(error))
    if is_whole or _lacks_memory(error):
        said = (
            "error: the memory is exhausted; give more (a limit of the shell, `ulimit -v`, or of the container counts "
            "as well), or set cluster.memory_limit"
        )
        return [said], EXIT_CODES[MemoryPlanError]
    if isinstance(error, OSError) and error.errno is not None:
        said = f"error: the system refused what is needed ({error}); see to it, then run again"
        return [said], EXIT_CODES[StoreError]
    defect = f"defect: {type(error).__name__}: {error}"
    return [defect, "run again with --debug for a traceback"], DEFECT


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether the memory was exhausted: for data, or for a library or a thread, of which Python says so otherwise."""
    while error is not None:
        if isinstance(error, MemoryError) or _says_no_memory(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _says_no_memory(error: BaseException | None) -> bool:
    """Whether a library says in its own words that there was no memory, or no thread."""
    is_one = isinstance(error, ImportError | OSError | RuntimeError)
    return is_one and any(sign in str(error) for sign in NO_MEMORY)
