"""What is said of buckets that do not answer, do not exist or are refused."""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pmflib.base import ConfigError, UnreachableError
from pmflib.store import Store, StoreAccess, open_objects
from pmflib.store.bucket import bucket as bucket_module
from tests.object_store import SECRET


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
