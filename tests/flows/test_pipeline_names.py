"""Names of pipelines: drafted from the folder, and unique in their store."""

import shutil
import tomllib

import pytest

from pmflib.base import ConfigError
from pmflib.store import Store, list_records
from pmflib_flows.recording import record_run
from pmflib_tasks.config import MAX_NAME, draft_name, load_config
from pmflib_tasks.drafting import DraftOptions, draft_pipeline

TEXT = """{name}[source]
path = "{path}.csv"
layout = "wide"
[store]
path = "store"
[model]
rank = 2
"""


def write(path, name="", *, data=None):
    """A configuration of data of its own."""
    text = f'name = "{name}"\n' if name else ""
    path.write_text(TEXT.format(name=text, path=data or path.stem))
    return path


def run(path):
    """Record a run that does nothing."""
    with record_run(load_config(path)) as draft:
        draft.outcome = "kept"
    return draft.number


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("ratings", "ratings"),
        ("Nightly 2", "Nightly 2"),
        ("söhne & töchter", "söhne - töchter"),
        (".hidden", "hidden"),
        ("--", "pipeline"),
        ("x" * 200, "x" * MAX_NAME),
    ],
)
def test_draft_name__is_a_name(folder, name, tmp_path):
    assert draft_name(tmp_path / folder) == name
    assert load_config(write(tmp_path / "p.toml", name)).name == name


def test_draft_pipeline__is_named_after_its_folder(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n2,1\n" * 20)
    draft_pipeline(str(tmp_path / "a.csv"), tmp_path / "panel", DraftOptions())
    drafted = tomllib.loads((tmp_path / "panel" / "pipeline.toml").read_text())
    assert drafted["name"] == "panel"


def test_record_run__a_name_that_another_configuration_of_the_store_has(tmp_path):
    first, second = write(tmp_path / "a.toml", "p"), write(tmp_path / "b.toml", "p")
    assert run(first) == 1
    with pytest.raises(ConfigError, match=r"a\.toml"):
        run(second)
    assert [record.outcome for record in list_records(Store(tmp_path / "store"), "p")] == ["kept"]
    write(second, "q")
    assert run(second) == 1
    # another file of the same pipeline, the same file by another path, and one that has replaced it
    assert run(write(tmp_path / "same.toml", "p", data="a")) == 2
    assert run(first) == 3
    (tmp_path / "link.toml").symlink_to(first)
    assert run(tmp_path / "link.toml") == 4
    first.rename(tmp_path / "c.toml")
    assert run(tmp_path / "c.toml") == 5


def test_record_run__pipelines_without_a_name(tmp_path):
    first = write(tmp_path / "a.toml")
    assert run(first) == 1
    assert load_config(first).name == "pipeline"
    with pytest.raises(ConfigError, match=r"a\.toml"):
        run(write(tmp_path / "b.toml"))
    # one that is named from now on begins a history; the other keeps its own
    run(write(tmp_path / "b.toml", "q"))
    assert run(first) == 2


def test_record_run__a_copied_folder_is_another_pipeline(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    run(write(home / "p.toml", "p"))
    shutil.copytree(home, tmp_path / "copy")
    assert run(tmp_path / "copy" / "p.toml") == 2
    assert run(home / "p.toml") == 2


def test_load_config__is_the_same_in_every_file(tmp_path):
    files = (write(tmp_path / name, "p", data="x") for name in ("a.toml", "b.toml"))
    first, second = map(load_config, files)
    assert first.digest == second.digest
    path = write(tmp_path / "c.toml")
    path.write_text('file = "x"\n' + path.read_text())
    with pytest.raises(ConfigError, match="file"):
        load_config(path)
