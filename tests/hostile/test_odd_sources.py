"""Odd addresses and odd files: a source error within seconds, whatever a driver raises, and no secret in it."""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pmflib.base import SourceError, UnreachableError
from pmflib.ingest import Source, file_systems, find_sources, open_source

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:hunter2@127.0.0.1:1/a.csv",
        "github:///x",
        "reference://",
        "reference::/nowhere/x.json",
        "tar://a.csv::/nowhere/x.tar",
        "tar:///x",
        "zip://a.csv::/nowhere/x.zip",
        "zip://",
        "http://127.0.0.1:1/a.csv?token=hunter2",
        "http://[::1",
        "memory://nothing",
        "dir://x",
        "jupyter://x",
        "dask::x",
        "dask://x",
        "generic://x",
        "nosuch://x",
        "::" * 2000,
        "zip://" * 2000,
        "a\0b",
        "x" * 5000,
        "a/" * 3000,
        "a\udcffb",
        "*" * 50,
        "a[",
        "/dev/zero",
        "/dev/null",
    ],
    ids=repr,
)
def test_find_sources__odd_address(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError) as caught:
        find_sources(url)
    assert "hunter2" not in str(caught.value)
    # an error of a worker travels
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_find_sources__odd_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    os.mkfifo("pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    Path(os.fsdecode(b"a\xff.csv")).write_text("a\n1\n")
    (tmp_path / "round").mkdir()
    (tmp_path / "round" / "a.csv").write_text("a\n1\n")
    os.symlink(".", "round/again")
    for name in ("loop", "pipe", "socket", os.fsdecode(b"a\xff.csv"), "p*", "a*", "round"):
        with pytest.raises(SourceError):
            find_sources(name)
    server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_find_sources__folder_without_permission(request):
    program = (
        "import os, sys\nfrom pmflib.base.errors import SourceError\nfrom pmflib.ingest.sources import find_sources\n"
        "os.setuid(65534)\ntry:\n    find_sources(sys.argv[1])\nexcept SourceError as error:\n    print(error)\n"
    )
    # the folders of pytest are closed to others, and another run of it would close them again
    home = tempfile.TemporaryDirectory()
    request.addfinalizer(home.cleanup)
    tmp_path = Path(home.name)
    tmp_path.chmod(0o755)
    (tmp_path / "open" / "closed").mkdir(parents=True)
    (tmp_path / "open" / "a.csv").write_text("a\n1\n")
    (tmp_path / "open" / "closed" / "b.csv").write_text("a\n1\n")
    (tmp_path / "open" / "closed").chmod(0o700)
    for name in ("open", "open/closed"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / name)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert "PermissionError" in done.stdout, done.stderr


class Unwell(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose server has a bad day."""

    protocol = "unwell"
    cachable = False
    error: Exception = OSError()

    def _open(self, path, **options):
        raise self.error

    def exists(self, path, **options):
        raise self.error


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (TimeoutError("slow"), True),
        (ConnectionResetError("gone"), True),
        (OSError(5, "input/output error"), True),
        (socket.gaierror(socket.EAI_AGAIN, "resolver is busy"), True),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), False),
        (ConnectionRefusedError("closed"), False),
        (RuntimeError("https://me:hunter2@host/?sig=hunter2"), False),
    ],
    ids=repr,
)
def test_open_source__what_may_pass_is_tried_again(error, again):
    fsspec.register_implementation("unwell", Unwell, clobber=True)
    Unwell.error = error
    for work in (
        lambda: find_sources("unwell://a"),
        lambda: open_source(Source("a", "unwell://a", 1)).__enter__(),
    ):
        with pytest.raises(SourceError) as caught:
            work()
        assert isinstance(caught.value, UnreachableError) == again
        assert "hunter2" not in str(caught.value)


@pytest.mark.timeout(60)
def test_find_sources__no_answer(monkeypatch):
    over = threading.Event()

    class Silent(Unwell):
        protocol = "silent"

        def exists(self, path, **options):
            over.wait(600)

    fsspec.register_implementation("silent", Silent, clobber=True)
    monkeypatch.setattr(file_systems, "ANSWER_SECONDS", 0.2)
    with pytest.raises(UnreachableError, match="silent"):
        find_sources("silent://a")
    over.set()


def test_find_sources__no_secret_is_kept(tmp_path):
    with fsspec.open("memory://kept/a.csv", "wb") as stream:
        stream.write(b"a\n1\n")
    (source,) = find_sources("memory://kept/a.csv")
    assert "memory" not in repr(source)
