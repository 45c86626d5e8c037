"""Every example runs alone, from an empty folder, and says something."""

import runpy
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
SLOW = {"dask_client.py"}
SAID = {
    "add_counts.py": "the same as counted anew: True",
    "anomalies.py": "among the 20 least probable: 1",
    "classifier.py": "accuracy: 0.9",
    "questions.py": "odds ratio",
    "choose_rank.py": "Choice of the rank: 4",
    "save_and_load.py": "equal: True",
    "progress.py": "fit_em 200 of 200",
}
"""Part of what is printed, where a mistake of the library would change it."""


@pytest.mark.parametrize(
    "file",
    [pytest.param(f, marks=[pytest.mark.slow] * (f.name in SLOW), id=f.name) for f in FILES],
)
def test_example__runs(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        runpy.run_path(str(file), run_name="__main__")
    shown = capsys.readouterr()
    assert SAID.get(file.name, "") in shown.out
    assert shown.out
    assert shown.err == ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_example__is_short_and_listed(file):
    lines = file.read_text("utf-8").splitlines()
    assert 10 <= len(lines) <= 30
    assert lines[0].startswith('"""')
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text("utf-8")
