"""Caches: what this machine has read of a store in a bucket, laid out as a local store is, of bounded size.

A file of an artefact is fetched when it is first read, checked by its digest, and never changes: several processes
share a cache, and it may be deleted at any time. Paths of other machines mean nothing here: what travels to workers
are addresses below the store's own, and each worker finds the file in its own cache.
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

from pmflib.core.errors import ConfigError, StoreError
from pmflib.store.objects.addresses import call_in_parallel, is_bucket, open_objects
from pmflib.store.objects.bucket import Bucket
from pmflib.store.objects.local_folder import (
    PRIVATE,
    make_folder,
    mark_draft,
    read_file_ranges,
    replace_file,
)
from pmflib.store.packs import choose_packed, pack, unpack

IN_USE_SECONDS = 15 * 60.0
"""An artefact that was used by any process of this machine within this time is not dropped, seconds."""
SHARE = 0.5
"""Part of the room that a disk has left, when a process first opens a cache on it, that the cache may take at most;
what the cache holds already counts as room."""


def find_limit(root: Path) -> int:
    """Bytes that a cache may take: PMF_MIRROR_BYTES, or a ``SHARE`` of the room that the disk has for it.

    Raises
    ------
    ConfigError
        If the variable is no positive whole number.
    """
    text = os.environ.get("PMF_MIRROR_BYTES", "")
    if text:
        if not text.isascii() or not text.isdecimal() or not int(text):
            raise ConfigError(
                f"PMF_MIRROR_BYTES = {text!r} is no number of bytes above 0; correct or unset it"
            )
        return int(text)
    return int(SHARE * (shutil.disk_usage(root).free + sum(size for *_, size in _measure(root))))


def drop_unused(root: Path, limit: int) -> int:
    """Drop artefacts of a cache, those not used for longest first, until it takes no more than a limit, bytes.

    Those used within ``IN_USE_SECONDS`` stay. Whoever reads what is dropped finds it gone, and fetches it again.

    Returns
    -------
    Bytes that were dropped.
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
    """When each artefact of a cache was last used, its folder and its bytes."""
    found = []
    for folder in root.glob("*/*"):
        if re.fullmatch("[0-9a-f]{24}", folder.name):
            with suppress(OSError):
                sizes = [path.stat().st_size for path in folder.rglob("*")]
                found.append((folder.stat().st_mtime, folder, sum(sizes)))
    return found


CACHE_FILE = "mirror.json"
"""File that makes a folder a cache: it has the address of the store."""
LIST_FILE = ".digests"
"""List of an artefact's files in its folder: JSON, relative name to SHA-256 in hexadecimal. It is no part of the
content: the digest of the content is a digest of this list."""
UPLOAD_SECONDS = 5.0
"""Time between uploads of checkpoints of the same work, seconds: what is lost of it with a machine."""
_OBJECTS = re.compile(
    r"(?P<store>.+?://.+?)/"
    r"(?P<objects>[a-z][a-z-]*/[0-9a-f]{24}|work/[0-9a-f]{64}|tmp/[a-z-]+-[0-9a-f]{32}-[0-9a-f]{8})"
    r"(?:/(?P<rest>.*))?"
)
_WORK = "work"
_caches: dict[Path, StoreCache] = {}
_lock = threading.Lock()


class StoreCache:
    """Cache of one store on this machine.

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
    def objects(self) -> Bucket:
        """Objects of the store."""
        opened = open_objects(self.address)
        assert isinstance(opened, Bucket)
        return opened

    def name_objects(self, folder: Path) -> str:
        """Name of a file or folder of the cache, which is that of the objects it is of."""
        return folder.relative_to(self.root).as_posix()

    def make(self) -> None:
        """Make the folders of the cache, for their owner alone, also where somebody has deleted them meanwhile.

        Raises
        ------
        OSError
            If that is not possible.
        """
        if not (self.root / CACHE_FILE).is_file():
            self.root.mkdir(PRIVATE, parents=True, exist_ok=True)
            for name in ("tmp", _WORK, "manifest"):
                make_folder(self.root / name)
            replace_file(self.root / CACHE_FILE, json.dumps({"address": self.address}).encode())

    def make_draft(self, name: str) -> Path:
        """Path of a new draft, in a folder that is there."""
        self.make()
        return self.root / "tmp" / mark_draft(name)

    def use(self, folder: Path) -> None:
        """Note that an artefact is used now: it is among the last to be dropped."""
        now = time.monotonic()
        if now - self._used.get(folder, -1e9) > IN_USE_SECONDS / 10:
            self._used[folder] = now
            with suppress(OSError):
                os.utime(folder)

    def fetch_list(self, folder: Path) -> bool:
        """Fetch the list of an artefact's files unless it is here; whether the store has it, and so the artefact.

        What it says is checked where it is read: it must be the one that the folder is named after.
        """
        if (folder / LIST_FILE).is_file():
            self.use(folder)
            return True
        try:
            content, _ = self.objects.read(f"{self.name_objects(folder)}/{LIST_FILE}")
        except FileNotFoundError:
            return False
        listing, files = unpack(content)
        digests = _read_digests(listing)
        for name, each in files.items():
            # the list is last: where it is, what was packed with it is here as well
            if hashlib.sha256(each).hexdigest() == digests.get(name):
                self._keep(folder / name, each)
        self._keep(folder / LIST_FILE, listing)
        self._make_room(len(content))
        return True

    def fetch_files(self, folder: Path, digests: Mapping[str, str], names: Iterable[str]) -> None:
        """Fetch the files of an artefact that are not here, side by side.

        Parameters
        ----------
        folder
            Folder of the artefact in the cache.
        digests
            SHA-256 of each of its files.
        names
            Files to fetch; those that the artefact has not are passed over.

        Raises
        ------
        StoreError
            If the store has lost one, or holds another content instead.
        """
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
        """Write a file that was packed with the list of its artefact; its SHA-256, or "" if it is not there."""
        try:
            packed = unpack(self.objects.read(f"{artefact}/{LIST_FILE}")[0])[1]
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
            # another process may drop the folder, be it between these two lines
            make_folder(path.parent)
            try:
                os.replace(draft, path)
            except FileNotFoundError:
                if not draft.exists():
                    raise
                continue
            return

    def read_ranges(self, path: Path, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Read parts of a file; `FileNotFoundError` if neither this machine nor the store has it, on its own."""
        with suppress(FileNotFoundError):
            # what was packed has come with the list of its artefact
            return read_file_ranges(path, ranges)
        return self.objects.read_ranges(self.name_objects(path), ranges)

    def publish(self, draft: Path, folder: Path) -> None:
        """Upload the files of an artefact, its list last: from then on it is there. The files stay in the cache.

        Small files are in one object with the list: see `pmflib.store.packs`.
        Where the store has the same content already, it is written once more: whatever was damaged is whole again.
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
            # one that is here already has the same files, or some of them
            self._keep(folder / LIST_FILE, content)
        self.use(folder)
        self._make_room(sum(sizes.values()))

    def resume_work(self, identity: str, kind_file: str) -> None:
        """Fetch the checkpoints of work that was interrupted, here or on another machine."""
        mark = f"{_WORK}/{identity}/{kind_file}"
        if self.objects.lacks(mark) or not self.objects.exists(mark):
            return
        self.fetch_loose(
            [metadata.name for metadata in self.objects.list_objects(f"{_WORK}/{identity}")]
        )

    def fetch_loose(self, names: Sequence[str]) -> list[str]:
        """Fetch objects that belong to no artefact, side by side, in place of what is here; those that there are."""

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
        """Upload a checkpoint, which another machine goes on from if this one is lost.

        Checkpoints of the same work are uploaded together, each `UPLOAD_SECONDS`: small work has none to upload.
        """
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
            # another run of the same work removes the folder when it is done first
            if content := _read_if_there(each):
                self.objects.put(self.name_objects(each), content)

        call_in_parallel(upload, sorted(waiting))

    def drop_work(self, folder: Path) -> None:
        """Delete the checkpoints of work that is done, if there were any; folders of this machine stay.

        Parameters
        ----------
        folder
            The folder of checkpoints that the work had.
        """
        with _lock:
            self._waiting.pop(folder, None)
        if any(folder.glob("[!.]*")):
            self.objects.delete(
                [metadata.name for metadata in self.objects.list_objects(self.name_objects(folder))]
            )

    def _make_room(self, n_bytes: int) -> None:
        """Count what was written; from time to time, drop what was not used for longest."""
        with _lock:
            if self._limit is None:
                self._limit = find_limit(self.root)
            self._unmeasured += n_bytes
            if self._unmeasured < self._limit // 20:
                return
            self._unmeasured = 0
        drop_unused(self.root, self._limit)


def _read_digests(listing: bytes) -> dict[str, str]:
    """Digests by name, as a list has them; none of one that does not read."""
    try:
        return dict(json.loads(listing))
    except (ValueError, TypeError, RecursionError):
        return {}


def _read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def open_cache(address: str) -> StoreCache:
    """Open this machine's cache of a store; made if absent, for its owner alone.

    It is in the folder that PMF_MIRROR names, or in the user's folder for what can be made again.

    Raises
    ------
    ConfigError
        If the folder cannot be made, or is another user's.
    """
    root = find_root(address)
    found = _caches.get(root)
    if found is not None and (root / CACHE_FILE).is_file():
        return found
    cache = StoreCache(address, root)
    try:
        cache.make()
        state = root.stat()
        if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
            raise ConfigError(
                f"cache {str(root)!r} of store {address!r} is open to others; set PMF_MIRROR to a folder of your own"
            )
    except OSError as error:
        raise ConfigError(
            f"cache {str(root)!r} of store {address!r} cannot be made ({error}); set PMF_MIRROR to a folder with room"
        ) from error
    with _lock:
        _caches[root] = cache
    return cache


def find_root(address: str) -> Path:
    """Folder of this machine's cache of a store, which need not be there."""
    above = os.environ.get("PMF_MIRROR", "")
    base = Path(above) if above else _find_cache_home() / "pmflib" / "mirrors"
    # the name is for people, the digest distinguishes stores
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", address.partition("://")[2])[:60].strip("-.")
    return base.absolute() / f"{readable}-{hashlib.sha256(_identify(address)).hexdigest()[:16]}"


def _identify(address: str) -> bytes:
    """What distinguishes stores: a bucket of the same name may be on another server."""
    return f"{os.environ.get('AWS_ENDPOINT_URL', '')} {address}".encode()


def _find_cache_home() -> Path:
    above = os.environ.get("XDG_CACHE_HOME", "")
    return Path(above) if above else Path.home() / ".cache"


def find_cache(root: Path) -> StoreCache | None:
    """Cache that this process has opened in a folder; None for any other folder, such as that of a local store."""
    return _caches.get(root)


def find_cache_above(path: Path) -> StoreCache | None:
    """Cache that holds a file or folder; None if none does."""
    return next(filter(None, map(find_cache, path.parents)), None)


def find_cache_of_work(path: Path) -> StoreCache | None:
    """Cache whose folder of checkpoints holds a file; None for a file of any other folder."""
    cache = find_cache_above(path)
    return cache if cache is not None and cache.name_objects(path).startswith(f"{_WORK}/") else None


def name_for_workers(path: Path) -> str:
    """Name of a file or folder of an artefact that other machines find it by: its address, or its own path."""
    cache = find_cache_above(path)
    return str(path) if cache is None else f"{cache.address}/{cache.name_objects(path)}"


def find_local_path(name: str | Path) -> Path:
    """Path on this machine of what `name_for_workers` named: in this machine's cache, or as it is.

    Raises
    ------
    StoreError
        If it is a URL, and of no artefact of a store.
    """
    if isinstance(name, Path) or not is_bucket(name):
        return Path(name)
    parts = _OBJECTS.fullmatch(name)
    if parts is None:
        raise StoreError(
            f"{name!r} is no location of a store in a bucket; give s3://bucket/prefix/kind/digest, as pmf prints it"
        )
    return open_cache(parts["store"]).root / parts["objects"] / (parts["rest"] or "")
