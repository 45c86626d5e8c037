"""An erasure from a store in a bucket does what one from a disk does, whatever stops it."""

import numpy as np
import pytest

from pmflib.base import StoreError, UnreachableStoreError
from pmflib.store import Store, keep_page, read_erasures
from pmflib_tasks.erasure.erase import erase
from tests.erasure.stored_texts import find_texts
from tests.erasure.test_erasing import Pipeline, equal_counts, no_workers  # noqa: F401
from tests.ingest.test_layered_datasets import change_files
from tests.object_store import forget_cache
from tests.store.bucket.test_bucket_clearing import forget_leases, stop_requests
from tests.store.copies import download_files, upload_files

GONE = ["s3", "s7"]


def run_nights(pipeline):
    rng = np.random.default_rng(3)
    for night in range(2):
        change_files(pipeline.data, rng, "long", night)
        pipeline.run()
    keep_page(pipeline.store, pipeline.config.name, 1, b"s3,b,secret")
    return pipeline


def move(pipeline, address):
    """Let a pipeline go on with a store in a bucket."""
    store = pipeline.config.store.model_copy(update={"path": address})
    pipeline.config = pipeline.config.model_copy(update={"store": store})
    pipeline.store = Store(address)
    return pipeline


def describe(certificate):
    """What two stores with salts of their own have in common."""
    kept = {"samples_found", "artefacts", "erased_in_all", "raw_files", "models_fitted_before"}
    return {name: getattr(certificate, name) for name in kept}


def check_erased(store, folder):
    """Check that no file of a store, as a copy of it has them, names the samples."""
    download_files(store.address, folder)
    assert find_texts(folder, ["secret"]) == set()
    assert list(folder.glob("reports/*/*")) == []


def test_erase_samples__from_a_bucket(bucket, tmp_path, monkeypatch):
    on_disk = run_nights(Pipeline(tmp_path / "disk", "long"))
    there = move(Pipeline(tmp_path / "bucket", "long"), f"s3://{bucket}/store")
    run_nights(there)
    expected = erase(on_disk.config, GONE)
    found = erase(there.config, GONE)
    assert describe(found) == describe(expected)
    assert equal_counts((on_disk, on_disk.last()[1]), (there, there.last()[1]))
    there.verify()
    check_erased(there.store, tmp_path / "copied")
    # the next night is the same too, on another machine
    forget_cache(monkeypatch, tmp_path / "another machine")
    there = move(there, there.store.address)
    rng = np.random.default_rng(9)
    change_files(on_disk.data, rng, "long", 5)
    change_files(there.data, np.random.default_rng(9), "long", 5)
    assert [e.reference for e in on_disk.run()] != []
    assert equal_counts((on_disk, on_disk.last()[1]), (there, there.run()[1]))


@pytest.mark.slow
def test_erase_samples__from_a_bucket_is_stopped_anywhere(bucket, tmp_path, monkeypatch):
    first = run_nights(Pipeline(tmp_path / "first", "long"))
    count = upload_files(first.store, f"s3://{bucket}/count")
    whole = move(Pipeline(tmp_path / "whole", "long"), count.address)
    whole.config = replace_source(whole.config, first)
    with monkeypatch.context() as patch:
        n_requests = len(_erase_until(patch, whole.config, 0))
    # the last requests take away the lease and the lock, which is not waited for
    for n in range(4, n_requests - 8, max(1, n_requests // 5)):
        store = upload_files(first.store, f"s3://{bucket}/there{n}")
        pipeline = move(Pipeline(tmp_path / f"there{n}", "long"), store.address)
        pipeline.config = replace_source(pipeline.config, first)
        with monkeypatch.context() as patch, pytest.raises(UnreachableStoreError):
            _erase_until(patch, pipeline.config, n)
        forget_leases(store)
        # named again: what was stopped before the list was written has erased nobody
        erase(pipeline.config, GONE)
        assert not read_erasures(store).unfinished
        pipeline.verify()
        ours, theirs = (
            # contents differ, for each store has a salt of its own
            [listed.name.rpartition("/")[2] for listed in each.objects.list_objects("dataset")]
            for each in (count, store)
        )
        assert sorted(ours) == sorted(theirs)


def replace_source(config, pipeline):
    known = pipeline.config
    return config.model_copy(update={"source": known.source, "base": known.base})


def _erase_until(patch, config, n):
    seen = stop_requests(patch, n)
    erase(config, GONE)
    return seen


def test_erase_samples__from_a_bucket_in_use(bucket, tmp_path):
    pipeline = move(Pipeline(tmp_path / "there", "long"), f"s3://{bucket}/store")
    run_nights(pipeline)
    pipeline.store.objects.put(f"leases/{'a' * 32}-{'b' * 8}", b"{}")
    with pytest.raises(StoreError, match="use"):
        erase(pipeline.config, GONE)
    assert read_erasures(pipeline.store) is None
