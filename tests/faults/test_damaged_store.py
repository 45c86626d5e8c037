"""Damage is refused or repaired, and never taken for data."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmflib.base import StoreError
from pmflib.cluster import start_workers
from pmflib.store import Store
from pmflib_tasks.config import ClusterConfig, load_config
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.faults.fault_runs import check_store, list_kinds, run_stages, write_config

pytestmark = pytest.mark.slow


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: list[Callable[[Path], None]] = [flip, truncate, Path.unlink]


@pytest.fixture(scope="module")
def whole(small_log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("whole")
    with start_workers(ClusterConfig(workers=2)) as address:
        return folder / "store", run_stages(write_config(folder, small_log, passes=3), address)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_workers(ClusterConfig(workers=2)) as started:
        yield started


@pytest.fixture
def copied(
    whole: tuple[Path, dict[str, str]], small_log: Path, tmp_path: Path
) -> tuple[Path, Path]:
    """A configuration, and its store as the undisturbed run has left it."""
    path, store = write_config(tmp_path, small_log, passes=3), tmp_path / "store"
    shutil.copytree(whole[0], store)
    return path, store


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("chunk", "redone"),
    [
        ("samples/*/samples/indices/c/0", "counts"),
        ("samples/*/samples/indptr/c/0", "counts"),
        ("samples/*/samples/blocks/c/0/0", "dataset"),
        ("counts/*/pairs/counts/c/3/0/0", "start"),
        ("counts/*/pairs/samples/c/0", "start"),
        ("start/*/model/factors/c/0/0", "model"),
        ("model/*/model/prior/c/0", "scores"),
    ],
)
def test_stages__damaged_chunk(
    chunk: str,
    redone: str,
    damage: Callable[[Path], None],
    whole: tuple[Path, dict[str, str]],
    copied: tuple[Path, Path],
    address: str,
) -> None:
    path, store = copied
    damage(sorted(store.glob(chunk))[0])
    shutil.rmtree(store / redone)
    with pytest.raises(StoreError, match=r"rebuild|run"):
        run_stages(path, address)
    if damage is not Path.unlink:
        return
    # and as it says: without the damaged artefact the run makes it again
    shutil.rmtree(store / chunk.split("/")[0])
    assert run_stages(path, address) == whole[1]
    check_store(store)


@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink])
@pytest.mark.parametrize(
    ("file", "redone"),
    [
        ("spill/*/rows-00.parquet", "samples"),
        ("spill/*/spill.json", "samples"),
        ("spill-list/*/spills.json", "samples"),
        ("dataset/*/dataset.json", "counts"),
        ("dataset/*/blocks.parquet", "counts"),
        ("samples/*/samples/zarr.json", "counts"),
        ("samples/*/samples/indices/zarr.json", "counts"),
        ("model/*/model/zarr.json", "scores"),
    ],
)
def test_stages__damaged_file(
    file: str,
    redone: str,
    damage: Callable[[Path], None],
    copied: tuple[Path, Path],
    address: str,
) -> None:
    path, store = copied
    damage(sorted(store.glob(file))[0])
    shutil.rmtree(store / redone)
    with pytest.raises(StoreError, match=r"rebuild|again|run|damaged"):
        run_stages(path, address)


@pytest.mark.parametrize("damage", DAMAGES)
def test_stages__damaged_dense_chunk(
    damage: Callable[[Path], None], survey: Path, address: str, tmp_path: Path
) -> None:
    path, store = write_config(tmp_path, survey, passes=1), tmp_path / "store"
    config = load_config(path)
    dataset = ingest.fn(config, address)
    damage(next(store.glob("samples/*/samples/codes/c/0/0")))
    with pytest.raises(StoreError, match="samples"):
        count.fn(config, dataset, address)
    assert "counts" not in list_kinds(store)


def test_stages__damaged_manifest(
    whole: tuple[Path, dict[str, str]], copied: tuple[Path, Path], address: str
) -> None:
    path, store = copied
    (entry,) = [e for e in Store(store).entries() if e.reference.kind == "counts"]
    record = store / "manifest" / f"{entry.reference.identity}.json"
    truncate(record)
    with pytest.raises(StoreError, match=record.name):
        run_stages(path, address)
    record.unlink()
    assert run_stages(path, address) == whole[1]
    check_store(store)


def test_stages__damaged_while_published_again(
    whole: tuple[Path, dict[str, str]], copied: tuple[Path, Path], address: str
) -> None:
    # the entry is lost and the content damaged: what is made again takes its place
    path, store = copied
    (entry,) = [e for e in Store(store).entries() if e.reference.kind == "counts"]
    (store / "manifest" / f"{entry.reference.identity}.json").unlink()
    flip(next((store / "counts").glob("*/pairs/counts/c/3/0/0")))
    assert run_stages(path, address) == whole[1]
    check_store(store)
