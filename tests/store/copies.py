"""Copies of stores by tools that know nothing of stores, in the order of docs/copying.md."""

import shutil
from pathlib import Path

from pmflib.store import Store
from tests.object_store import read_bucket

LEFT = ("manifest", "runs", "histories", "tmp", "work", "leases", "fingerprints")
"""What is copied last, from lists, or not at all."""


def list_names(store: Store, folder: str) -> list[str]:
    """Names of the files of a folder of a store on a disk, as `rclone lsf` lists them."""
    paths = sorted((store.root / folder).rglob("*"))
    return [
        path.relative_to(store.root).as_posix()
        for path in paths
        if path.is_file() and not path.name.startswith(".")
    ]


def copy_artefacts(store: Store, target: Path) -> None:
    """Copy everything but the folders that are listed or left out; what is there already stays."""
    for path in sorted(store.root.rglob("*")):
        name = path.relative_to(store.root)
        if path.is_file() and name.parts[0] not in LEFT and not (target / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / name)


def copy_names(store: Store, target: Path, names: list[str]) -> None:
    """Copy listed files."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(store.root / name, target / name)


def copy_files(store: Store, target: Path) -> Store:
    """Copy a store from folder to folder; give the copy."""
    records, entries = (list_names(store, folder) for folder in ("runs", "manifest"))
    copy_artefacts(store, target)
    copy_names(store, target, entries)
    copy_names(store, target, records)
    return Store(target)


def upload_files(store: Store, address: str) -> Store:
    """Copy a store from a folder to a bucket; give the copy."""
    target = Store(address)
    for folders in (None, ("manifest",), ("runs",)):
        for path in sorted(store.root.rglob("*")):
            name = path.relative_to(store.root)
            chosen = name.parts[0] not in LEFT if folders is None else name.parts[0] in folders
            if path.is_file() and chosen:
                target.objects.put_file(name.as_posix(), path)
    return target


def download_files(address: str, folder: Path) -> Path:
    """Write the files of a store in a bucket to a folder, also those that are packed; give the folder."""
    for name, content in read_bucket(address).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
