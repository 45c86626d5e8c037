"""Models that a stranger has sent: what they state is checked before anything is decompressed or repeated."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.store import read_arrays, write_arrays
from tests.pipelines import make_schema

MOST_MEGABYTES = 500
"""Peak memory of a process that refuses a model."""
REFUSE = """
import sys
from pathlib import Path
import pmflib as pmf
from pmflib.base.errors import StoreError
try:
    pmf.JointPMF.load(sys.argv[1])
except StoreError:
    (peak,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")]
    print(int(peak.split()[1]) // 1024)
"""
# the peak of getrusage is at least that of the process that started this one


def write_hostile_chunk(folder):
    """A chunk of 2 GB of zeros in place of a few numbers."""
    chunk = next((folder / "factors" / "c").rglob("0"))
    while chunk.is_dir():
        chunk = chunk / "0"
    size = 1 << 31
    blocks = b"".join(
        (int(index == 2**14 - 1) | 1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"\0"
        for index in range(2**14)
    )
    header = b"\x28\xb5\x2f\xfd" + bytes([0xC0 | 0x20]) + size.to_bytes(8, "little")
    chunk.write_bytes(header + blocks)


def state_large_arrays(folder):
    """Few states that are stated to be many, in chunks of zeros that agree with what is stated."""
    for name in ("prior", "factors"):
        found = zarr.open_group(folder, mode="a")
        old: Any = found[name]
        shape = (*old.shape[:-1], 40_000_000)
        del found[name]
        created = found.create_array(
            name,
            shape=shape,
            dtype="float64",
            chunks=(*old.shape[:-1], 1_000_000),
            compressors=zarr.codecs.ZstdCodec(level=1),
            config={"write_empty_chunks": True},
        )
        created[..., :1_000_000] = 0.0
        first = next(path for path in (folder / name / "c").rglob("*") if path.is_file())
        for chunk in range(1, 40):
            (first.parent / str(chunk)).write_bytes(first.read_bytes())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.parametrize("damage", [write_hostile_chunk, state_large_arrays])
def test_load__a_model_that_expands_is_refused_in_little_memory(damage, tmp_path):
    factors = np.array([[0.5, 0.2], [0.25, 0.3], [0.25, 0.5], [0.5, 0.1], [0.5, 0.9]])
    pmf.JointPMF(np.array([0.5, 0.5]), factors, make_schema(3, 2)).save(tmp_path / "model")
    damage(tmp_path / "model")
    found = subprocess.run(
        [sys.executable, "-c", REFUSE, str(tmp_path / "model")], capture_output=True, text=True
    )
    assert found.stdout, found.stderr
    assert int(found.stdout) < MOST_MEGABYTES


@pytest.mark.parametrize("n_draws", [0, 2, 4, 10**9])
def test_load__draws_that_are_not_there(n_draws, tmp_path):
    table = pd.DataFrame({"a": ["x", "y"] * 20, "b": ["u", "v", "u", None] * 10})
    pmf.PMFImputer(rank=2, draws=3).fit(table).save(tmp_path / "imputer")
    edit_attributes(tmp_path / "imputer", lambda content: content.update(n_draws=n_draws))
    with pytest.raises(StoreError, match="draws"):
        pmf.PMFImputer.load(tmp_path / "imputer")


def test_load__classes_of_a_type_of_gigabytes(tmp_path):
    table = pd.DataFrame({"a": ["x", "y"] * 20, "b": ["u", "v", "u", None] * 10})
    pmf.PMFClassifier(rank=2).fit(table, np.array(["no", "yes"] * 20)).save(tmp_path / "model")
    edit_attributes(tmp_path / "model", lambda content: content.update(class_dtype="<U400000000"))
    with pytest.raises(StoreError, match="class_dtype"):
        pmf.PMFClassifier.load(tmp_path / "model")


def edit_attributes(folder, edit):
    path = folder / "zarr.json"
    content = json.loads(path.read_text())
    edit(content["attributes"]["estimator"])
    path.write_text(json.dumps(content))


def test_read_arrays__only_our_codecs_are_decompressed(tmp_path):
    write_arrays(tmp_path / "group", {"table": (np.zeros(8), ("row",))}, {})
    path = tmp_path / "group" / "table" / "zarr.json"
    content = json.loads(path.read_text())
    content["codecs"][1] = {"name": "gzip", "configuration": {"level": 1}}
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="gzip"):
        read_arrays(tmp_path / "group")


@pytest.mark.parametrize("size", [1, 31, 32, 40, 8192, 9000, 10**6])
def test_read_arrays__chunks_of_every_length_of_header(size, tmp_path):
    write_arrays(tmp_path / "group", {"table": (np.arange(size, dtype=float), ("row",))}, {})
    assert read_arrays(tmp_path / "group")[0]["table"].tolist() == list(range(size))
