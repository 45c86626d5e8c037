"""Exit codes and error messages of the command.

0 success; 1 a bug, shown with ``--debug``; 2 wrong usage or configuration; 3 the data do not fit: source or schema; 4
store: an artefact is missing or damaged; 5 insufficient memory; 6 stopped by a quality check; 7 cluster: no scheduler
or no workers; 130 interrupted; 141 output closed by its reader; 143 terminated. Errors before this module can be
imported are reported by `pmflib_flows.__main__` with the same codes.
"""

from __future__ import annotations

from pmflib.base.errors import (
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
"""Exit code of wrong usage, and of errors without a code of their own."""
INTERRUPTED = 130
"""Exit code of an interruption, following the shell's convention for SIGINT."""
OUTPUT_CLOSED = 141
"""Exit code if the reader of the output has closed it, following the shell's convention for SIGPIPE."""
TERMINATED = 143
"""Exit code of a termination, following the shell's convention for SIGTERM."""

NO_MEMORY = (
    "failed to map segment",
    "annot allocate memory",
    "cannot create shared object descriptor",
    "can't start new thread",
    "Failed to launch worker thread",
)
"""Messages of the library loader, Python and Arrow if the process may use no more memory or threads."""

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
"""Exit code by class of the error."""


def find_exit_code(error: type[PmfError]) -> int:
    """Return the exit code of an error class: that of its nearest base class with a code."""
    return next((EXIT_CODES[each] for each in error.__mro__ if each in EXIT_CODES), USAGE)


def explain(error: Exception) -> tuple[list[str], int]:
    """Describe the error that stopped a command.

    Parameters
    ----------
    error
        The error, which is not an interruption.

    Returns
    -------
    Lines to print, in which secrets are not yet masked, and the exit code.
    """
    # a store that could not be read for lack of memory is not damaged, whatever the error says
    is_whole = isinstance(error, StoreError) and _says_no_memory(error.__cause__)
    if isinstance(error, PmfError) and not is_whole:
        message = f"error: {error}"
        # invalid options, findings, and the question with its carets, are on separate lines
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
        said = f"error: a request to the system failed ({error}); correct the cause, then run again"
        return [said], EXIT_CODES[StoreError]
    defect = f"defect: {type(error).__name__}: {error}"
    return [defect, "run again with --debug for a traceback"], DEFECT


def _lacks_memory(error: BaseException | None) -> bool:
    """Return whether memory was exhausted, for data or for a library or thread, which Python reports differently."""
    while error is not None:
        if isinstance(error, MemoryError) or _says_no_memory(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _says_no_memory(error: BaseException | None) -> bool:
    """Return whether a library's own message says that memory or threads were exhausted."""
    is_one = isinstance(error, ImportError | OSError | RuntimeError)
    return is_one and any(sign in str(error) for sign in NO_MEMORY)
