"""Source and binary distribution: what is in them, and that each extra is enough for what it promises."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import pmflib

ROOT = Path(__file__).parents[2]
UV = [sys.executable, "-m", "uv"]


def _run(*words, folder, **options):
    """Run a command, without this checkout on its path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        **options,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Source distribution of this checkout, and the wheel that is built from it and from nothing else."""
    folder = tmp_path_factory.mktemp("built")
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    _run(*hatch, "-t", "sdist", folder=ROOT)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    _run(*hatch, "-t", "wheel", folder=unpacked)
    (wheel,) = folder.glob("*.whl")
    return source, wheel, unpacked


def test_wheel__has_every_file_of_the_packages_and_nothing_else(built):
    _, wheel, _ = built
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "pmflib",
            "tasks/pmflib_tasks",
            "flows/pmflib_flows",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if tracked.returncode:
        pytest.skip("this is no checkout of git, whose list of files is the measure")
    there = [name for name in tracked.stdout.splitlines() if (ROOT / name).exists()]
    assert names == {name[name.index("pmflib") :] for name in there}
    # other names at the top of an environment are those of its user
    assert {name.split("/")[0] for name in names} == {"pmflib", "pmflib_tasks", "pmflib_flows"}
    assert "pmflib/py.typed" in names


def test_sdist__has_what_tests_and_lock_need(built):
    _, _, unpacked = built
    for name in (
        "tests",
        "requirements.lock",
        "Makefile",
        "CHANGELOG.md",
        "docs",
        "deploy",
        "benchmarks",
    ):
        assert (unpacked / name).exists(), name
    names = {path.relative_to(unpacked).parts[0] for path in unpacked.iterdir()}
    assert not names & {".venv", "demo", ".git", ".mypy_cache"}


def test_version__is_that_of_the_wheel_and_of_the_changelog(built):
    _, wheel, _ = built
    archive = zipfile.ZipFile(wheel)
    (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(path).decode())
    assert metadata["Version"] == pmflib.__version__
    changes = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## [")
    ]
    assert changes[0] == "## [Unreleased]"
    assert changes[1].startswith(f"## [{pmflib.__version__}] - ")


LIBRARY = """
import sys
import numpy as np
import pmflib as pmf

for name in pmf.__all__:
    getattr(pmf, name)
side = np.random.default_rng(0).integers(2, size=(2000, 1))
codes = np.where(np.random.default_rng(1).random((2000, 4)) < 0.9, side, 1 - side)
table = {f"q{i}": np.array(["no", "yes"])[codes[:, i]] for i in range(4)}
schema = pmf.Schema.infer(table)
encoded = schema.encode(table)
counts = pmf.count_pairs(encoded, schema, n_folds=4)
assert pmf.fits.select_rank(counts).rank == 2
result = pmf.fit_em(encoded, rank="auto", schema=schema)
result.model.save("model.zarr")
model = pmf.JointPMF.load("model.zarr")
yes = model.schema["q0"].levels.index("yes")
assert model.predict_proba({"q1": ["yes"], "q2": ["yes"], "q3": ["yes"]}, "q0")[0, yes] > 0.8
log = {"task": list("aabbccdd"), "worker": list("xyxyxyxy"), "label": list("11001100")}
assert pmf.crowd.aggregate(log).labels["label"].to_pylist() == list("1010")
absent = {"prefect", "dask", "distributed", "pydantic", "typer", "pandas", "matplotlib", "jinja2"}
for name in absent:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise AssertionError(f"{name} is installed: the library is not tested without it")
"""


@pytest.mark.slow
def test_wheel__alone_is_the_library(built, tmp_path):
    _, wheel, _ = built
    python = _make_environment(tmp_path, f"pmflib @ {wheel.as_uri()}")
    _run(python, "-c", LIBRARY, folder=tmp_path)
    refused = subprocess.run(
        [python.parent / "pmf", "run", "pipeline.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2
    assert "pip install 'pmflib[pipeline]'" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_wheel__with_the_pipeline_runs_it(built, tmp_path):
    _, wheel, _ = built
    python = _make_environment(tmp_path, f"pmflib[pipeline] @ {wheel.as_uri()}")
    pmf = python.parent / "pmf"
    _run(pmf, "demo", "--folder", "demo", folder=tmp_path)
    found = _run(pmf, "status", "demo/pipeline.toml", "--json", folder=tmp_path)
    assert '"live"' in found


def _make_environment(folder, requirement):
    """Python of a new environment with a distribution and what it asks for, in the versions of the lock file."""
    environment = folder / "environment"
    _run(*UV, "venv", "--quiet", "--python", sys.executable, environment, folder=folder)
    python = environment / "bin" / "python"
    words = (
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        ROOT / "requirements.lock",
    )
    _run(*UV, *words, requirement, folder=folder)
    return python
