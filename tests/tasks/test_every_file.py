"""Every file of every kind of artefact: one flipped bit is refused where it is read, and no file is open to others."""

import os
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd import MODEL as WORKER_MODEL
from pmflib.apps.crowd import PAIRS, WorkerModel, WorkerPairCounts, load_crowd_model, load_log_names
from pmflib.base import StoreError
from pmflib.counts import load_singles
from pmflib.ingest import (
    LEVELS_FILE,
    QUARANTINE,
    QUARANTINE_HASHES,
    Spill,
    chunks,
    read_part,
    read_spill_list,
    read_splits,
)
from pmflib.model import REFERENCE, ReferenceScores, ScoreOptions
from pmflib.store import (
    LEVEL_COUNTS,
    LIST_FILE,
    SAMPLES,
    Store,
    find_changes,
    iterate_blocks,
    list_blocks,
    list_dataset_blocks,
    read_arrays,
    read_checked,
    read_origins,
    read_partitions,
    read_sample_counts,
    read_superseded,
    verify_store,
)
from pmflib_flows.crowd import hand_over
from pmflib_tasks.config import make_config
from pmflib_tasks.crowd import find_labels, list_log_names, make_crowd, worker_pairs
from pmflib_tasks.crowd.crowd_model import crowd_model
from pmflib_tasks.crowd.worker_model import worker_model
from pmflib_tasks.questions.answer import answer
from pmflib_tasks.scoring.score import score
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.reference import reference
from pmflib_tasks.stages.refine import refine
from pmflib_tasks.stages.select import select
from tests.apps.crowd.label_logs import draw_log
from tests.pipelines import draw_codes, make_schema

SIZES = (3, 2, 4)
UNREAD = {"predictions", "answers", "scores", "rank"}
"""Kinds that nothing here reads: they are for people, and `pmf verify` checks them."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, workers):
    """Give a store with every kind of artefact, made under the usual mask of new files."""
    home = tmp_path_factory.mktemp("every file")
    mask = os.umask(0o022)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # the logs are in several chunks
            patch.setattr(chunks, "FILE_CHUNK_BYTES", 5000)
            _fit_log(home, workers)
            _label_log(home, workers)
        return Store(home / "store")
    finally:
        os.umask(mask)


def _fit_log(home, workers):
    codes = draw_codes(400, SIZES)
    (home / "log").mkdir()
    lines = [f"s{row},v{j},{codes[row, j]}" for row, j in np.argwhere(codes >= 0).tolist()]
    text = "\n".join(["who,what,answer", *lines, "s1,unheard,1", "s2,v0,9"])
    (home / "log" / "a.csv").write_text(text)
    (home / "asked.csv").write_text("who,what,answer\ns1,v0,1\ns2,v1,0\n")
    make_schema(*SIZES).save(home / "schema.json")
    source = {"layout": "long", "sample": "who", "variable": "what", "value": "answer"}
    config = make_config(
        {
            "source": {"path": "log", **source},
            "store": {"folds": 4},
            "model": {"rank": 2},
            "em": {"max_passes": 3},
        },
        base=home,
    )
    dataset = ingest.fn(config, workers)
    counts = count.fn(config, dataset, workers)
    model = refine.fn(config, dataset, counts, fit.fn(config, counts), workers)
    evaluate.fn(config, dataset, counts, model, workers)
    scale = reference.fn(config, dataset, model, workers)
    score.fn(config, dataset, model, scale, ScoreOptions(), 1, workers)
    answer.fn(config, dataset, model, str(home / "asked.csv"), workers)
    auto = make_config(
        {
            "source": {"path": "log", **source},
            "store": {"folds": 4},
            "model": {"rank": "auto"},
        },
        base=home,
    )
    select.fn(auto, dataset, counts, workers)


def _label_log(home, workers):
    table, _ = draw_log(np.random.default_rng(8), n_tasks=100, n_workers=5, n_classes=3, n_labels=4)
    (home / "labels").mkdir()
    columns = zip(*(table[name] for name in ("task", "worker", "label")), strict=True)
    lines = [f"t{task:03},w{worker},c{label}" for task, worker, label in columns]
    (home / "labels" / "a.csv").write_text("\n".join(["task,worker,label", *lines]))
    source = {"layout": "long", "sample": "task", "variable": "worker", "value": "label"}
    config = make_config(
        {
            "source": {"path": "labels", **source},
            "schema": {"file": "labels.json"},
            "store": {"folds": 4},
            "model": {"rank": 2},
            "em": {"max_passes": 5},
        },
        base=home,
    )
    config = config.model_copy(update={"crowd": make_crowd({"method": "robust"})})
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    pairs = worker_pairs.fn(config, dataset, workers)
    model = crowd_model.fn(config, dataset, pairs, workers)
    model = worker_model.fn(config, dataset, model, workers)
    find_labels.fn(config, dataset, model, workers)


def take_bytes(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


def read_artefact(store, reference, out):
    """Read an artefact by all that reads its kind; gives plain values that can be compared."""
    folder = store.locate(reference)
    found: list[object] = []
    if (folder / QUARANTINE).exists():
        found.append([batch.to_pylist() for batch in read_part(folder / QUARANTINE, None)])
    for name in (QUARANTINE_HASHES, LEVEL_COUNTS, LEVELS_FILE):
        if (folder / name).exists():
            found.append(read_checked(folder / name))
    match reference.kind:
        case "samples":
            path = folder / SAMPLES
            found += [read_origins(path)[1], read_sample_counts(path).tobytes()]
            for block in iterate_blocks(list_blocks(path)):
                found.append(
                    [value.tobytes() for value in vars(block).values() if value is not None]
                )
        case "spill":
            spill = Spill(folder, {})
            found += [
                spill.read_buckets(position, position + 1).to_pydict() for position in range(4)
            ]
            found.append(spill.read_keys().tobytes())
        case "spill-list":
            found.append(read_spill_list(store, reference))
        case "cuts":
            found.append(read_splits(store, reference))
        case "dataset":
            found += [read_partitions(store, reference), read_superseded(store, reference)]
            found.append(list_dataset_blocks(store, reference, range(4)))
        case "counts":
            counts = pmf.PairCounts.load(folder / "pairs")
            found += [counts.tables.tobytes(), counts.n_rows.tobytes()]
            found.append(load_singles(folder / "pairs").tobytes())
            found.append(take_bytes(read_arrays(folder / "pairs")[0]))
        case "start" | "model":
            model = pmf.JointPMF.load(folder / "model")
            found += [model.prior.tobytes(), model.factors.tobytes(), model.schema.digest]
        case "reference":
            found.append(take_bytes(read_arrays(folder / REFERENCE)[0]))
            found.append(ReferenceScores.load(folder / REFERENCE).origin)
        case "census":
            found.append(load_log_names(store, [reference]))
        case "worker-pairs":
            WorkerPairCounts.load(folder / PAIRS)
            found.append(take_bytes(read_arrays(folder / PAIRS)[0]))
        case "crowd-model":
            for path in sorted(folder.rglob("zarr.json")):
                if path.parent.parent == folder:
                    crowd, rng = load_crowd_model(path.parent)
                    found += [crowd.mass.tobytes(), crowd.states.tobytes(), rng.bytes(8)]
        case "worker-model":
            workers = WorkerModel.load(folder / WORKER_MODEL)
            held_out = [each.mass.tobytes() for each in workers.held_out.values()]
            found += [workers.model.mass.tobytes(), workers.model.states.tobytes(), *held_out]
            found += [
                workers.workers,
                workers.classes,
                take_bytes(read_arrays(folder / WORKER_MODEL)[0]),
            ]
        case "labels":
            hand_over(folder, out, out)
            found += [path.read_bytes() for path in sorted(out.rglob("*.parquet"))]
    return found


def list_kinds(store):
    return {entry.reference.kind: entry.reference for entry in store.entries()}


def test_store__has_every_kind(store):
    kinds = "cuts spill spill-list samples dataset counts start model scores reference predictions answers rank census"
    assert list_kinds(store).keys() >= {
        *kinds.split(), "source", "worker-pairs", "crowd-model", "labels"
    }  # fmt: skip
    assert verify_store(store).damages == ()


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_read__flipped_bit_is_never_taken_for_data(store, position, tmp_path):
    unread = []
    for entry in list(store.entries()):
        reference = entry.reference
        if not reference.path:
            continue
        folder = store.locate(reference)
        whole = read_artefact(store, reference, tmp_path)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if not content:
                continue
            flipped = bytearray(content)
            flipped[int(position * (len(content) - 1))] ^= 1
            path.write_bytes(flipped)
            name = f"{reference.path}/{path.relative_to(folder)}"
            try:
                if path.name == LIST_FILE:
                    with pytest.raises(StoreError, match=folder.name):
                        find_changes(folder)
                else:
                    assert find_changes(folder) == [path.relative_to(folder).as_posix()], name
                try:
                    assert read_artefact(store, reference, tmp_path) == whole, name
                    unread.append(path)
                except StoreError:
                    pass
            finally:
                path.write_bytes(content)
    # of other kinds, some bits of a chunk's frame, at its start and end, say nothing about its content, and the offsets
    # of models are not read, for they follow from the schema; nor are the magic bytes that open the Parquet of spills
    others = [path for path in unread if path.relative_to(store.root).parts[0] not in UNREAD]
    others = [path for path in others if "offsets" not in path.parts]
    others = [path for path in others if position or not path.match("spill/*/*.parquet")]
    assert [path for path in others if position == 0.5 or "c" not in path.parts] == []


def test_store__is_its_owners_alone(store):
    for path in (store.root, *store.root.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert path.stat().st_mode & 0o777 == expected, path


def test_store__that_its_owner_has_opened_stays_open(tmp_path):
    root = Path(tmp_path / "store")
    root.mkdir(0o750)
    root.chmod(0o750)

    def write(folder, work):
        (folder / "file").write_text("")
        (folder / "file").chmod(0o666)
        return {}

    store = Store(root)
    entry = store.build("thing", inputs={}, options={}, version=1, write=write)
    assert root.stat().st_mode & 0o777 == 0o750
    folder = store.locate(entry.reference)
    assert folder.stat().st_mode & 0o777 == 0o750
    assert (folder / "file").stat().st_mode & 0o777 == 0o640
