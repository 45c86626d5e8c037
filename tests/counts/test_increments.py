"""Counts found from those of earlier datasets equal those of all samples, bit for bit."""

import shutil
import tempfile
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, StoreError
from pmflib.counts import (
    PAIRS,
    CountsWriter,
    StoredTables,
    count_stored_changes,
    count_stored_pairs,
    increments,
    load_groups,
    load_shape,
    load_singles,
    plan_increment,
    zarr_tables,
)
from pmflib.counts.zarr_tables import CHANGES
from pmflib.store import (
    SAMPLES,
    SampleWriter,
    Store,
    list_dataset_blocks,
    read_arrays,
    read_blocks,
    write_dataset,
)
from tests.reference import make_codes, pair_table

N_FOLDS = 3
OPTIONS = {"folds": N_FOLDS}


class Replay:
    """A store, and datasets in it that come after each other."""

    def __init__(self, root, cardinalities, *, sparse):
        self.store = Store(root)
        self.cardinalities = cardinalities
        self.schema = pmf.Schema.from_cardinalities(cardinalities)
        self.sparse = sparse
        self.samples = {}
        self.n_built = 0

    def add_partition(self, codes, folds):
        """Publish samples as a partition."""

        def write(folder, work):
            rows = 4 if len(codes) < 100 else 128
            writer = SampleWriter(
                folder / SAMPLES, self.schema, sparse=self.sparse, block_rows=rows
            )
            writer.append(DenseBlock(codes), folds, np.arange(len(codes)))
            return asdict(writer.close())

        self.n_built += 1
        options = {"number": self.n_built}
        made = self.store.build("samples", inputs={}, options=options, version=1, write=write)
        # rows of a partition are in the order of blocks: fold by fold where it has few
        order = np.concatenate([read_rows(self.store, made.reference), np.empty(0, int)])
        self.samples[made.reference] = codes[order.astype(int)], folds[order.astype(int)]
        return made.reference

    def make_dataset(self, partitions, superseded):
        """Publish a dataset."""

        def write(folder, work):
            write_dataset(folder, self.store, partitions, {}, superseded)
            return {}

        self.n_built += 1
        inputs = {f"{n}": each for n, each in enumerate(partitions)}
        options = {"number": self.n_built}
        return self.store.build(
            "dataset", inputs=inputs, options=options, version=1, write=write
        ).reference

    def count(self, dataset, base=None, client=None):
        """Count as the stage does, from a base if that can be; the entry of the counts."""
        increment = plan_increment(self.store, dataset, base, OPTIONS, 1) if base else None

        def write(folder, work):
            if increment:
                return count_stored_changes(client, increment, folder / PAIRS, work)
            blocks = {
                fold: list_dataset_blocks(self.store, dataset, [fold]) for fold in range(N_FOLDS)
            }
            writer = CountsWriter(folder / PAIRS, self.schema, N_FOLDS)
            count_stored_pairs(client, blocks, writer, work)
            writer.close()
            return {}

        inputs = {"dataset": dataset} | ({"base": increment.counts} if increment else {})
        return self.store.build("counts", inputs=inputs, options=OPTIONS, version=1, write=write)

    def path(self, counts):
        return self.store.locate(counts) / PAIRS

    def recount(self, partitions, superseded):
        """Tables and numbers of samples by a loop over the samples, and which cells each holds."""
        tables = np.zeros((N_FOLDS, self.schema.n_levels, self.schema.n_levels), np.int64)
        n_rows = np.zeros(N_FOLDS, np.int64)
        for index, partition in enumerate(partitions):
            codes, folds = self.samples[partition]
            kept = np.ones(len(codes), bool)
            kept[superseded.get(index, [])] = False
            for fold in range(N_FOLDS):
                mine = codes[kept & (folds == fold)]
                tables[fold] += pair_table(mine, self.cardinalities)
                n_rows[fold] += len(mine)
        return tables, n_rows


def read_rows(store, partition):
    return read_arrays(store.locate(partition) / SAMPLES, ["row"])[0]["row"]


def check(replay, path, tables, n_rows):
    """Everything that reads counts reads those of a full recount."""
    loaded = pmf.PairCounts.load(path)
    assert np.array_equal(loaded.tables, tables)
    assert loaded.tables.dtype == np.int64
    assert np.array_equal(loaded.n_rows, n_rows)
    schema, n_folds = load_shape(path)
    assert (schema, n_folds) == (replay.schema, N_FOLDS)
    subsets = [s for size in range(N_FOLDS + 1) for s in combinations(range(N_FOLDS), size)]
    for folds in subsets:
        total = pmf.PairCounts.load_total(path, folds=folds)
        assert np.array_equal(total.tables[0], tables[list(folds)].sum(axis=0))
        assert total.n_rows.tolist() == [n_rows[list(folds)].sum()]
        singles = np.diagonal(total.tables[0])
        assert np.array_equal(load_singles(path, folds=folds), singles)
    grouped = load_groups(path, subsets)
    assert np.array_equal(grouped.tables, [tables[list(folds)].sum(axis=0) for folds in subsets])
    with tempfile.TemporaryDirectory() as name:
        pmf.PairCounts(schema, tables, n_rows).save(Path(name) / PAIRS)
        full = read_arrays(Path(name) / PAIRS)[0]
    mine = read_arrays(path, ["samples", "singles", "support", "offsets"])[0]
    assert all(np.array_equal(mine[name], full[name]) for name in mine)


def draw_partition(replay, rng, n_rows):
    """Samples of which some folds may have none."""
    codes = make_codes(rng, n_rows, replay.cardinalities)
    folds = rng.choice(rng.permutation(N_FOLDS)[: rng.integers(1, N_FOLDS + 1)], n_rows)
    return replay.add_partition(codes, folds)


def change_dataset(replay, rng, partitions, superseded):
    """Add, drop or repeat a partition, or let some rows go or come back."""
    partitions, superseded = list(partitions), dict(superseded)
    move = rng.choice(["add", "add", "empty", "drop", "repeat", "supersede", "restore"])
    index = int(rng.integers(len(partitions))) if partitions else 0
    if move in ("add", "empty") or not partitions:
        partitions.append(draw_partition(replay, rng, 0 if move == "empty" else rng.integers(1, 4)))
    elif move == "drop":
        partitions.pop(index)
        superseded = {p - (p > index): rows for p, rows in superseded.items() if p != index}
    elif move == "repeat":
        partitions.append(partitions[index])
    size = len(replay.samples[partitions[index]][0]) if index < len(partitions) else 0
    if move in ("supersede", "restore") and size:
        before = superseded.get(index, np.empty(0, np.int64))
        rows = rng.choice(size, min(size, 2), replace=False)
        keep = np.setdiff1d if move == "restore" else np.union1d
        superseded[index] = keep(before, rows).astype(np.int64)
    return partitions, superseded


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("cardinalities", [[5, 5], [1, 3, 1], [3] * 8], ids=["two", "one", "eight"])
def test_counts__equal_a_full_recount_after_every_change(
    tmp_path, cardinalities, sparse, monkeypatch
):
    monkeypatch.setattr(zarr_tables, "MAX_DIFFERENCES", 3)
    rng = np.random.default_rng([sparse, len(cardinalities)])
    replay = Replay(tmp_path / "store", cardinalities, sparse=sparse)
    partitions = [draw_partition(replay, rng, 60), draw_partition(replay, rng, 30)]
    superseded = {}
    dataset = replay.make_dataset(partitions, superseded)
    counts = replay.count(dataset)
    lengths = []
    for _ in range(9):
        partitions, superseded = change_dataset(replay, rng, partitions, superseded)
        base = dataset, counts.reference
        dataset = replay.make_dataset(partitions, superseded)
        counts = replay.count(dataset, base)
        check(replay, replay.path(counts.reference), *replay.recount(partitions, superseded))
        lengths.append(counts.summary.get("differences", 0))
    # chains have grown, and have been flattened
    assert max(lengths) >= 2
    assert 0 in lengths[int(np.argmax(lengths)) :] or max(lengths) == 3


def make_large(tmp_path, *, sparse=False):
    """Counts of many cells, and a dataset of one sample more and one less."""
    replay = Replay(tmp_path / "store", [10] * 50, sparse=sparse)
    rng = np.random.default_rng(0)
    codes = make_codes(rng, 900, replay.cardinalities)
    first = replay.add_partition(codes, np.arange(900) % N_FOLDS)
    dataset = replay.make_dataset([first], {})
    more = replay.add_partition(codes[:1], np.zeros(1, int))
    changed = [first, more], {0: np.array([17])}
    return replay, (dataset, replay.count(dataset).reference), changed


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("sparse", [False, True])
def test_counts__a_small_change_takes_little_room(tmp_path, sparse):
    replay, base, (partitions, superseded) = make_large(tmp_path, sparse=sparse)
    counts = replay.count(replay.make_dataset(partitions, superseded), base).reference
    path = replay.path(counts)
    check(replay, path, *replay.recount(partitions, superseded))
    full = size_of(replay.path(base[1]) / "counts")
    changed = (path.parent / CHANGES).stat().st_size
    assert changed < full / 10
    # 2,550 cells: a sample of 50 variables has 1,275 pairs
    assert changed < 8_000


def test_counts__of_workers_and_of_this_thread_are_the_same(tmp_path, thread_client):
    digests = []
    for index, client in enumerate((None, thread_client)):
        replay, base, changed = make_large(tmp_path / str(index))
        digests.append(replay.count(replay.make_dataset(*changed), base, client).reference.digest)
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("is_large", "read_at_once"), [(False, [2]), (True, [])])
def test_counts__a_large_change_is_not_read_as_a_whole(
    tmp_path, monkeypatch, is_large, read_at_once
):
    replay, base, changed = make_large(tmp_path)
    sizes: list[int] = []

    def note(blocks):
        sizes.append(len(blocks))
        return read_blocks(blocks)

    monkeypatch.setattr(increments, "read_blocks", note)
    # an erasure counts such changes in this thread as well
    monkeypatch.setattr(increments, "needs_workers", lambda change: is_large)
    counts = replay.count(replay.make_dataset(*changed), base).reference
    check(replay, replay.path(counts), *replay.recount(*changed))
    # one block that comes, and one of which a sample goes
    assert sizes == read_at_once


@pytest.mark.parametrize("flat", [False, True])
def test_counts__killed_in_between_go_on_to_the_same_bits(tmp_path, monkeypatch, flat):
    if flat:
        monkeypatch.setattr(zarr_tables, "MAX_DIFFERENCES", 0)
    replay, base, (partitions, superseded) = make_large(tmp_path)
    superseded[0] = np.arange(0, 899, 40)
    dataset = replay.make_dataset(partitions, superseded)
    undisturbed = replay.count(dataset, base)
    assert (undisturbed.summary["differences"] == 0) == flat
    (replay.store.root / "manifest" / f"{undisturbed.reference.identity}.json").unlink()

    original_save = increments.save_changes  # type: ignore[attr-defined]
    saved, counted = [], []

    def save_one(path, changes):
        if saved:
            raise KeyboardInterrupt
        original_save(path, changes)
        saved.append(path.name)

    def save(path, changes):
        original_save(path, changes)
        counted.append(path.name)

    monkeypatch.setattr(increments, "save_changes", save_one)
    with pytest.raises(KeyboardInterrupt):
        replay.count(dataset, base)
    monkeypatch.setattr(increments, "save_changes", save)
    assert replay.count(dataset, base) == undisturbed
    # the first fold was not counted again
    assert (saved, counted) == (["fold-0.npz"], ["fold-1.npz", "fold-2.npz"])


def test_plan_increment__counts_all_where_the_base_is_of_no_use(tmp_path):
    replay, (earlier, counts), changed = make_large(tmp_path)
    dataset = replay.make_dataset(*changed)

    def plan(base, options=OPTIONS, version=1):
        return plan_increment(replay.store, dataset, base, options, version)

    increment = plan((earlier, counts))
    assert [block.n_rows for block in increment.change.added] == [1]
    assert [block.n_rows for block in increment.change.removed] == [1]
    assert plan((earlier, counts), {"folds": 4}) is None
    assert plan((earlier, counts), version=2) is None
    # counts of another dataset than the one named
    assert plan((dataset, counts)) is None
    # more goes than stays
    small = replay.make_dataset(
        [replay.add_partition(np.zeros((3, 50), int), np.zeros(3, int))], {}
    )
    assert plan_increment(replay.store, small, (earlier, counts), OPTIONS, 1) is None
    # what went is no longer there
    partition = next(iter(replay.samples))
    folder = replay.store.locate(partition)
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(StoreError):
        plan((earlier, counts))
    only = replay.make_dataset(changed[0][1:], {})
    assert plan_increment(replay.store, only, (earlier, counts), OPTIONS, 1) is None


def test_load__without_the_base_says_what_to_do(tmp_path):
    replay, base, changed = make_large(tmp_path)
    dataset = replay.make_dataset(*changed)
    counts = replay.count(dataset, base).reference
    path = replay.path(counts)
    assert StoredTables(path).chain.digests == (base[1].digest,)
    folder = replay.store.locate(base[1])
    folder.rename(folder.with_name("elsewhere"))
    for load in (pmf.PairCounts.load, pmf.PairCounts.load_total):
        with pytest.raises(StoreError, match="run"):
            load(path)
    # what needs no tables needs no base, and the next run counts all samples
    assert load_singles(path).sum() > 0
    assert load_shape(path)[1] == N_FOLDS
    assert plan_increment(replay.store, dataset, (dataset, counts), OPTIONS, 1) is None


def test_count__refuses_to_fall_below_zero(tmp_path):
    replay, (earlier, counts), _ = make_large(tmp_path)
    rng = np.random.default_rng(1)
    others = replay.add_partition(make_codes(rng, 40, replay.cardinalities), np.zeros(40, int))
    increment = plan_increment(
        replay.store, replay.make_dataset([others], {}), (earlier, counts), OPTIONS, 1
    )
    assert increment is None
    dataset = replay.make_dataset([next(iter(replay.samples))], {0: np.arange(3)})
    increment = plan_increment(replay.store, dataset, (earlier, counts), OPTIONS, 1)
    # samples that go twice
    twice = (*increment.change.removed,) * 350
    object.__setattr__(increment.change, "removed", twice)
    with pytest.raises(StoreError):
        count_stored_changes(None, increment, tmp_path / "a" / PAIRS, tmp_path / "work")


def copy_unsealed(replay, counts, folder):
    """Copy counts to where no list of digests is: what they check themselves is left."""
    ignore = shutil.ignore_patterns(".digests")
    shutil.copytree(replay.store.root / "counts", folder / "counts", ignore=ignore)
    return folder / "counts" / replay.path(counts).parent.name / PAIRS


def test_load__refuses_to_fall_below_zero(tmp_path):
    replay, base, changed = make_large(tmp_path)
    counts = replay.count(replay.make_dataset(*changed), base).reference
    path = copy_unsealed(replay, counts, tmp_path / "copy")
    # the difference is added to counts of no samples
    full = path.parents[1] / replay.path(base[1]).parent.name / PAIRS
    shutil.rmtree(full)
    pmf.PairCounts.zero(replay.schema, N_FOLDS).save(full)
    with pytest.raises(StoreError):
        pmf.PairCounts.load(path)
    assert load_singles(path).min() >= 0


@pytest.mark.parametrize("damage", ["byte", "short", "gone"])
def test_load__refuses_damaged_changes(tmp_path, damage):
    replay, base, changed = make_large(tmp_path)
    counts = replay.count(replay.make_dataset(*changed), base).reference
    path = copy_unsealed(replay, counts, tmp_path / "copy")
    file = path.parent / CHANGES
    content = bytearray(file.read_bytes())
    if damage == "byte":
        content[60] ^= 1
        file.write_bytes(content)
    elif damage == "short":
        file.write_bytes(content[:50])
    else:
        file.unlink()
    with pytest.raises(StoreError):
        pmf.PairCounts.load_total(path)
