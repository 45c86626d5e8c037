"""A dataset built upon an earlier one holds what one built afresh holds."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.ingest import build_dataset, chunks, export_quarantine, find_sample
from pmflib.ingest.dataset import layering
from pmflib.store import (
    RunRecord,
    Store,
    append_record,
    collect,
    list_file_steps,
    list_layers,
    read_block,
    read_origins,
    read_sampling_units,
    verify_store,
)
from pmflib_tasks.config import make_config

SCHEMA = pmf.Schema(tuple(pmf.Variable(name, ("1", "2", "3")) for name in ("a", "b", "c")))
LONG = {"layout": "long", "sample": "who", "variable": "what", "value": "said", "time": "ts"}
LAYOUTS = {
    "long": {key: value for key, value in LONG.items() if key != "time"},
    "timed": LONG,
    "window": LONG,
    "weighted": LONG | {"weight": "w", "stratum": "area", "psu": "school"},
    "wide": {"layout": "wide", "sample": "who"},
    "nameless": {"layout": "wide"},
}
HEADERS = {"long": "who,what,said", "timed": "who,what,said,ts", "wide": "who,a,b,c"}
HEADERS |= {
    "weighted": "who,what,said,ts,w,area,school",
    "nameless": "a,b,c",
    "window": HEADERS["timed"],
}
DAY = 86_400


def configure(folder, layout, **policy):
    return make_config(
        {
            "source": {"path": "data", **LAYOUTS[layout]},
            "schema": policy,
            "window": {"days": 4} if layout == "window" else {},
            "store": {"folds": 2, "buckets": 0 if layout == "nameless" else 4},
            "model": {"rank": 2},
            "evaluate": {"test_folds": 0},
        },
        base=folder,
    )


def draw_file(rng, layout, n_rows, step=0):
    """Text of a file: few samples, so that they meet in several files; some rows do not fit."""
    lines = [HEADERS[layout]]
    for _ in range(n_rows):
        who, said = f"s{rng.integers(25)}", str(rng.choice(list("123 9")))
        answers = ",".join(rng.choice(list("123 "), 3)).replace(" ", "")
        lines.append(
            {
                "long": f"{who},{rng.choice(list('abcd'))},{said.strip()}",
                "timed": f"{who},{rng.choice(list('abc'))},{said.strip()},{rng.integers(6)}",
                "window": f"{who},{rng.choice(list('abc'))},{said.strip()},"
                f"{(step + rng.integers(6)) * DAY + rng.integers(9)}",
                # most rows of a sample agree on its weight and unit
                "weighted": f"{who},{rng.choice(list('abcd'))},{said.strip()},{rng.integers(6)},"
                f"{rng.choice(['2.5', '2.5', '2.5', '0', '7'])},x,{who[-1] if rng.random() < 0.9 else 'y'}",
                "wide": f"{who if rng.random() > 0.1 else ''},{answers}",
                "nameless": answers + (",1" if rng.random() < 0.1 else ""),
            }[layout]
        )
    return "\n".join(lines) + "\n"


def describe(store, dataset):
    """What a dataset holds: codes and fold by identifier (or how often), and rejected rows."""
    samples = []
    for layer in list_layers(store, dataset.reference):
        names = read_origins(Path(layer.path))[1]
        for block in layer.blocks:
            read = read_block(block)
            codes, units = read.to_codes(SCHEMA.offsets), read_sampling_units(block)
            assert block.n_observed == np.count_nonzero(codes >= 0)
            assert len(codes) == block.n_rows > 0
            drawn = [()] * len(codes)
            if read.weights is not None:
                drawn = list(zip(read.weights, *units.T, strict=True))
                assert sum(block.weights.totals) == read.weights.sum()
            for row, each, how in zip(block.rows.tolist(), codes.tolist(), drawn, strict=True):
                samples.append((names[row], tuple(each), block.fold, how))
    out = store.root / "rejected.parquet"
    n_rows = export_quarantine(store, dataset.reference, out)
    rejected = [tuple(row.values()) for row in pq.read_table(out).to_pylist()]
    account = {key: value for key, value in dataset.summary.items() if key != "blocks"}
    assert n_rows == account["rows_quarantined"]
    assert len(samples) == account["samples"]
    return Counter(samples), Counter(rejected), account


def change_files(folder, rng, layout, step):
    """Add, change or remove some files; at least one is left."""
    files = sorted(folder.iterdir())
    for _ in range(rng.integers(0, 3)):
        match rng.integers(4):
            case 0 if len(files) > 1:
                files.pop(rng.integers(len(files))).unlink()
            case 1 if files:
                files[rng.integers(len(files))].write_text(draw_file(rng, layout, 12, step))
            case 2 if files:
                chosen = files.pop(rng.integers(len(files)))
                files.append(chosen.rename(folder / f"{rng.integers(10)}-{step}-{chosen.name}"))
            case _:
                files.append(folder / f"{rng.integers(10)}-{step}.csv")
                files[-1].write_text(draw_file(rng, layout, 12, step))
    if not files:
        (folder / "first.csv").write_text(draw_file(rng, layout, 30, step))


def check_steps(folder, seed, layout, n_steps, chunk=chunks.FILE_CHUNK_BYTES):
    """Change the files a few times; after each change compare the dataset with a fresh one of whole files."""
    rng = np.random.default_rng(seed)
    (folder / "data").mkdir()
    keep = ("last", "first")[seed % 2]
    config, store = configure(folder, layout, on_duplicate=keep), Store(folder / "store")
    base = None
    for step in range(n_steps):
        change_files(folder / "data", rng, layout, step)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "FILE_CHUNK_BYTES", chunk)
            dataset = build_dataset(None, store, config.dataset_options, SCHEMA, base=base)
        fresh_store = Store(folder / f"fresh-{step}")
        fresh = build_dataset(None, fresh_store, config.dataset_options, SCHEMA)
        assert describe(store, dataset) == describe(fresh_store, fresh)
        base = dataset.reference


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_build_upon__equals_a_fresh_dataset(tmp_path, layout):
    check_steps(tmp_path, 5, layout, 3)


@pytest.mark.parametrize("layout", ["timed", "wide", "nameless"])
def test_build_upon__of_chunks_equals_a_fresh_dataset_of_whole_files(tmp_path, layout):
    check_steps(tmp_path, 6, layout, 3, chunk=100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_build_upon__equals_a_fresh_dataset_after_many_changes(tmp_path, monkeypatch, layout, seed):
    monkeypatch.setattr(layering, "MOST_LAYERS", (1, 2, 32)[seed % 3])
    monkeypatch.setattr(layering, "PART_ROWS", (5, 1 << 20)[seed // 2 % 2])
    check_steps(tmp_path, seed, layout, 6)


def test_build_upon__costs_what_has_changed(tmp_path, monkeypatch):
    config, store = configure(tmp_path, "long"), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    for n in range(3):
        rows = "".join(f"s{n}-{k},a,1\n" for k in range(40))
        (tmp_path / "data" / f"{n}.csv").write_text(f"who,what,said\n{rows}")
    first = build_dataset(None, store, config.dataset_options, SCHEMA)
    assert build_dataset(None, store, config.dataset_options, SCHEMA, base=first.reference) == first
    (tmp_path / "data" / "3.csv").write_text("who,what,said\ns0-0,b,2\nnew,a,3\n")
    second = build_dataset(None, store, config.dataset_options, SCHEMA, base=first.reference)
    before = list_layers(store, first.reference)
    after = list_layers(store, second.reference)
    assert [layer.partition for layer in after[:-1]] == [layer.partition for layer in before]
    assert after[-1].n_rows == 2
    assert sum(layer.superseded.size for layer in after) == 1
    assert second.inputs["base"] == first.reference


@pytest.mark.slow
def test_build_upon__worn_partitions_are_written_again(tmp_path):
    config, store = configure(tmp_path, "long"), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    base = None
    for day in range(12):
        # the same samples every day, and some of their own
        rows = "".join(f"s{k},{'abc'[day % 3]},{day % 3 + 1}\n" for k in range(day, day + 20))
        (tmp_path / "data" / f"{day:02}.csv").write_text(f"who,what,said\n{rows}")
        base = build_dataset(None, store, config.dataset_options, SCHEMA, base=base).reference
        layers = list_layers(store, base)
        live = sum(layer.n_rows for layer in layers)
        assert live == 20 + day
        assert sum(layer.superseded.size for layer in layers) <= live


def test_build_upon__another_schema_or_layout_starts_afresh(tmp_path):
    config, store = configure(tmp_path, "long"), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("who,what,said\ns,a,1\n")
    base = build_dataset(None, store, config.dataset_options, SCHEMA).reference
    (tmp_path / "data" / "b.csv").write_text("who,what,said\ns,b,1\n")
    other = configure(tmp_path, "long", on_duplicate="first")
    for changed, schema in ((other, SCHEMA), (config, pmf.Schema(SCHEMA.variables[:2]))):
        entry = build_dataset(None, store, changed.dataset_options, schema, base=base)
        assert "base" not in entry.inputs
        assert entry.summary["samples"] == 1


@pytest.mark.parametrize("part", ["rows-00.parquet", "spill.json"])
def test_build_upon__a_flipped_bit_in_a_spill_is_noticed(tmp_path, part):
    config, store = configure(tmp_path, "timed"), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        rows = "".join(f"s{k},{name},1,{k}\n" for k in range(50))
        (tmp_path / "data" / f"{name}.csv").write_text(f"who,what,said,ts\n{rows}")
    base = build_dataset(None, store, config.dataset_options, SCHEMA)
    rows = "".join(f"s{k},c,1,{k}\n" for k in range(50))
    (tmp_path / "data" / "c.csv").write_text(f"who,what,said,ts\n{rows}")
    file = store.locate(list_file_steps(store, base.reference)[0].step) / part
    content = file.read_bytes()
    shutil.copytree(store.root, tmp_path / "copy")
    copy = Store(tmp_path / "copy")
    whole = build_dataset(None, copy, config.dataset_options, SCHEMA, base=base.reference)
    n_refused = 0
    for position in np.random.default_rng(0).integers(0, len(content), 12).tolist():
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(bytes(damaged))
        try:
            entry = build_dataset(None, store, config.dataset_options, SCHEMA, base=base.reference)
        except StoreError:
            n_refused += 1
        else:
            # statistics in the header of a page are not read
            assert entry == whole
            for reference in (entry.reference, list_layers(store, entry.reference)[-1].partition):
                shutil.rmtree(store.locate(reference))
    assert n_refused > 6
    file.write_bytes(content)
    entry = build_dataset(None, store, config.dataset_options, SCHEMA, base=base.reference)
    assert entry.summary["rows_in"] == 150


@pytest.mark.parametrize("layout", ["timed", "window", "wide"])
def test_build__a_lost_spill_is_made_again_and_the_next_dataset_is_as_it_would_have_been(
    tmp_path, layout
):
    rng = np.random.default_rng(5)
    files = [draw_file(rng, layout, 40, step) for step in range(4)]

    def build_nights(folder, lost):
        (folder / "data").mkdir(parents=True)
        config, store = configure(folder, layout), Store(folder / "store")
        base = None
        for night, text in enumerate(files):
            (folder / "data" / f"{night}.csv").write_text(text)
            if night == lost:
                spill = list_file_steps(store, base)[1].step
                shutil.rmtree(store.locate(spill))
            base = build_dataset(None, store, config.dataset_options, SCHEMA, base=base).reference
        return base.digest

    whole = build_nights(tmp_path / "whole", None)
    assert build_nights(tmp_path / "lost", 3) == whole


def test_build__spills_take_less_than_half_of_the_raw_file(tmp_path):
    rng, n_rows = np.random.default_rng(1), 30_000
    config, store = configure(tmp_path, "timed"), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    draws = zip(
        rng.integers(0, 2000, n_rows).tolist(),
        rng.integers(0, 3, (n_rows, 2)).tolist(),
        rng.integers(10**9, 10**9 + 10**7, n_rows).tolist(),
        strict=True,
    )
    lines = [f"user-{who:06},{'abc'[what]},{said + 1},{ts}\n" for who, (what, said), ts in draws]
    (tmp_path / "data" / "a.csv").write_text("who,what,said,ts\n" + "".join(lines))
    dataset = build_dataset(None, store, config.dataset_options, SCHEMA)
    (step,) = list_file_steps(store, dataset.reference)
    n_bytes = sum(path.stat().st_size for path in store.locate(step.step).iterdir())
    quarantine = store.locate(step.step) / "quarantine.parquet"
    n_raw = (tmp_path / "data" / "a.csv").stat().st_size
    assert n_bytes - quarantine.stat().st_size < 0.5 * n_raw


@pytest.mark.parametrize("layout", ["timed", "wide"])
def test_build_upon__a_file_that_is_again_what_it_was_before_its_rows_were_collected(
    tmp_path, layout
):
    rng = np.random.default_rng(7)
    config, store = configure(tmp_path, layout), Store(tmp_path / "store")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text(draw_file(rng, layout, 40))
    changing, texts = tmp_path / "data" / "b.csv", [draw_file(rng, layout, 40) for _ in range(2)]
    base, described = None, []
    for text in (*texts, texts[0]):
        changing.write_text(text)
        entry = build_dataset(None, store, config.dataset_options, SCHEMA, base=base)
        described.append(describe(store, entry))
        if base is None:
            first = entry
        base = entry.reference
        record = RunRecord("run", "kept", "", "then", "now", "", {"dataset": base})
        append_record(store, "p", record)
        collect(store, 9, older_than=0)
        (tmp_path / "store" / "rejected.parquet").unlink()
        assert verify_store(store).damages == ()
        # what else is said of the earlier run stays
        assert describe(store, first) == described[0]
    assert described[2][:2] == described[0][:2]
    (spill,) = [s.step for s in list_file_steps(store, first.reference) if s.name == "b.csv"]
    assert store.find_before(spill.identity) is not None
    changing.write_text(texts[1])
    base = build_dataset(None, store, config.dataset_options, SCHEMA, base=base).reference
    append_record(store, "p", replace(record, stages={"dataset": base}))
    collect(store, 9, older_than=0)
    with pytest.raises(StoreError, match="its file has changed since"):
        find_sample(store, first.reference, "s1")
