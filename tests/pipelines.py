"""Small pipelines for the tests of stages."""

from pathlib import Path

import numpy as np

import pmflib as pmf
from pmflib.store import RunRecord, Store, append_record, list_layers, now, read_block, read_origins
from pmflib_tasks.config import make_config
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine


def write_pipeline(folder, schema, source, /, **sections):
    """Write a schema into a folder with a folder of data; the configuration of a small pipeline there."""
    (folder / "data").mkdir(exist_ok=True)
    schema.save(folder / "schema.json")
    data = {
        "source": {"path": "data", "layout": "wide", **source},
        "store": {"folds": 4},
        "model": {"rank": 2},
        "em": {"max_passes": 5},
    }
    return make_config(data | sections, base=folder)


def change(config, **sections):
    """Copy a configuration with other options."""
    updated = {
        name: getattr(config, name).model_copy(update=options) for name, options in sections.items()
    }
    return config.model_copy(update=updated)


def store_of(config):
    return Store(config.resolve(config.store.path))


def load_model(config, reference):
    return pmf.JointPMF.load(store_of(config).locate(reference) / "model")


def record_night(config, stages):
    """Append the record of a run that made these stages."""
    record = RunRecord("run", "kept", "a night", now(), now(), "", stages)
    append_record(store_of(config), config.name, record)


def tree_bytes(folder):
    """Content of every file below a folder, by its path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def make_schema(*cardinalities):
    """Variables v0, v1, ... with levels "0", "1", ... that are their values."""
    return pmf.Schema(
        tuple(
            pmf.Variable(f"v{j}", tuple(map(str, range(n))), tuple(map(float, range(n))))
            for j, n in enumerate(cardinalities)
        )
    )


def draw_codes(n_rows, cardinalities, *, seed=0, missing=0.2):
    """Codes that hang together: a hidden coin decides which half of each variable's levels is likely."""
    rng = np.random.default_rng(seed)
    sizes = np.array(cardinalities)
    coin = rng.integers(0, 2, (n_rows, 1))
    likely = np.where(coin == 1, sizes - 1, 0)
    codes = np.where(
        rng.random((n_rows, sizes.size)) < 0.85,
        likely,
        rng.integers(0, sizes, (n_rows, sizes.size)),
    )
    codes[rng.random(codes.shape) < missing] = -1
    return codes


def as_wide(codes, names=None):
    """CSV text of codes, an empty field where missing; the first column names the samples if they have names."""
    header = [*(["id"] if names else []), *(f"v{j}" for j in range(codes.shape[1]))]
    lines = [",".join(header)]
    for place, row in enumerate(codes.tolist()):
        cells = ["" if code < 0 else str(code) for code in row]
        lines.append(",".join([names[place], *cells] if names else cells))
    return "\n".join(lines) + "\n"


def read_dataset(config, dataset):
    """Codes of all samples, in the order of partitions, and their identifiers."""
    store = store_of(config)
    codes, names = [], []
    offsets = make_offsets(config)
    for layer in list_layers(store, dataset):
        samples = read_origins(Path(layer.path))[1]
        for block in layer.blocks:
            codes.append(read_block(block).to_codes(offsets))
            names += [samples[row] for row in block.rows.tolist()]
    return np.concatenate(codes) if codes else np.empty((0, 0)), names


def make_offsets(config):
    return pmf.Schema.load(config.resolve("schema.json")).offsets


def summary_of(config, reference):
    entry = store_of(config).find(reference.identity)
    assert entry is not None
    return entry.summary


def run_to_model(config, workers):
    """References by stage, up to the model."""
    dataset = ingest.fn(config, workers)
    counts = count.fn(config, dataset, workers)
    start = fit.fn(config, counts)
    model = refine.fn(config, dataset, counts, start, workers)
    return {"dataset": dataset, "counts": counts, "start": start, "model": model}
