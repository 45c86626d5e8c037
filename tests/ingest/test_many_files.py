"""Many files and many buckets: neither tasks nor entries grow with their product."""

from itertools import pairwise

import numpy as np

from pmflib.ingest import Spill, build_dataset
from pmflib.ingest.dataset import assembly
from pmflib.ingest.dataset.identifiers import LEAST_GROUPS
from pmflib.store import Store, list_layers, trace
from pmflib_tasks.config import make_config
from tests.ingest.test_layered_datasets import LAYOUTS, SCHEMA, describe, draw_file


def build(folder, buckets):
    sections = {
        "source": {"path": "data", **LAYOUTS["timed"]},
        "store": {"folds": 4, "buckets": buckets},
        "model": {"rank": 2},
    }
    store = Store(folder / f"store-{buckets}")
    return store, build_dataset(
        None, store, make_config(sections, base=folder).dataset_options, SCHEMA
    )


def test_build_dataset__small_buckets_are_assembled_together(tmp_path, monkeypatch):
    rng, n_files = np.random.default_rng(7), 6
    (tmp_path / "data").mkdir()
    for number in range(n_files):
        (tmp_path / "data" / f"{number}.csv").write_text(draw_file(rng, "timed", 20))
    few = build(tmp_path, 4)
    opened = []

    def note(folder, *of):
        opened.append(folder)
        return Spill(folder, *of)

    monkeypatch.setattr(assembly, "Spill", note)
    store, dataset = build(tmp_path, 400)
    # bucket modulo folds is the same for both numbers
    assert describe(store, dataset) == describe(*few)
    assert (len(opened), len(set(opened))) == (n_files * LEAST_GROUPS, n_files)
    layers = list_layers(store, dataset.reference)
    assert len(layers) == LEAST_GROUPS
    assert all(a.last_key + 1 == b.first_key for a, b in pairwise(layers))
    for layer in layers:
        assert list(store.find(layer.partition.identity).inputs) == ["spills"]
    found = [step.reference.kind for step in trace(store, dataset.reference) if not step.again]
    assert found.count("spill-list") == 1
    assert found.count("source") == found.count("spill") == n_files
