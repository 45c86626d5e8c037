"""A source is what the file says: folders around it are no wildcards, and no store is a source."""

import pytest

from pmflib.base import ConfigError, SourceError
from pmflib.ingest import DATA_SUFFIXES, check_output, find_sources, make_absolute, would_find_store
from pmflib_tasks.config import load_config

ODD = "proj[1]"
"""Name of a folder that is a wildcard, which matches proj1 and not itself."""


def write_config(folder, path, store="store"):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pipeline.toml"
    file.write_text(
        f'[source]\npath = {path!r}\nlayout = "wide"\n[model]\nrank = 1\n[store]\npath = "{store}"\n'
    )
    return file


@pytest.fixture
def projects(tmp_path):
    """Two projects of which one has a name that matches the other's, each with a log of its own."""
    for name in (ODD, "proj1"):
        (tmp_path / name / "logs").mkdir(parents=True)
        (tmp_path / name / "logs" / "log.csv").write_text(f"a\n{name}\n")
    return tmp_path


@pytest.mark.parametrize("path", ["logs/log.csv", "logs", "logs/*.csv", "l*/log.csv", "**/*.csv"])
def test_find_sources__folder_of_the_pipeline_is_no_wildcard(projects, path):
    config = load_config(write_config(projects / ODD, path))
    (source,) = find_sources(config.source_paths)
    assert source.url == str(projects / ODD / "logs" / "log.csv")


@pytest.mark.parametrize("path", ["logs/log.csv", "logs/*.csv"])
def test_find_sources__a_file_that_is_not_there_is_nobody_elses(projects, path):
    (projects / ODD / "logs" / "log.csv").unlink()
    config = load_config(write_config(projects / ODD, path))
    with pytest.raises(SourceError, match=r"proj\[1\]/logs/"):
        find_sources(config.source_paths)


@pytest.mark.parametrize("path", ["logs/log.csv", "logs", "logs/*.csv"])
def test_make_absolute__working_folder_is_no_wildcard(projects, monkeypatch, path):
    monkeypatch.chdir(projects / ODD)
    (source,) = find_sources(make_absolute(path))
    assert source.url == str(projects / ODD / "logs" / "log.csv")
    assert source.name == "log.csv"


@pytest.mark.parametrize(
    ("path", "store", "found"),
    [
        (".", "store", True),
        ("data", "data/store", True),
        ("data", "data", True),
        ("data/", "data/a/store", True),
        ("**/*.parquet", "store", True),
        ("data/**", "data/store", True),
        ("*/*/*/*.parquet", "store", True),
        ("data", "store", False),
        ("data", "database", False),
        ("data", "data/_store", False),
        ("data/*.csv", "data/store", False),
        ("**/log.csv", "store", False),
        ("data/log.csv", "data/store", False),
        ("*/*.parquet", "store", False),
        ("s3://bucket/data", "s3://bucket/data/store", True),
        ("s3://bucket/data", "s3://bucket/store", False),
        ("data", "s3://bucket/data", False),
    ],
)
def test_would_find_store(tmp_path, monkeypatch, path, store, found):
    monkeypatch.chdir(tmp_path)
    assert would_find_store(path, store, DATA_SUFFIXES) == found


def test_would_find_store__follows_links_and_ends_of_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    assert would_find_store("link", "data/store", DATA_SUFFIXES)
    assert not would_find_store("data", "data/store", [".csv"])


def test_load_config__refuses_a_source_that_contains_the_store(tmp_path):
    file = write_config(tmp_path / "demo", ".")
    with pytest.raises(ConfigError, match=r"source\.path"):
        load_config(file)


@pytest.mark.parametrize(
    ("path", "output", "is_refused"),
    [
        ("logs", "logs/scores.csv", True),
        ("logs", "logs/deep/scores.parquet", True),
        ("logs", "logs/scores", True),
        ("logs", "logs/_scores/night.csv", False),
        ("logs", "scores.csv", False),
        ("logs/*.csv", "logs/scores.csv", True),
        ("logs/*.csv", "logs/scores.parquet", False),
        ("logs/*.csv", "logs/scores", False),
        ("logs/*.csv", "logs/.scores.csv", False),
        ("logs/.s*.csv", "logs/.scores.csv", True),
        ("logs/log.csv", "logs/log.csv", True),
        ("logs/log.csv", "logs/scores.csv", False),
        ("logs/log.csv", "logs/../logs/log.csv", True),
    ],
)
def test_check_output__refuses_what_the_next_reading_takes_for_data(
    projects, monkeypatch, path, output, is_refused
):
    monkeypatch.chdir(projects / ODD)
    if not is_refused:
        check_output([path], output, DATA_SUFFIXES)
        return
    with pytest.raises(ConfigError, match="output"):
        check_output([path], output, DATA_SUFFIXES)
