import subprocess
import sys

import pmflib as pmf
from pmflib.base import errors


def test_all__names_are_there():
    assert sorted(pmf.__all__) == pmf.__all__
    for name in pmf.__all__:
        assert getattr(pmf, name).__doc__


def test_errors__can_all_be_caught_as_one():
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    assert all(issubclass(each, pmf.PmfError | Warning) for each in kinds)
    assert issubclass(pmf.PmfError, ValueError)


def test_import__is_cheap():
    heavy = [
        "numba",
        "scipy.optimize",
        "scipy.sparse",
        "pyarrow.compute",
        "dask",
        "distributed",
        "prefect",
        "typer",
        "rich",
    ]
    code = f"import sys, pmflib; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
