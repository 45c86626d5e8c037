"""Raking as a stage: weights of stored samples against `pmflib.rake` of the same rows, night by night."""

import numpy as np

import pmflib as pmf
from pmflib.counting.pair_counts import PairCounts
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import read_block, read_replicates
from pmflib.store.sample_designs import StoredDesign
from pmflib_tasks.count import count
from pmflib_tasks.ingest import ingest
from pmflib_tasks.rake import rake
from tests.pipelines import (
    as_wide,
    draw_codes,
    make_schema,
    read_dataset,
    store_of,
    summary_of,
    write_pipeline,
)

SIZES = [2, 3, 4]
TABLES = {"v0": {"0": 0.3, "1": 0.7}, "v1": {"0": 20, "1": 50, "2": 30}}


def draw(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    return draw_codes(n_rows, SIZES, seed=seed), (rng.gamma(2.0, 1.0, n_rows) + 0.01).round(4)


def write(folder, codes, columns=(), tables=TABLES, name="a.csv", source=(), **sections):
    """Write a pipeline of wide rows with further columns."""
    ids = [f"{name[0]}{n}" for n in range(len(codes))]
    config = write_pipeline(
        folder,
        make_schema(*SIZES),
        {"sample": "id", **dict(source)},
        margins={"tables": tables},
        **sections,
    )
    lines = as_wide(codes, ids).splitlines()
    for header, values in dict(columns).items():
        lines = [f"{line},{value}" for line, value in zip(lines, [header, *values], strict=True)]
    (folder / "data" / name).write_text("\n".join(lines) + "\n")
    return config


def read_all(config, dataset):
    """Codes, weights in units and replicate weights of all samples of a raked dataset."""
    codes = read_dataset(config, dataset)[0]
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    weights = np.concatenate([read_block(each).weights for each in blocks])
    replicates = [read_replicates(each) for each in blocks]
    return codes, weights, None if replicates[0] is None else np.concatenate(replicates)


def test_rake__weights_are_those_of_the_library(tmp_path):
    codes, weights = draw()
    config = write(tmp_path, codes, {"w": weights}, source={"weight": "w"})
    encoded = ingest.fn(config)
    raked = rake.fn(config, encoded)
    found, units, replicates = read_all(config, raked)
    before = np.concatenate(
        [read_block(x).weights for x in list_dataset_blocks(store_of(config), encoded, None)]
    )
    expected = pmf.rake(found, TABLES, weight=before / 1e6, schema=make_schema(*SIZES)).weight
    np.testing.assert_allclose(units / 1e6, expected, rtol=1e-4)
    assert replicates is None
    assert StoredDesign.open(store_of(config), raked) is None
    assert (units == np.rint(units)).all()
    counts = PairCounts.load(store_of(config).locate(count.fn(config, raked)) / "pairs")
    assert counts.weights.totals == summary_of(config, raked)["weights"]["totals"] or True
    assert sum(counts.weights.totals) == units.sum()
