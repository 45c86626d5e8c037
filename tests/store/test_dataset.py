from dataclasses import asdict

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, StoreError
from pmflib.store import (
    SAMPLES,
    Reference,
    SampleWriter,
    Store,
    list_dataset_blocks,
    read_block,
    read_partitions,
    write_dataset,
)
from tests.reference import make_codes

SCHEMA = pmf.Schema.from_cardinalities([3, 2])


def build_partition(store, seed):
    def write(folder, work):
        codes = make_codes(np.random.default_rng(seed), 10, [3, 2])
        writer = SampleWriter(folder / SAMPLES, SCHEMA, sparse=False, block_rows=2)
        writer.append(DenseBlock(codes), np.arange(10) % 3, np.arange(10))
        return asdict(writer.close())

    return store.build(
        "samples", inputs={}, options={"seed": seed}, version=1, write=write
    ).reference


@pytest.fixture
def partitions(store):
    return [build_partition(store, seed) for seed in (5, 1, 3)]


@pytest.fixture
def dataset(store, partitions):
    def write(folder, work):
        write_dataset(folder, store, partitions, {"rows": 30})
        return {}

    inputs = {f"partition {n}": each for n, each in enumerate(partitions)}
    return store.build("dataset", inputs=inputs, options={}, version=1, write=write).reference


def test_read_partitions__in_the_order_they_were_given(store, partitions, dataset):
    assert read_partitions(store, dataset) == partitions


def test_list_dataset_blocks__of_the_folds_asked_for(store, partitions, dataset):
    everything = list_dataset_blocks(store, dataset, range(3))
    assert sum(each.n_rows for each in everything) == 30
    some = list_dataset_blocks(store, dataset, [2, 0])
    assert some == [each for each in everything if each.fold != 1]
    folders = [str((store.locate(each) / SAMPLES).resolve()) for each in partitions]
    assert [each.path for each in everything] == sorted(
        (each.path for each in everything), key=folders.index
    )
    assert list_dataset_blocks(store, dataset, []) == []


def test_list_dataset_blocks__paths_hold_wherever_a_worker_stands(
    store, dataset, tmp_path, monkeypatch
):
    monkeypatch.chdir(store.root)
    blocks = list_dataset_blocks(Store("."), dataset, [0])
    monkeypatch.chdir(tmp_path)
    assert read_block(blocks[0]).n_rows == 2


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", '{"partitions": [{"kind": "x"}]}', '{"partitions": 3}']
)
def test_read_partitions__refuses_a_damaged_dataset(store, dataset, content):
    file = store.locate(dataset) / "dataset.json"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(StoreError, match=r"dataset\.json. of artefact dataset/"):
        read_partitions(store, dataset)


def test_read_partitions__refuses_a_dataset_of_another_store(store):
    with pytest.raises(StoreError, match="dataset abc"):
        read_partitions(store, Reference("dataset", "i", "abc"))
