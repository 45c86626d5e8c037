"""What a store holds after an erasure is what it would hold had it never seen the samples."""

import csv
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.cluster import ClusterMemory
from pmflib.ingest import DatasetAccount, chunks
from pmflib.store import (
    RunRecord,
    Store,
    append_record,
    collect,
    find_last_run,
    is_needed,
    keep_page,
    list_collected_runs,
    list_erased,
    list_file_steps,
    now,
    read_erasures,
    verify_store,
)
from pmflib_tasks.erasure.erase import erase
from pmflib_tasks.report import gather_data
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.ingest.test_layered_datasets import (
    SCHEMA,
    change_files,
    configure,
    describe,
    draw_file,
)

PARTS = ("spill", "samples", "dataset", "counts")


class Pipeline:
    """Nights of ingest and count, each of which leaves a record."""

    def __init__(self, folder, layout, **policy):
        folder.mkdir(exist_ok=True)
        (folder / "data").mkdir(exist_ok=True)
        self.folder, self.data = folder, folder / "data"
        SCHEMA.save(folder / "schema.json")
        self.config = configure(folder, layout, **policy)
        self.store = Store(folder / "store")

    def run(self):
        """Dataset and counts of a night."""
        last = find_last_run(self.store, self.config.name)
        base = {} if last is None else last.stages
        dataset = ingest.fn(self.config, "none", base=base.get("dataset"))
        counts = count.fn(
            self.config, dataset, "none", (base["dataset"], base["counts"]) if base else None
        )
        stages = {"dataset": dataset, "counts": counts}
        time = now()
        record = RunRecord("run", "kept", "a night", time, time, "", stages)
        append_record(self.store, self.config.name, record)
        return self.last()

    def last(self):
        stages = find_last_run(self.store, self.config.name).stages
        return self.store.find(stages["dataset"].identity), self.store.find(
            stages["counts"].identity
        )

    def verify(self):
        (self.store.root / "rejected.parquet").unlink(missing_ok=True)
        found = verify_store(
            self.store, list_collected_runs(self.store), is_needed, list_erased(self.store)
        )
        assert not found.damages


def erase_rows(folder, layout, gone, into):
    """Copy files without the rows of some samples, also those that are ragged."""
    into.mkdir(exist_ok=True)
    for path in into.iterdir():
        path.unlink()
    for path in folder.iterdir():
        lines = path.read_text().splitlines()
        kept = [line for line in lines if not {*next(csv.reader([line]))} & gone]
        (into / path.name).write_text("\n".join(kept) + "\n")


def equal_counts(one, other):
    tables = []
    for pipeline, entry in (one, other):
        path = pipeline.store.locate(entry.reference) / "pairs"
        tables.append(
            [pmf.PairCounts.load_total(path, folds=[fold]).to_dense() for fold in range(2)]
        )
    return all((a == b).all() for a, b in zip(*tables, strict=True))


def compare(pipeline, layout, gone, folder):
    """Compare the last night with one that has never seen the samples."""
    fresh = Pipeline(folder, layout, on_duplicate=pipeline.config.schema_.on_duplicate)
    erase_rows(pipeline.data, layout, gone, fresh.data)
    dataset, counts = pipeline.last()
    other, other_counts = fresh.run()
    samples, rejected, account = describe(pipeline.store, dataset)
    # rows have other numbers in files from which some were taken
    others = describe(fresh.store, other)
    assert samples == others[0]
    assert strip(rejected) == strip(others[1])
    for key in ("rows_encoded", "rows_quarantined", "reasons", "samples", "observed"):
        assert account[key] == others[2][key], key
    assert account["rows_in"] == others[2]["rows_in"] + account["rows_erased"]
    assert equal_counts((pipeline, counts), (fresh, other_counts))


def strip(rejected):
    return sorted(
        (file, reason, raw)
        for (file, _, reason, _, raw, *_), n in rejected.items()
        for _ in range(n)
    )


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    """Work in this thread."""
    from contextlib import nullcontext

    import pmflib_tasks.stages.count
    import pmflib_tasks.stages.ingest

    monkeypatch.setattr(
        pmflib_tasks.stages.count,
        "open_workers",
        lambda *_: nullcontext((None, ClusterMemory.here(1 << 34))),
    )
    monkeypatch.setattr(
        pmflib_tasks.stages.ingest, "open_workers_late", lambda *_: nullcontext(None)
    )


def check_nights(folder, layout, seed, n_nights, *, collects=False):
    rng = np.random.default_rng(seed)
    pipeline = Pipeline(folder / "store-of-all", layout, on_duplicate=("last", "first")[seed % 2])
    gone = set()
    for night in range(n_nights):
        change_files(pipeline.data, rng, layout, night)
        pipeline.run()
        if collects:
            # rows of files that have changed since go, for no run needs them
            collect(pipeline.store, n_nights, older_than=0)
        compare(pipeline, layout, gone, folder / f"fresh-{night}-before")
        if rng.random() < 0.7:
            chosen = {f"s{n}" for n in rng.integers(0, 27, 1 + rng.integers(4)).tolist()}
            certificate = erase(pipeline.config, sorted(chosen))
            gone |= chosen
            assert certificate.erased_in_all == len(gone)
            compare(pipeline, layout, gone, folder / f"fresh-{night}-after")
            pipeline.verify()


@pytest.mark.parametrize("layout", ["long", "timed", "wide"])
def test_erase_samples__equals_a_store_that_never_saw_them(tmp_path, layout):
    check_nights(tmp_path, layout, 3, 3)


@pytest.mark.parametrize("layout", ["timed", "wide"])
def test_erase_samples__where_rows_of_earlier_runs_are_no_longer_in_the_store(tmp_path, layout):
    check_nights(tmp_path, layout, 4, 4, collects=True)


@pytest.mark.slow
def test_erase_samples__from_a_file_in_chunks(tmp_path, monkeypatch):
    pipeline, gone = Pipeline(tmp_path / "pipeline", "timed"), {"s1", "s2"}
    (pipeline.data / "a.csv").write_text(draw_file(np.random.default_rng(4), "timed", 50))
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "FILE_CHUNK_BYTES", 200)
        dataset, _ = pipeline.run()
    assert len(list_file_steps(pipeline.store, dataset.reference)) > 1
    (raw_file,) = erase(pipeline.config, sorted(gone)).raw_files
    texts = (pipeline.data / "a.csv").read_text().splitlines()
    assert raw_file.rows == sum(text.split(",")[0] in gone for text in texts)
    compare(pipeline, "timed", gone, tmp_path / "fresh")
    pipeline.verify()


def test_erase_samples__a_window_begins_where_it_did(tmp_path):
    """The times of a file whose rows were erased are still known to the next night."""
    pipeline = Pipeline(tmp_path / "pipeline", "window")
    day = 86_400
    lines = ["who,what,said,ts", f"s1,a,1,{9 * day}", f"s2,a,1,{9 * day}", f"s3,b,1,{day}"]
    (pipeline.data / "a.csv").write_text("\n".join(lines) + "\n")
    pipeline.run()
    erase(pipeline.config, ["s1"])
    (pipeline.data / "b.csv").write_text(f"{lines[0]}\ns4,c,1,{2 * day}\n")
    dataset, _ = pipeline.run()
    found = DatasetAccount.from_json(dataset.summary)
    assert (found.rows_in, found.rows_encoded, found.rows_outside) == (4, 1, 2)
    assert found.rows_erased == 1


def test_erase_samples__refuses_where_the_run_cannot_be_repeated(tmp_path):
    pipeline = Pipeline(tmp_path / "pipeline", "long")
    path = pipeline.data / "a.csv"
    for name in ("a", "b"):
        (pipeline.data / f"{name}.csv").write_text(f"who,what,said\n{name},a,1\n")
    pipeline.run()
    text = path.read_text()
    path.write_text(f"{text}c,a,1\n")
    with pytest.raises(StoreError, match=r"a\.csv"):
        erase(pipeline.config, ["a"])
    path.unlink()
    with pytest.raises(StoreError, match=r"a\.csv"):
        erase(pipeline.config, ["a"])
    path.write_text(text)
    pmf.Schema(SCHEMA.variables[:-1]).save(pipeline.folder / "schema.json")
    with pytest.raises(StoreError, match="schema"):
        erase(pipeline.config, ["a"])
    assert read_erasures(pipeline.store) is None


def test_erase_samples__pages_of_runs_go_and_new_ones_do_not_show_the_rows(tmp_path):
    pipeline = Pipeline(tmp_path / "pipeline", "long")
    lines = ["who,what,said", "s1,a,1", "s1,b,secret", "s2,a,1", "s2,b,open"]
    (pipeline.data / "a.csv").write_text("\n".join(lines) + "\n")
    pipeline.run()
    page = Path(keep_page(pipeline.store, pipeline.config.name, 1, b"s1,b,secret"))
    pipeline.verify()
    erase(pipeline.config, ["s1"])
    assert not page.exists()
    stages = find_last_run(pipeline.store, pipeline.config.name).stages
    rows = DatasetAccount.from_json(pipeline.store.find(stages["dataset"].identity).summary)
    shown = gather_data(pipeline.store, {"dataset": stages["dataset"]}, [], rows).examples
    assert [each.raw for each in shown["unknown_level"]] == ["s2,b,open"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("layout", ["long", "timed", "wide"])
def test_erase_samples__equals_a_store_that_never_saw_them_in_many_nights(tmp_path, layout, seed):
    check_nights(tmp_path, layout, seed, 6)
