"""Which addresses of stores there are, and what is said of those that are none, and of buckets that do not answer."""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pmflib.base.errors import ConfigError, UnreachableError, UnreachableStoreError
from pmflib.store.artefacts import Store
from pmflib.store.bucket import bucket as bucket_module
from pmflib.store.objects import addresses
from pmflib.store.objects.addresses import StoreAccess, check_address, open_objects
from pmflib_tasks.config import load_config
from tests.object_store import SECRET


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


def test_open_objects__without_obstore(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"pmflib\[s3\]"):
        open_objects("s3://never-opened/store")


def refuse(address):
    """What is said of an address, by whatever a store does first."""
    with pytest.raises((ConfigError, UnreachableError)) as refused:
        Store(address).find("0" * 64)
    assert SECRET not in str(refused.value)
    assert str(refused.value) == str(StoreAccess(address).find_obstacle()) or "no answer" in str(
        refused.value
    )
    return refused.value


def test_store__no_such_bucket(bucket):
    assert "no-bucket-of-ours" in str(refuse("s3://no-bucket-of-ours/store"))
    assert StoreAccess(f"s3://{bucket}/store").find_obstacle() is None


def test_store__http_without_leave(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    assert "AWS_ALLOW_HTTP=true" in str(refuse(f"s3://{bucket}/store"))


def test_store__no_server(bucket, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        monkeypatch.setitem(bucket_module.RETRIES, "max_retries", 1)
        monkeypatch.setattr(bucket_module, "INSIST_SECONDS", 0.5)
        monkeypatch.setattr(bucket_module, "CHECK_SECONDS", 0.5)
        error = refuse(f"s3://{bucket}/store")
    assert isinstance(error, UnreachableError)


class Refusal(BaseHTTPRequestHandler):
    """What Amazon answers to a request that is signed with another key."""

    def refuse(self):
        content = b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = refuse

    def log_message(self, *_):
        pass


def test_store__refused_requests_name_the_variables(bucket, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        address = f"s3://{bucket}/store"
        with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY"):
            Store(address).find("0" * 64)
        assert isinstance(StoreAccess(address).find_obstacle(), ConfigError)
        server.shutdown()


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
        with pytest.raises(ConfigError, match=r"is not supported for stores; give a folder$"):
            open_objects(address)
    Store(tmp_path / "store").record_source("a.csv", "0" * 64, {})
