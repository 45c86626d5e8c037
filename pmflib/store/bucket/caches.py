"""Local cache of a store in a bucket: a folder of bounded size with the layout of a local store.

Files of artefacts are fetched when they are first read, checked against their digests, and never change. Processes
share a cache, and it may be deleted at any time. Workers are sent addresses, not local paths, and each finds the file
in the cache of its own machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pmflib.base.errors import ConfigError, StoreError
from pmflib.store.bucket.packs import choose_packed, pack
from pmflib.store.objects.addresses import open_objects
from pmflib.store.objects.interface import LIST_FILE, FileCache, Objects, call_in_parallel
from pmflib.store.objects.local_folder import (
    PRIVATE,
    make_folder,
    mark_draft,
    replace_file,
)

IN_USE_SECONDS = 15 * 60.0
"""Artefacts used within this time by any process of this machine are kept, seconds."""
SHARE = 0.5
"""Largest share of the free disk space that a cache may take, measured when a process first opens it; the present
content of the cache counts as free."""


def find_limit(root: Path) -> int:
    """Limit of a cache, bytes: PMF_MIRROR_BYTES, or a ``SHARE`` of the free disk space.

    Raises
    ------
    ConfigError
        If the variable is not a positive integer.
    """
    text = os.environ.get("PMF_MIRROR_BYTES", "")
    if text:
        if not text.isascii() or not text.isdecimal() or not int(text):
            raise ConfigError(
                f"PMF_MIRROR_BYTES = {text!r} is not a positive integer (bytes); correct or unset it"
            )
        return int(text)
    return int(SHARE * (shutil.disk_usage(root).free + sum(size for *_, size in _measure(root))))


def drop_unused(root: Path, limit: int) -> int:
    """Drop the least recently used artefacts of a cache until its size is within a limit, bytes.

    Artefacts used within ``IN_USE_SECONDS`` are kept. A dropped artefact is fetched again when it is next read.

    Returns
    -------
    Number of dropped bytes.
    """
    folders = sorted(_measure(root))
    excess = sum(size for *_, size in folders) - limit
    dropped = 0
    for used, folder, size in folders:
        if dropped >= excess or time.time() - used < IN_USE_SECONDS:
            break
        draft = root / "tmp" / mark_draft("dropped")
        with suppress(OSError):
            os.rename(folder, draft)
            shutil.rmtree(draft, ignore_errors=True)
            dropped += size
    return dropped


def _measure(root: Path) -> list[tuple[float, Path, int]]:
    """Time of last use, folder and size of each artefact of a cache."""
    found = []
    for folder in root.glob("*/*"):
        if re.fullmatch("[0-9a-f]{24}", folder.name):
            with suppress(OSError):
                sizes = [path.stat().st_size for path in folder.rglob("*")]
                found.append((folder.stat().st_mtime, folder, sum(sizes)))
    return found


CACHE_FILE = "mirror.json"
"""Marks a folder as a cache, and holds the address of the store."""
UPLOAD_SECONDS = 5.0
"""Time between uploads of checkpoints of one artefact, seconds: the work that is lost if the machine is lost."""
_WORK = "work"
_lock = threading.Lock()


class StoreCache(FileCache):
    """Cache of one store on this machine: see `FileCache`.

    Parameters
    ----------
    address
        Address of the store in a bucket.
    root
        Folder of the cache.
    """

    def __init__(self, address: str, root: Path) -> None:
        self.address = address
        self.root = root
        self._used: dict[Path, float] = {}
        self._limit: int | None = None
        self._unmeasured = 0
        self._waiting: dict[Path, tuple[float, set[Path]]] = {}

    @property
    def objects(self) -> Objects:
        """Object store in the bucket, with the credentials that the environment has now."""
        return open_objects(self.address)

    def make(self) -> None:
        """Create the folders of the cache, for their owner only, if they do not exist or were deleted.

        Raises
        ------
        OSError
            If they cannot be created.
        """
        if not (self.root / CACHE_FILE).is_file():
            self.root.mkdir(PRIVATE, parents=True, exist_ok=True)
            for name in ("tmp", _WORK, "manifest"):
                make_folder(self.root / name)
            replace_file(self.root / CACHE_FILE, json.dumps({"address": self.address}).encode())

    def make_draft(self, name: str) -> Path:
        """Path for a new draft in an existing folder."""
        self.make()
        return self.root / "tmp" / mark_draft(name)

    def use(self, folder: Path) -> None:
        """Record that an artefact is in use, so that it is dropped last."""
        now = time.monotonic()
        if now - self._used.get(folder, -1e9) > IN_USE_SECONDS / 10:
            self._used[folder] = now
            with suppress(OSError):
                os.utime(folder)

    def fetch_list(self, folder: Path) -> bool:
        """Fetch a digest list, which is checked when it is read: the folder is named after its digest."""
        if (folder / LIST_FILE).is_file():
            self.use(folder)
            return True
        try:
            listing, files = self.objects.read_list(self.name_objects(folder))
        except FileNotFoundError:
            return False
        digests = _read_digests(listing)
        for name, each in files.items():
            # the list is written last, so that its presence implies that of the packed files
            if hashlib.sha256(each).hexdigest() == digests.get(name):
                self._keep(folder / name, each)
        self._keep(folder / LIST_FILE, listing)
        self._make_room(len(listing) + sum(map(len, files.values())))
        return True

    def fetch_files(self, folder: Path, digests: Mapping[str, str], names: Iterable[str]) -> None:
        """Fetch missing files, each to a draft that is moved once its digest is right."""
        self.use(folder)
        missing = [name for name in names if name in digests and not (folder / name).is_file()]
        if not missing:
            return
        sizes = call_in_parallel(lambda name: self._fetch(folder, name, digests[name]), missing)
        self._make_room(sum(sizes))

    def _fetch(self, folder: Path, name: str, expected: str) -> int:
        artefact, draft = self.name_objects(folder), self.make_draft("fetched")
        try:
            try:
                found = self.objects.fetch_file(f"{artefact}/{name}", draft)
            except FileNotFoundError:
                found = ""
            if found != expected:
                found = self._fetch_packed(artefact, name, draft) or found
            if found != expected:
                problem = "its content has changed" if found else "No such object"
                raise StoreError(
                    f"file {name!r} of artefact {artefact} is not what was published ({problem}); to rebuild "
                    f"the artefact, delete folder {artefact} of store {self.address!r} and run again"
                )
            size = draft.stat().st_size
            self._move(draft, folder / name)
        finally:
            draft.unlink(missing_ok=True)
        return size

    def _fetch_packed(self, artefact: str, name: str, draft: Path) -> str:
        """Write a file that is packed with the digest list; return its SHA-256, or "" if it is not packed."""
        try:
            packed = self.objects.read_list(artefact)[1]
        except FileNotFoundError:
            return ""
        if name not in packed:
            return ""
        draft.write_bytes(packed[name])
        return hashlib.sha256(packed[name]).hexdigest()

    def _keep(self, path: Path, content: bytes) -> None:
        draft = self.make_draft("fetched")
        try:
            draft.write_bytes(content)
            self._move(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def _move(self, draft: Path, path: Path) -> None:
        while True:
            # another process may drop the folder at any time
            make_folder(path.parent)
            try:
                os.replace(draft, path)
            except FileNotFoundError:
                if not draft.exists():
                    raise
                continue
            return

    def publish(self, draft: Path, folder: Path) -> None:
        """Upload the files of an artefact and keep them in the cache; the digest list is written last.

        Small files are packed with the list: see `pmflib.store.bucket.packs`. Content that the store already has is
        written again, which repairs any damage.
        """
        prefix = self.name_objects(folder)
        sizes = {
            path.relative_to(draft).as_posix(): path.stat().st_size
            for path in draft.rglob("*")
            if path.is_file() and path != draft / LIST_FILE
        }
        packed = choose_packed(sizes)
        objects, loose = self.objects, sorted(sizes.keys() - {*packed})
        call_in_parallel(lambda name: objects.put_file(f"{prefix}/{name}", draft / name), loose)
        content = (draft / LIST_FILE).read_bytes()
        objects.put(f"{prefix}/{LIST_FILE}", pack(content, draft, packed))
        make_folder(folder.parent)
        try:
            os.rename(draft, folder)
        except OSError:
            # the cache has the same artefact already, perhaps in part
            self._keep(folder / LIST_FILE, content)
        self.use(folder)
        self._make_room(sum(sizes.values()))

    def resume_work(self, identity: str, kind_file: str) -> None:
        """Fetch checkpoints, if there are any."""
        mark = f"{_WORK}/{identity}/{kind_file}"
        if self.objects.lacks(mark) or not self.objects.exists(mark):
            return
        self.fetch_loose(
            [metadata.name for metadata in self.objects.list_objects(f"{_WORK}/{identity}")]
        )

    def fetch_loose(self, names: Sequence[str]) -> list[str]:
        """Fetch objects of which nothing but the name is known."""

        def fetch(name: str) -> bool:
            draft = self.make_draft("fetched")
            try:
                self.objects.fetch_file(name, draft)
                self._move(draft, self.root / name)
            except FileNotFoundError:
                return False
            finally:
                draft.unlink(missing_ok=True)
            return True

        done = call_in_parallel(fetch, names)
        return [name for name, is_there in zip(names, done, strict=True) if is_there]

    def keep_checkpoint(self, path: Path, kind_file: str) -> None:
        """Upload a checkpoint, with others of the same artefact every `UPLOAD_SECONDS`; short work uploads none."""
        if not self.name_objects(path).startswith(f"{_WORK}/"):
            return
        folder = self.root / _WORK / path.relative_to(self.root / _WORK).parts[0]
        now = time.monotonic()
        with _lock:
            since, waiting = self._waiting.setdefault(folder, (now, set()))
            waiting.add(path)
            if now - since < UPLOAD_SECONDS:
                return
            self._waiting[folder] = now, set()
        self.objects.put(self.name_objects(folder / kind_file), _read_if_there(folder / kind_file))

        def upload(each: Path) -> None:
            # another run of the same work may have finished first and removed the folder
            if content := _read_if_there(each):
                self.objects.put(self.name_objects(each), content)

        call_in_parallel(upload, sorted(waiting))

    def drop_work(self, folder: Path) -> None:
        """Delete uploaded checkpoints; those that wait are forgotten."""
        with _lock:
            self._waiting.pop(folder, None)
        if any(folder.glob("[!.]*")):
            self.objects.delete(
                [metadata.name for metadata in self.objects.list_objects(self.name_objects(folder))]
            )

    def _make_room(self, n_bytes: int) -> None:
        """Count written bytes; occasionally drop the least recently used artefacts."""
        with _lock:
            if self._limit is None:
                self._limit = find_limit(self.root)
            self._unmeasured += n_bytes
            if self._unmeasured < self._limit // 20:
                return
            self._unmeasured = 0
        drop_unused(self.root, self._limit)


def _read_digests(listing: bytes) -> dict[str, str]:
    """Digests by name from a list; empty if the list cannot be parsed."""
    try:
        return dict(json.loads(listing))
    except (ValueError, TypeError, RecursionError):
        return {}


def _read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def make_cache(address: str) -> StoreCache:
    """Open this machine's cache of a store, or create it for its owner only.

    It is below the folder named by PMF_MIRROR, or in the user's cache directory.

    Raises
    ------
    ConfigError
        If the folder cannot be created, or belongs to another user.
    """
    cache = StoreCache(address, root := find_root(address))
    try:
        cache.make()
        state = root.stat()
        if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
            raise ConfigError(
                f"cache {str(root)!r} of store {address!r} is open to others; set PMF_MIRROR to a folder of your own"
            )
    except OSError as error:
        raise ConfigError(
            f"cache {str(root)!r} of store {address!r} cannot be created ({error}); set PMF_MIRROR to another folder"
        ) from error
    return cache


def find_root(address: str) -> Path:
    """Folder of this machine's cache of a store, which need not exist."""
    above = os.environ.get("PMF_MIRROR", "")
    base = Path(above) if above else _find_cache_home() / "pmflib" / "mirrors"
    # the name is for people; the digest is unique, as servers may have buckets of the same name
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", address.partition("://")[2])[:60].strip("-.")
    identity = f"{os.environ.get('AWS_ENDPOINT_URL', '')} {address}".encode()
    return base.absolute() / f"{readable}-{hashlib.sha256(identity).hexdigest()[:16]}"


def _find_cache_home() -> Path:
    above = os.environ.get("XDG_CACHE_HOME", "")
    return Path(above) if above else Path.home() / ".cache"
