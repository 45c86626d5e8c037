"""Everything that a store says, as it is stored and decoded: for looking for identifiers in it."""

import json
import sqlite3

import numpy as np
import pyarrow.parquet as pq
import zarr


def find_texts(folder, texts):
    """Files below a folder that hold one of some texts, in their bytes or in what these decode to."""
    searched = [text.encode() for text in texts]
    found = set()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and any(text in path.read_bytes() for text in searched):
            found.add(path)
        for content in decode(path):
            if any(text in content for text in searched):
                found.add(path)
    return found


def decode(path):
    """What a file or a group of arrays holds, as bytes."""
    if path.is_dir():
        if (path / "zarr.json").exists():
            yield from decode_group(path)
    elif path.suffix == ".parquet":
        for column in pq.read_table(path).columns:
            yield "\n".join(map(str, column.to_pylist())).encode()
    elif path.suffix == ".json" or path.name == ".digests":
        yield json.dumps(json.loads(path.read_text()), ensure_ascii=False).encode()
    elif path.suffix in (".npy", ".npz"):
        loaded = np.load(path, allow_pickle=False)
        arrays = [loaded] if path.suffix == ".npy" else [loaded[name] for name in loaded.files]
        yield from (array.tobytes() for array in arrays)
    elif path.suffix in (".db", ".sqlite"):
        base = sqlite3.connect(path)
        yield "\n".join(base.iterdump()).encode()
        base.close()


def decode_group(path):
    group = zarr.open(path, mode="r")
    if isinstance(group, zarr.Group):
        for _, array in group.arrays():
            yield np.asarray(array[...]).tobytes()
        yield json.dumps(dict(group.attrs), ensure_ascii=False, default=str).encode()
