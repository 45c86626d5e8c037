"""Fingerprints of raw files: what is remembered with a digest, so that unchanged bytes are not read again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from pmflib.errors import PmfError
from pmflib.ingest.sources import Source, describe_file, digest_source
from pmflib.objects.addresses import open_objects

FINGERPRINTS = "fingerprints"
"""Folder of a store: a JSON file for each place that a raw file was read from, named by the digest of its URL."""
MARGIN = 2.0
"""Seconds that a file must have been left alone before its bytes are hashed for the digest to be remembered: file
systems keep times in steps of up to two seconds, and within one a change would not be seen."""
LOCAL_MARKS = ("size", "mtime", "created", "ino")
"""What changes with a local file: size, times of the last change of its content and of its state, inode."""
REMOTE_MARKS = (
    *("ETag", "etag", "e_tag", "VersionId", "version_id", "version"),
    *("generation", "md5Hash", "Content-MD5"),
)
"""What changes with a remote file, besides its size; one that has none of them is always hashed."""


def find_digest(source: Source, root: str, rehash: bool = False) -> str:
    """SHA-256 of a raw file's bytes; they are read only if the file may have changed since they were last hashed.

    Parameters
    ----------
    source
        The file.
    root
        Folder or URL of the store that remembers digests.
    rehash
        Whether to read the bytes in any case.

    Raises
    ------
    SourceError
        If the file cannot be opened.
    """
    if (known := recall_digest(source, root, rehash)) is not None:
        return known
    marks = take_marks(source)
    started = time.time()
    digest = digest_source(source)
    # a change while the bytes were read, or just before, would not show in the marks
    quiet = "mtime" not in marks or marks["mtime"] < started - MARGIN
    if marks and quiet and take_marks(source) == marks:
        content = json.dumps({"marks": marks, "digest": digest}).encode()
        open_objects(root).put(_name_memory(source), content)
    return digest


def recall_digest(source: Source, root: str, rehash: bool = False) -> str | None:
    """Digest of a raw file, where it is known without reading the file; None otherwise. As for `find_digest`."""
    marks = {} if rehash else take_marks(source)
    return _recall(source, root, marks) if marks else None


def _name_memory(source: Source) -> str:
    """Name of what remembers the digest of a raw file."""
    place = hashlib.sha256(source.url.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{FINGERPRINTS}/{place}.json"


def take_marks(source: Source) -> dict[str, Any]:
    """Take what changes with a file from what its file system says; nothing if that is not enough."""
    facts: Mapping[str, Any] = describe_file(source)
    if all(isinstance(facts.get(name), int | float) for name in LOCAL_MARKS):
        return {name: facts[name] for name in LOCAL_MARKS}
    found = {name: str(facts[name]) for name in REMOTE_MARKS if facts.get(name)}
    return found and {"size": facts.get("size"), **found}


def _recall(source: Source, root: str, marks: Mapping[str, Any]) -> str | None:
    """Digest that was remembered with the same marks; None if there is none, or it cannot be read."""
    try:
        content = json.loads(open_objects(root).read(_name_memory(source))[0].decode("utf-8"))
        known = content["digest"]
        same = (
            content["marks"] == marks and len(bytes.fromhex(known)) == hashlib.sha256().digest_size
        )
        return str(known) if same else None
    except PmfError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
