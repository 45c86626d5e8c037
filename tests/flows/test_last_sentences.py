"""What stops a command has a sentence of bounded length and a code of its own; exit code 1 is a defect of ours."""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from pmflib.base import ConfigError, SchemaError, StoreError
from pmflib.cluster import find_scheduler
from pmflib.schema import Schema
from pmflib.store import Store
from pmflib_flows import cli
from pmflib_flows.console import MESSAGE_BYTES, cut_message
from pmflib_flows.exit_codes import explain
from pmflib_tasks.config import ClusterConfig
from pmflib_tasks.drafting import read_rank


@pytest.mark.parametrize("value", [10**400, -(10**400), "1" * 400, [1], {}])
def test_schema__values_that_are_no_numbers(tmp_path, value):
    schema = Schema.from_cardinalities([2])
    schema.save(tmp_path / "schema.json")
    content = json.loads((tmp_path / "schema.json").read_text())
    content["variables"][0]["values"] = [0, value]
    (tmp_path / "schema.json").write_text(json.dumps(content))
    with pytest.raises(SchemaError) as caught:
        Schema.load(tmp_path / "schema.json")
    assert len(str(caught.value)) < 600


def test_schema__a_number_of_more_digits_than_python_reads(tmp_path):
    (tmp_path / "schema.json").write_text('{"variables": [' + "9" * 5000 + "]}")
    with pytest.raises(SchemaError):
        Schema.load(tmp_path / "schema.json")


@pytest.mark.parametrize("text", ["9" * 5000, "0", "-1", "1" * 10, "two", "²", ""])
def testread_rank__no_rank(text):
    with pytest.raises(ConfigError, match="--rank") as caught:
        read_rank(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "address", ["127.0.0.1:99999", "tcp://127.0.0.1:65536", "tls://[::1]:0", "host:" + "9" * 5000]
)
def test_find_scheduler__a_port_that_is_none_is_refused_at_once(monkeypatch, address):
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match="address"):
        find_scheduler(ClusterConfig(address=address))


@pytest.mark.parametrize(
    "error",
    [
        OSError("x/libllvmlite.so: failed to map segment from shared object"),
        ImportError("libarrow.so: cannot allocate memory in static TLS block"),
        RuntimeError("can't start new thread"),
        MemoryError(),
    ],
)
def test_explain__memory_of_libraries_and_threads(error):
    for raised in (error, make_caused(OSError("Could not find/load 'libllvmlite.so'"), error)):
        lines, code = explain(raised)
        assert code == 5
        assert "ulimit -v" in lines[0]


def make_caused(error, cause):
    try:
        try:
            raise cause
        except type(cause):
            raise error from cause
    except type(error) as raised:
        return raised


def test_explain__a_store_that_no_thread_could_read_is_not_damaged():
    damage = StoreError("dataset 1 is damaged; run the pipeline again")
    cause = OSError(
        "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
    )
    assert explain(make_caused(damage, cause))[1] == 5
    # metadata that were damaged may ask for any amount
    other = StoreError("arrays of 'x' cannot be read")
    assert explain(make_caused(other, MemoryError("Unable to allocate 8 EiB")))[1] == 4


def test_explain__what_only_looks_like_it_is_a_defect():
    assert explain(RuntimeError("no memory of it"))[1] == 1


@pytest.mark.parametrize("text", ["x" * 10**6, "\0" * 10**5, "é" * 10**5, "a\n" * 10**4])
def test_cut_message__is_short_and_keeps_the_remedy(text):
    shown = cut_message([f"error: the header is {text}", f"{text}; set source.encoding"])
    assert len("\n".join(shown).encode()) <= MESSAGE_BYTES
    assert shown[0].startswith("error: the header is ")
    assert shown[-1].endswith("; set source.encoding")
    assert "bytes more" in "".join(shown)


@pytest.mark.parametrize("raised", [RuntimeError("pool is closed"), OSError("x"), GeneratorExit()])
def test_main__what_breaks_after_a_termination_is_one(monkeypatch, capsys, raised):
    def work(words, standalone_mode):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        except KeyboardInterrupt:
            raise raised from None

    monkeypatch.setattr(cli, "app", work)
    monkeypatch.setattr(sys, "argv", ["pmf", "score"])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_store__of_another_user_cannot_be_read():
    folder = Path(tempfile.mkdtemp(prefix="pmf-test-"))
    try:
        folder.chmod(0o755)
        Store(folder / "store")
        os.seteuid(12345)
        try:
            with pytest.raises(StoreError, match="store"):
                Store(folder / "store")
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(folder)
