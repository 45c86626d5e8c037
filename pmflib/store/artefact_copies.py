"""Copy of one artefact from a store to another, each file compared with its digest."""

from __future__ import annotations

import json
import os
import shutil

from pmflib.errors import StoreError
from pmflib.objects.drafts import mark_draft
from pmflib.objects.private_files import make_folder
from pmflib.store.artefacts import Reference, Store
from pmflib.store.copy_plans import read_or_none
from pmflib.store.file_digests import digest_list
from pmflib.store.mirrors import LIST_FILE
from pmflib.store.places import digest_place


def copy_artefact(source: Store, target: Store, reference: Reference, verify: bool) -> int | None:
    """Copy the files of an artefact, and publish them; bytes of them, or None where they are there.

    Parameters
    ----------
    source, target
        The stores.
    reference
        The artefact; one of a raw source has no files.
    verify
        Whether every byte of an artefact that is there is read, and a damaged one copied again.

    Raises
    ------
    StoreError
        If the artefact is damaged or gone: nothing of it is published then.
    """
    if not reference.path or is_there(target, reference, verify):
        return None
    ours = source.objects
    digests = _read_list(source, reference)
    draft = target.root / "tmp" / mark_draft(reference.kind)
    make_folder(draft)
    try:
        total = 0
        for name, digest in digests.items():
            path = draft / name
            make_folder(path.parent)
            try:
                read = ours.fetch_file(f"{reference.path}/{name}", path)
            except FileNotFoundError:
                raise report_vanished(source, reference) from None
            if read != digest:
                raise StoreError(
                    f"file {name!r} of {reference.path} in store {source.name!r} is not what was published, and "
                    "is not copied; `pmf verify` lists all that is damaged there, and what to do. What was copied "
                    "before it stays"
                )
            total += path.stat().st_size
        text = json.dumps(digests, indent=0, sort_keys=True, ensure_ascii=False)
        (draft / LIST_FILE).write_text(text, "utf-8")
        target.publish(draft, reference)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return total


def is_there(target: Store, reference: Reference, verify: bool) -> bool:
    """Whether a store has an artefact: its list of digests, or also every byte."""
    content = read_or_none(target, f"{reference.path}/{LIST_FILE}")
    try:
        digests = json.loads(content or b"{}")
        if content is None or digest_list(digests) != reference.digest:
            return False
    except (ValueError, AttributeError, TypeError):
        return False
    return not verify or digest_place(target, reference.path) == digests


def _read_list(source: Store, reference: Reference) -> dict[str, str]:
    """List of an artefact's files, authenticated by the entry."""
    content = read_or_none(source, f"{reference.path}/{LIST_FILE}")
    if content is None:
        raise report_vanished(source, reference)
    try:
        digests = {str(name): str(digest) for name, digest in json.loads(content).items()}
        if digest_list(digests) == reference.digest and all(map(_is_inner, digests)):
            return digests
        problem = "it is not the one that was published"
    except (ValueError, AttributeError) as error:
        problem = str(error)
    raise StoreError(
        f"list of digests of {reference.path} in store {source.name!r} is damaged ({problem}); `pmf verify` "
        "lists all that is damaged there, and what to do"
    )


def _is_inner(name: str) -> bool:
    """Whether the name of a file stays in its folder, as every published one does."""
    return not os.path.isabs(name) and ".." not in name.split("/")


def report_vanished(source: Store, reference: Reference) -> StoreError:
    """Error for an artefact that a copy was to take, and that is not there any more."""
    return StoreError(
        f"{reference.kind} {reference.digest[:12]} is not in store {source.name!r}: `pmf gc` took it away just "
        "now, and the same command goes on without it, or it is lost, and `pmf verify` says what to do there"
    )
