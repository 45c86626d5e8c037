"""Whether vector code may be used: not where it is not wanted, or fails under the numba installed."""

import os
import warnings
from collections.abc import Callable

PLAIN_VARIABLE = "PMF_PLAIN_KERNELS"
"""Environment variable: any text in it keeps everything to plain numba."""

_warned: set[str] = set()


def vector_code_works(what: str, check: Callable[[], bool]) -> bool:
    """Whether the vector code of some kernels may be used, and compiles under the numba installed, and is right.

    Parameters
    ----------
    what
        What the kernels do, as the subject of a sentence.
    check
        Compiles the kernels, calls them, and says whether the results are right.

    Warns
    -----
    RuntimeWarning
        If they are not usable, once for each ``what``; the caller goes on without them.
    """
    if os.environ.get(PLAIN_VARIABLE):
        return False
    try:
        works = check()
    except Exception as error:
        # numba and llvmlite promise no kind of exception for code that they no longer understand
        reason = f"{type(error).__name__}: {error}"
    else:
        if works:
            return True
        reason = "wrong results"
    if what not in _warned:
        _warned.add(what)
        warnings.warn(
            f"vector code fails under the numba installed ({reason}); {what} goes on in plain numba, slower. "
            f"Set {PLAIN_VARIABLE}=1 to silence this, or install the numba of the lock file",
            RuntimeWarning,
            stacklevel=3,
        )
    return False
