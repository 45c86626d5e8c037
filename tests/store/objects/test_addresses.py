"""Which addresses of stores there are, and what is said of those that are none."""

from pathlib import Path

import pytest

from pmflib.base import ConfigError, UnreachableStoreError
from pmflib.store import Store, StoreAccess, check_address, open_objects
from pmflib.store.objects import addresses
from pmflib_tasks.config import load_config


@pytest.mark.parametrize("address", ["store", "/a/b", "../s3", "C:/x", "s3"])
def test_check_address__folders(address):
    assert check_address(address) == address


@pytest.mark.parametrize(
    ("given", "meant"), [("s3://b-1/x/", "s3://b-1/x"), ("S3://bb/a/b c", "s3://bb/a/b c")]
)
def test_check_address__buckets(given, meant):
    assert check_address(given) == meant


@pytest.mark.parametrize(
    "address",
    ["memory://", "memory://store", "gs://b/x", "az://b/x", "file:///tmp/x", "https://host/x", "s3a://b/x", "://x",
     "s3://", "s3://b", "s3:///x", "s3://b/", "s3://b//x", "s3://b/../x", "s3://b/x\ny", "s3://b/a%2e"],
)  # fmt: skip
def test_check_address__others_are_refused(address):
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        check_address(address)


@pytest.mark.parametrize(
    "address", ["s3://k:hunter2@b/x", "s3://hunter2@b/x", "s3://b/x?secret=hunter2"]
)
def test_check_address__no_secret_is_shown(address):
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY") as refused:
        check_address(address)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("path", ["memory://", "gs://b/store", "s3://k:hunter2@b/store"])
def test_load_config__refuses_them_and_makes_nothing(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    config = Path("pipeline.toml")
    config.write_text(f'[source]\npath = "a.csv"\n[store]\npath = "{path}"\n[model]\nrank = 2\n')
    with pytest.raises(ConfigError) as refused:
        load_config(config)
    assert "s3://bucket/prefix" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert str(refused.value).count("store.path") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["pipeline.toml"]


def test_store__url_that_was_made_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in (Path("s3://bucket/store"), "s3:/bucket/store"):
        with pytest.raises(ConfigError, match="URL"):
            Store(address)
    assert list(tmp_path.iterdir()) == []


def test_refuse_unable__where_only_an_answer_is_missing_it_may_be_tried_again():
    access = StoreAccess("s3://a/b")
    silent, strange = UnreachableStoreError("no answer"), ConfigError("no credentials")
    access.refuse_unable({"one": None, "two": None})
    with pytest.raises(UnreachableStoreError, match="'two'"):
        access.refuse_unable({"one": None, "two": silent})
    with pytest.raises(ConfigError, match="no credentials"):
        access.refuse_unable({"one": strange, "two": silent})


def test_open_objects__schemes_whose_package_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(addresses, "REMOTE", {"s3": "pmflib.store.no_package.bucket:Bucket"})
    for address in ("s3://b/x", "gs://b/x"):
        with pytest.raises(ConfigError, match=r"is not supported for stores; pass a folder$"):
            open_objects(address)
    Store(tmp_path / "store").record_source("a.csv", "0" * 64, {})
