"""Objects of a bucket that speaks the protocol of S3, by obstore: conditional writes, and the server's clock."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pmflib.core.errors import ConfigError, PmfError, RefusedStoreError, UnreachableStoreError
from pmflib.core.events import Notice, send_event
from pmflib.store.objects.interface import ObjectChangedError, ObjectMetadata, Objects
from pmflib.store.objects.listing import LISTED_OBJECTS, Listing
from pmflib.store.objects.local_folder import mark_draft

R = TypeVar("R")

SINGLE_BYTES = 32 << 20
"""Largest object that is written by one request, bytes: nothing is left behind where that is cut off. Larger ones are
written in parts, which the client withdraws on an error; parts that a crash leaves are for a rule of the bucket."""
PART_BYTES = 16 << 20
"""Size of a part, bytes, of objects of up to 9,000 parts; S3 takes at most 10,000."""
ANSWER_SECONDS = 60
"""Longest wait for the answer to one request, seconds."""
RETRIES: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
"""How often a request is sent again that no server answered, or with an error of its own: for some ten seconds."""
INSIST_SECONDS = 15.0
"""How long requests are repeated whose connection ends without an answer, or within one, seconds."""
CHECK_SECONDS = 5.0
"""The same, of the first look at a bucket: shorter than the client needs to find that no server is there at all."""
CLOCK_SECONDS = 600.0
"""How long the difference between the server's clock and that of this process is taken for known, seconds."""
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
"""Variables of the environment that no message shows the content of."""
_TOKEN = "pmf-writer"


class Bucket(Objects):
    """Objects below a prefix of a bucket.

    Who may use it is said by the environment of each process, in the variables that AWS's own programs read:
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION and AWS_ALLOW_HTTP among them.

    Parameters
    ----------
    address
        ``s3://bucket/prefix``, checked.

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
            # options given here put out what the environment says of http
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes"),
        }
        with self._translate(""):
            self._store: Any = S3Store(
                bucket, prefix=prefix or None, client_options=options, retry_config=RETRIES
            )
        self._clock: tuple[float, float] | None = None
        self._listing: Listing | None = None

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether the listing of a run that has just begun has nothing of a name, nor below it but one."""
        return self._listing is not None and self._listing.lacks(name, but)

    @contextmanager
    def remember(self, known: str) -> Iterator[None]:
        """Answer from a listing: see `Listing`. What is known of it at the end is written for the next run."""
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
            # it saves requests, and is needed for nothing
            with suppress(PmfError, OSError):
                self.put(known, json.dumps(kept, ensure_ascii=False).encode())

    def _list_all(self) -> Listing | None:
        """List all objects; None where there are too many."""

        def look() -> Listing | None:
            tags: dict[str, str] = {}
            for chunk in self._store.list(None, chunk_size=1000):
                tags |= {each["path"]: str(each["e_tag"]) for each in chunk}
                if len(tags) > LISTED_OBJECTS:
                    return None
            return Listing(tags)

        return self._insist("", look)

    def _write(self, name: str, content: bytes, **options: Any) -> None:
        """Write an object by one request, and note it."""
        if self._listing is not None:
            self._listing.forget(name)
        done = self._insist(name, lambda: self._store.put(name, content, **options))
        if self._listing is not None:
            self._listing.keep(name, content, str(done["e_tag"]))

    def read(self, name: str) -> tuple[bytes, str]:
        """Read an object; its tag is the server's."""
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
        """Whether there is such an object."""
        if self._listing is not None and name in self._listing.tags:
            return True
        try:
            self._insist(name, lambda: self._store.head(name))
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, content: bytes) -> None:
        """Write an object if there is none (If-None-Match)."""
        token = uuid.uuid4().hex
        try:
            self._write(name, content, mode="create", attributes={_TOKEN: token})
        except FileExistsError:
            # a request whose answer was lost is sent again, and finds what it has written itself
            found = self._insist(name, lambda: self._store.get(name).attributes.get(_TOKEN))
            if self._listing is not None:
                self._listing.note(name)
            if found != token:
                raise FileExistsError(name) from None

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._write(name, content, use_multipart=False)

    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Write an object in place of the one with a tag (If-Match)."""
        try:
            self._write(name, content, mode={"e_tag": tag})
        except ObjectChangedError:
            # as for `create`: what this has written itself is no other's
            with suppress(FileNotFoundError):
                if self.read(name)[0] == content:
                    return
            raise

    def touch(self, name: str, content: bytes) -> None:
        """Write an object again, which sets its time."""
        self.put(name, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, many by one request."""
        if self._listing is not None:
            for name in names:
                self._listing.forget(name)
        if names:
            self._insist(names[0], lambda: self._store.delete(list(names)))

    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """Objects below a prefix, a thousand by one request."""
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
        """Folders just below a prefix: parts of names."""
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

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Read parts of an object; those that lie close together by one request."""
        filled = [(start, stop) for start, stop in ranges if stop > start]
        if not filled:
            return [b""] * len(ranges)
        starts, ends = zip(*filled, strict=True)
        parts = iter(
            self._insist(name, lambda: self._store.get_ranges(name, starts=starts, ends=ends))
        )
        return [bytes(next(parts)) if stop > start else b"" for start, stop in ranges]

    def put_file(self, name: str, path: Path) -> None:
        """Write an object from a file: a large one in parts, which become the object all at once."""
        size = path.stat().st_size
        if size <= SINGLE_BYTES:
            self.put(name, path.read_bytes())
            return
        options = {"chunk_size": max(PART_BYTES, -(-size // 9000)), "max_concurrency": 4}
        self._insist(name, lambda: self._store.put(name, path, use_multipart=True, **options))

    def fetch_file(self, name: str, path: Path) -> str:
        """Write an object to a new file, part by part, in memory that does not grow with it."""
        with path.open("xb") as stream:

            def fetch() -> str:
                stream.seek(0)
                stream.truncate()
                digest = hashlib.sha256()
                for chunk in self._store.get(name).stream(min_chunk_size=4 << 20):
                    part = bytes(chunk)
                    digest.update(part)
                    stream.write(part)
                return digest.hexdigest()

            return self._insist(name, fetch)

    def check(self) -> None:
        """Check that the bucket is there and answers: one request, which lists nothing of it.

        Raises
        ------
        RefusedStoreError, UnreachableStoreError
            If not, saying what to do.
        """
        self._insist(
            "", lambda: next(iter(self._store.list("leases", chunk_size=1)), None), CHECK_SECONDS
        )

    def _insist(self, name: str, request: Callable[[], R], seconds: float | None = None) -> R:
        """Make a request, and again where the connection ends without an answer, or within one.

        The client repeats a read that is not answered, and nothing else.
        """
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
        """Raise the errors of the interface, and those of a user's environment, in place of obstore's."""
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
                f"AWS_ENDPOINT_URL = {hide_secrets(endpoint)!r} is not encrypted; give one that starts with https://, "
                "or set AWS_ALLOW_HTTP=true for a server of your own network"
            )
        if "169.254.169.254" in said or "redential" in said:
            return self._refuse(
                "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, and AWS_ENDPOINT_URL "
                f"for a server that is not Amazon's) in the environment of this process ({said[:300]})"
            )
        if any(f" {code}" in said for code in ("401 Unauthorized", "403 Forbidden")):
            return self._refuse(
                "the request was refused; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this "
                f"process, and that they may read, write, list and delete there ({said[:500]})"
            )
        if any(f" {code} " in said for code in ("400", "404", "405", "409", "411", "416", "501")):
            return self._refuse(f"the server does not do what a store needs of it ({said[:500]})")
        return UnreachableStoreError(
            f"store {self.address!r}: no answer ({said[:300]}); check that the server at AWS_ENDPOINT_URL is up, and "
            "try again later"
        )

    def _refuse(self, problem: str) -> RefusedStoreError:
        return RefusedStoreError(f"store {self.address!r}: {problem}")


def hide_secrets(text: str) -> str:
    """Text without the credentials of this process."""
    for name in SECRETS:
        if len(value := os.environ.get(name, "")) > 3:
            text = text.replace(value, "***")
    return text
