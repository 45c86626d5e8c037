import subprocess
import sys

import pytest

import pmflib as pmf
from pmflib.base import errors


def test_all__names_are_there():
    assert sorted(pmf.__all__) == pmf.__all__
    for name in pmf.__all__:
        assert getattr(pmf, name).__doc__


PACKAGES = ["answering", "counts", "crowd", "em", "families", "fits", "inference", "papers"]
PACKAGES += ["surveys", "apps"]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_of_each_package_are_documented(package):
    face = getattr(pmf, package)
    assert face.__all__
    for name in face.__all__:
        assert getattr(face, name).__doc__
        assert name in dir(face)


def test_a_dozen_names_are_at_the_top():
    assert len(pmf.__all__) <= 14


@pytest.mark.parametrize(("old", "new"), sorted(pmf._MOVED.items()))
def test_a_moved_name_warns_and_names_the_new_one(old, new):
    with pytest.warns(
        DeprecationWarning, match=rf"pmflib\.{old} is deprecated.*use pmflib\.{new}$"
    ):
        found = getattr(pmf, old)
    expected = pmf
    for part in new.split("."):
        expected = getattr(expected, part)
    assert found is expected


def test_a_wrong_name_is_refused_with_the_nearest():
    with pytest.raises(AttributeError, match=r"'pmflib' has no attribute 'fit_emm'.*fit_em"):
        assert pmf.fit_emm
    with pytest.raises(AttributeError, match=r"'pmflib.surveys' has no attribute 'raek'.*rake"):
        assert pmf.surveys.raek


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
