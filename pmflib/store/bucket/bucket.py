"""Object store in an S3-compatible bucket, using obstore."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

from pmflib.base.errors import ConfigError, PmfError, RefusedStoreError, UnreachableStoreError
from pmflib.base.events import Notice, send_event
from pmflib.store.bucket.caches import CACHE_FILE, StoreCache, find_root, make_cache
from pmflib.store.bucket.packs import unpack
from pmflib.store.objects.interface import (
    LIST_FILE,
    Location,
    ObjectChangedError,
    ObjectMetadata,
    Objects,
    call_in_parallel,
)
from pmflib.store.objects.local_folder import mark_draft

R = TypeVar("R")

SINGLE_BYTES = 32 << 20
"""Largest object that is written in one request, bytes. Larger objects are uploaded in parts, which the client aborts
on an error; a lifecycle rule of the bucket should remove parts left by a crash."""
PART_BYTES = 16 << 20
"""Least size of a part, bytes. Larger objects get at most 9,000 parts; S3 allows 10,000."""
ANSWER_SECONDS = 60
"""Timeout of one request, seconds."""
RETRIES: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
"""Retries of requests that fail with no answer or a server error, for about ten seconds."""
INSIST_SECONDS = 15.0
"""How long requests are repeated after the connection was lost, seconds."""
CHECK_SECONDS = 5.0
"""The same for the first request to a bucket: less than the client takes to detect that there is no server."""
CLOCK_SECONDS = 600.0
"""How long a measured difference between the clocks of the server and this process is reused, seconds."""
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
"""Environment variables whose values no message may show."""
LISTED_OBJECTS = 5_000
"""Largest bucket that is listed as a whole (five requests); in a larger one, each name is requested when needed."""
LACKING_SECONDS = 30.0
"""How long a listing is trusted about missing names, seconds, as other processes write too."""
KEPT_FOLDERS = ("manifest/", "runs/", "histories/", "fingerprints/")
"""Prefixes of objects whose content is cached: small, and replaced only conditionally."""
_TOKEN = "pmf-writer"


class Bucket(Objects):
    """Objects below a prefix of a bucket.

    Credentials come from the environment of each process, in the variables of AWS's own tools: AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION and AWS_ALLOW_HTTP among others.

    Parameters
    ----------
    address
        Checked address ``s3://bucket/prefix``.

    Raises
    ------
    ConfigError
        If obstore is not installed.
    """

    lists_cheaply = False

    def __init__(self, address: str) -> None:
        try:
            from obstore.store import S3Store
        except ImportError:
            raise ConfigError(
                f"store {address!r} is in a bucket, which needs obstore; pip install 'pmflib[s3]'"
            ) from None
        self.address = address
        bucket, _, prefix = address.partition("://")[2].partition("/")
        options: Any = {
            "timeout": timedelta(seconds=ANSWER_SECONDS),
            "connect_timeout": timedelta(seconds=10),
            # options given here override the environment
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes"),
        }
        with self._translate(""):
            self._store: Any = S3Store(
                bucket, prefix=prefix or None, client_options=options, retry_config=RETRIES
            )
        self._clock: tuple[float, float] | None = None
        self._listing: Listing | None = None
        self._caches: dict[Path, StoreCache] = {}

    def find_root(self) -> Path:
        """Folder of this machine's cache."""
        return find_root(self.address)

    def open_cache(self) -> StoreCache:
        """Open this machine's cache, which is created if it does not exist or was deleted."""
        root = self.find_root()
        if root not in self._caches or not (root / CACHE_FILE).is_file():
            self._caches[root] = make_cache(self.address)
        return self._caches[root]

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether a recent listing shows neither this name nor any object below it other than ``but``."""
        return self._listing is not None and self._listing.lacks(name, but)

    @contextmanager
    def remember(self, known: str) -> Iterator[None]:
        """Answer from a `Listing`, and save its contents at the end for the next run."""
        listing = self._listing = self._list_all()
        if listing is None:
            yield
            return
        with suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
            content = self.read(known)[0] if known in listing.tags else b"{}"
            for name, (tag, text) in json.loads(content).items():
                listing.contents.setdefault(name, (text.encode(), tag))
        listing.contents.pop(known, None)
        try:
            yield
        finally:
            if self._listing is listing:
                self._listing = None
            kept = {
                name: (tag, content.decode())
                for name, (content, tag) in listing.take_current().items()
            }
            # this only saves requests
            with suppress(PmfError, OSError):
                self.put(known, json.dumps(kept, ensure_ascii=False).encode())

    def _list_all(self) -> Listing | None:
        """List all objects; None if there are more than ``LISTED_OBJECTS``."""

        def look() -> Listing | None:
            tags: dict[str, str] = {}
            for chunk in self._store.list(None, chunk_size=1000):
                tags |= {each["path"]: str(each["e_tag"]) for each in chunk}
                if len(tags) > LISTED_OBJECTS:
                    return None
            return Listing(tags)

        return self._insist("", look)

    def _write(self, name: str, content: bytes, **options: Any) -> None:
        """Write an object in one request, and update the listing."""
        if self._listing is not None:
            self._listing.forget(name)
        done = self._insist(name, lambda: self._store.put(name, content, **options))
        if self._listing is not None:
            self._listing.keep(name, content, str(done["e_tag"]))

    def read(self, name: str) -> tuple[bytes, str]:
        """Read an object and its ETag."""
        if self._listing is not None and (known := self._listing.read(name)):
            return known

        def get() -> tuple[bytes, str]:
            found = self._store.get(name)
            return bytes(found.bytes()), str(found.meta["e_tag"])

        found = self._insist(name, get)
        if self._listing is not None:
            self._listing.keep(name, *found)
        return found

    def exists(self, name: str) -> bool:
        """Whether the object exists."""
        if self._listing is not None and name in self._listing.tags:
            return True
        try:
            self._insist(name, lambda: self._store.head(name))
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, content: bytes) -> None:
        """Create an object (If-None-Match)."""
        token = uuid.uuid4().hex
        try:
            self._write(name, content, mode="create", attributes={_TOKEN: token})
        except FileExistsError:
            # a repeated request, whose first answer was lost, finds its own object
            found = self._insist(name, lambda: self._store.get(name).attributes.get(_TOKEN))
            if self._listing is not None:
                self._listing.note(name)
            if found != token:
                raise FileExistsError(name) from None

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._write(name, content, use_multipart=False)

    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Replace the object with a tag (If-Match)."""
        try:
            self._write(name, content, mode={"e_tag": tag})
        except ObjectChangedError:
            # as in `create`: it may be our own write
            with suppress(FileNotFoundError):
                if self.read(name)[0] == content:
                    return
            raise

    def touch(self, name: str, content: bytes) -> None:
        """Write the object again, which updates its time."""
        self.put(name, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, many per request."""
        if self._listing is not None:
            for name in names:
                self._listing.forget(name)
        if names:
            self._insist(names[0], lambda: self._store.delete(list(names)))

    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """List objects below a prefix, a thousand per request."""
        found = self._insist(
            prefix, lambda: [each for chunk in self._store.list(prefix or None) for each in chunk]
        )
        return sorted(
            (
                ObjectMetadata(each["path"], each["size"], each["last_modified"].timestamp())
                for each in found
            ),
            key=lambda metadata: metadata.name,
        )

    def list_folders(self, prefix: str) -> list[str]:
        """List the common prefixes directly below a prefix."""
        found = self._insist(prefix, lambda: self._store.list_with_delimiter(prefix or None))
        return sorted(each.rpartition("/")[2] for each in found["common_prefixes"])

    def read_clock(self) -> float:
        """Time by the server: that of an object which is written for it, in whole seconds, and what has passed since.

        Raises
        ------
        PmfError
            If nothing may be written.
        """
        now = time.monotonic()
        if self._clock is None or now - self._clock[1] > CLOCK_SECONDS:
            name = mark_draft("leases/clock")
            self.put(name, b"")
            head = self._insist(name, lambda: self._store.head(name))
            served = head["last_modified"].timestamp()
            self.delete([name])
            self._clock = served, now
        return self._clock[0] + now - self._clock[1]

    def put_file(self, name: str, path: Path) -> None:
        """Upload a file, a large one in parts; the object appears only when all parts are there."""
        size = path.stat().st_size
        if size <= SINGLE_BYTES:
            self.put(name, path.read_bytes())
            return
        options = {"chunk_size": max(PART_BYTES, -(-size // 9000)), "max_concurrency": 4}
        self._insist(name, lambda: self._store.put(name, path, use_multipart=True, **options))

    def fetch_file(self, name: str, path: Path) -> str:
        """Download an object to a new file in chunks of bounded memory."""
        with path.open("xb") as stream:
            return self._download(name, stream)

    def _download(self, name: str, stream: IO[bytes] | None = None) -> str:
        """Read an object in chunks, write it to a stream if one is given, and return its SHA-256."""

        def fetch() -> str:
            if stream is not None:
                stream.seek(0)
                stream.truncate()
            digest = hashlib.sha256()
            for chunk in self._store.get(name).stream(min_chunk_size=4 << 20):
                part = bytes(chunk)
                digest.update(part)
                if stream is not None:
                    stream.write(part)
            return digest.hexdigest()

        return self._insist(name, fetch)

    def list_locations(self, prefix: str) -> list[Location]:
        """Group the objects below a prefix by the next part of their names."""
        times: dict[str, float] = {}
        sizes: dict[str, int] = {}
        for metadata in self.list_objects(prefix):
            name = "/".join(metadata.name.split("/")[: prefix.count("/") + 2])
            times[name] = max(times.get(name, 0.0), metadata.touched)
            sizes[name] = sizes.get(name, 0) + metadata.size
        return [Location(name, int(time * 1e9), sizes[name]) for name, time in times.items()]

    def measure(self, prefix: str) -> int:
        """Bytes of all objects below a prefix."""
        return sum(metadata.size for metadata in self.list_objects(prefix))

    def drop(self, name: str, touched: int | None = None) -> int | None:
        """Delete all objects below a name, the digest list first: without it, the artefact does not exist."""
        found = self.list_objects(name)
        if not found:
            return None
        self.delete([each.name for each in found if each.name == f"{name}/{LIST_FILE}"])
        self.delete([each.name for each in found if each.name != f"{name}/{LIST_FILE}"])
        return sum(each.size for each in found)

    def read_list(self, folder: str) -> tuple[bytes, dict[str, bytes]]:
        """Read the digest list of an artefact and the files packed with it."""
        return unpack(self.read(f"{folder}/{LIST_FILE}")[0])

    def digest_files(self, folder: str) -> dict[str, str]:
        """SHA-256 of every file of an artefact, read from the bucket."""
        listed = f"{folder}/{LIST_FILE}"
        names = {metadata.name for metadata in self.list_objects(folder)}
        packed = self.read_list(folder)[1] if listed in names else {}
        loose = sorted(names - {listed, *(f"{folder}/{each}" for each in packed)})
        digests = call_in_parallel(self._download, loose)
        found = {
            name.removeprefix(f"{folder}/"): each for name, each in zip(loose, digests, strict=True)
        }
        return found | {each: hashlib.sha256(part).hexdigest() for each, part in packed.items()}

    def check(self) -> None:
        """Check with one request that the bucket exists and answers.

        Raises
        ------
        RefusedStoreError, UnreachableStoreError
            If it does not, with a remedy.
        """
        self._insist(
            "", lambda: next(iter(self._store.list("leases", chunk_size=1)), None), CHECK_SECONDS
        )

    def _insist(self, name: str, request: Callable[[], R], seconds: float | None = None) -> R:
        """Make a request, and repeat it if the connection is lost: the client itself repeats only reads."""
        until = time.monotonic() + (INSIST_SECONDS if seconds is None else seconds)
        n_again = 0
        while True:
            try:
                with self._translate(name):
                    return request()
            except UnreachableStoreError as error:
                if time.monotonic() > until:
                    raise
                n_again += 1
                send_event(Notice(f"request {n_again + 1} for {name or 'the bucket'}: {error}"))
            time.sleep(0.5)

    @contextmanager
    def _translate(self, name: str) -> Iterator[None]:
        """Translate obstore's errors to those of `Objects`."""
        from obstore import exceptions

        try:
            yield
        except (PmfError, OSError) as error:
            if "NoSuchBucket" in str(error):
                raise self._refuse(
                    "there is no such bucket; create it, or correct store.path"
                ) from None
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(f"{self.address}/{name}") from None
            raise
        except exceptions.AlreadyExistsError:
            raise FileExistsError(name) from None
        except exceptions.PreconditionError:
            raise ObjectChangedError(name) from None
        except exceptions.BaseError as error:
            raise self._explain(hide_secrets(str(error).partition("\n\nDebug source")[0])) from None

    def _explain(self, said: str) -> PmfError:
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        if "NoSuchBucket" in said:
            return self._refuse("there is no such bucket; create it, or correct store.path")
        if "builder error" in said and endpoint.startswith("http://"):
            return self._refuse(
                f"AWS_ENDPOINT_URL = {hide_secrets(endpoint)!r} is not encrypted; use https://, or set "
                "AWS_ALLOW_HTTP=true for a server in your own network"
            )
        if "with invalid path" in said:
            return self._refuse(
                f"an object has a name that leads out of it; ask its owner, and delete it ({said[:300]})"
            )
        if "169.254.169.254" in said or "redential" in said:
            return self._refuse(
                "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, and AWS_ENDPOINT_URL "
                f"for servers other than AWS) in the environment of this process ({said[:300]})"
            )
        if any(f" {code}" in said for code in ("401 Unauthorized", "403 Forbidden")):
            return self._refuse(
                "the request was refused; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this "
                f"process, and that they may read, write, list and delete there ({said[:500]})"
            )
        if any(f" {code} " in said for code in ("400", "404", "405", "409", "411", "416", "501")):
            return self._refuse(
                f"the server does not support an operation that stores need ({said[:500]})"
            )
        return UnreachableStoreError(
            f"store {self.address!r}: no answer ({said[:300]}); check that the server at AWS_ENDPOINT_URL is up, and "
            "try again later"
        )

    def _refuse(self, problem: str) -> RefusedStoreError:
        return RefusedStoreError(f"store {self.address!r}: {problem}")


@dataclass
class Listing:
    """Names of the objects of a bucket when a run began, and contents by tag: one request instead of one per name.

    The process that takes a listing holds a lease, so that nobody deletes what it names. Objects that others write
    meanwhile are not in it: it is right about what exists, and for a moment about what does not.

    Parameters
    ----------
    tags
        Tag of each object by name, updated with the writes and deletions of this process.
    contents
        Cached content and tag of some objects.
    taken
        Time of the listing by this process's monotonic clock, seconds.
    """

    tags: dict[str, str]
    contents: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    taken: float = field(default_factory=time.monotonic)
    _used: set[str] = field(default_factory=set)

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return the cached content and tag of an object; None if it is not cached or has changed."""
        found = self.contents.get(name)
        if found is None or found[1] != self.tags.get(name):
            return None
        self._used.add(name)
        return found

    def keep(self, name: str, content: bytes, tag: str) -> None:
        """Update the content and tag of an object."""
        self.tags[name] = tag
        if name.startswith(KEPT_FOLDERS):
            self.contents[name] = content, tag
            self._used.add(name)

    def note(self, name: str) -> None:
        """Note that an object exists."""
        self.tags.setdefault(name, "")

    def forget(self, name: str) -> None:
        """Remove an object that is deleted or about to be replaced."""
        self.tags.pop(name, None)

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether the listing is recent and has neither this name nor any below it other than ``but``."""
        if time.monotonic() - self.taken > LACKING_SECONDS:
            return False
        below = f"{name}/"
        return name not in self.tags and not any(
            each.startswith(below) and each != but for each in self.tags
        )

    def take_current(self) -> Mapping[str, tuple[bytes, str]]:
        """Return the cached contents that were used and are still current."""
        return {name: found for name in sorted(self._used) if (found := self.read(name))}


def hide_secrets(text: str) -> str:
    """Replace the credentials of this process in a text with asterisks."""
    for name in SECRETS:
        if len(value := os.environ.get(name, "")) > 3:
            text = text.replace(value, "***")
    return text
