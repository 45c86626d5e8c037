"""Zarr groups that somebody else has written: whatever they say, they are read or refused as a store is."""

import json
import pickle
import shutil

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import StoreError
from tests.reference import make_codes, make_model

CARDINALITIES = [3, 2, 4]
DEEP = "[" * 50_000
HUGE = 1 << 48


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Give a folder with a saved model and saved counts."""
    folder = tmp_path_factory.mktemp("groups")
    rng = np.random.default_rng(0)
    schema = pmf.Schema.from_cardinalities(CARDINALITIES)
    pmf.JointPMF(*make_model(rng, CARDINALITIES, 2), schema).save(folder / "model")
    pmf.count_pairs(make_codes(rng, 50, CARDINALITIES), schema, n_folds=2).save(folder / "counts")
    return folder


def edit(key, value):
    def change(text):
        content = json.loads(text)
        *path, last = key.split(".")
        inner = content
        for each in path:
            inner = inner[each]
        inner[last] = value
        return json.dumps(content)

    return change


GROUP_EDITS = {
    "empty": lambda text: "",
    "list": lambda text: "[]",
    "number": lambda text: "3",
    "deep": lambda text: DEEP,
    "not UTF-8": lambda text: "\udcff",
    "node type": edit("node_type", "array"),
    "format": edit("zarr_format", [3]),
    "attributes": edit("attributes", [1, 2]),
    "schema": edit("attributes.schema", {"variables": 3}),
    "no schema": edit("attributes.schema", None),
    "kind": edit("attributes.kind", {"a": 1}),
}
ARRAY_EDITS = {
    "empty": lambda text: "",
    "deep": lambda text: DEEP,
    "shape": edit("shape", [7]),
    "shape of text": edit("shape", "two"),
    "negative shape": edit("shape", [-1, -1]),
    "nested shape": edit("shape", [[2]]),
    "huge shape": edit("shape", [HUGE, HUGE]),
    "huge shape of one": edit("shape", [HUGE]),
    "no dimensions": edit("shape", []),
    "type": edit("data_type", "object"),
    "type of a structure": edit("data_type", {"name": "struct", "configuration": {}}),
    "another size": edit("data_type", "int16"),
    "codec": edit("codecs", [{"name": "nonsense"}]),
    "no codec": edit("codecs", []),
    "codecs of text": edit("codecs", "zstd"),
    "chunks": edit("chunk_grid.configuration.chunk_shape", [0, 0]),
    "huge chunks": edit("chunk_grid.configuration.chunk_shape", [HUGE, HUGE]),
    "keys": edit("chunk_key_encoding", {"name": "../../.."}),
    "node type": edit("node_type", "group"),
}


def read(folder):
    pmf.JointPMF.load(folder / "model")
    pmf.PairCounts.load(folder / "counts")
    pmf.PairCounts.load_total(folder / "counts", folds=[0])


@pytest.mark.parametrize(
    ("file", "change"),
    [(f"{name}/zarr.json", change) for name in ("model", "counts") for change in GROUP_EDITS]
    + [
        (f"{name}/zarr.json", change)
        for name in ("model/factors", "model/prior", "counts/counts", "counts/samples")
        for change in ARRAY_EDITS
    ],
)
def test_load__edited_metadata_are_refused(groups, tmp_path, file, change):
    folder = tmp_path / "groups"
    shutil.copytree(groups, folder)
    path = folder / file
    edits = ARRAY_EDITS if file.count("/") == 2 else GROUP_EDITS
    path.write_bytes(edits[change](path.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError) as refused:
        read(folder)
    # it can travel from a worker, and a terminal can show it
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    assert len(str(refused.value)) < 1000


def test_load__huge_shape_with_its_chunks_there(groups, tmp_path):
    # metadata that fit each other, and a chunk that does not fit them
    folder = tmp_path / "groups"
    shutil.copytree(groups, folder)
    path = folder / "model" / "factors" / "zarr.json"
    text = edit("shape", [HUGE, 2])(path.read_text())
    path.write_text(edit("chunk_grid.configuration.chunk_shape", [HUGE, 2])(text))
    with pytest.raises(StoreError):
        read(folder)
