"""Files of a store by name, as a copy reads and writes them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pmflib.store.artefacts import Store, replace_file
from pmflib.store.private_files import make_folder, write_file


@dataclass(frozen=True)
class ObjectFacts:
    name: str
    size: int


def open_files(store: Store) -> NamedFiles:
    """Files of a store."""
    return NamedFiles(store.root)


def name_store(store: Store) -> str:
    """Where a store is, for people."""
    return str(store.root)


class NamedFiles:
    """Files below a folder, by their names relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self, prefix: str) -> list[ObjectFacts]:
        found = (path for path in (self.root / prefix).rglob("*") if path.is_file())
        facts = (
            ObjectFacts(path.relative_to(self.root).as_posix(), path.stat().st_size)
            for path in found
        )
        return sorted((each for each in facts), key=lambda each: each.name)

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def read(self, name: str) -> tuple[bytes, str]:
        content = (self.root / name).read_bytes()
        return content, hashlib.sha256(content).hexdigest()

    def create(self, name: str, content: bytes) -> None:
        path = self.root / name
        make_folder(path.parent)
        if path.exists():
            raise FileExistsError(name)
        replace_file(path, content)

    def put(self, name: str, content: bytes) -> None:
        path = self.root / name
        make_folder(path.parent)
        replace_file(path, content)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def fetch_file(self, name: str, path: Path) -> str:
        write_file(path, b"")
        shutil.copyfile(self.root / name, path)
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
