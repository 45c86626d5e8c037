"""Work that was interrupted: which stage it is of, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pmflib.store.artefacts import Store
from pmflib.store.work_folders import KIND_FILE


@dataclass(frozen=True)
class UnfinishedWork:
    """An artefact that was not finished, and whose checkpoints wait for the next run.

    Parameters
    ----------
    kind
        Kind of the artefact; "" where it is not known.
    identity
        Its identity.
    since
        When work on it was started: UTC, ISO 8601; "" where it is not known.
    """

    kind: str
    identity: str
    since: str


def list_unfinished(store: Store) -> list[UnfinishedWork]:
    """Work of a store that was started and not ended, the oldest first."""
    found = []
    marks = {facts.name: facts for facts in store.objects.list_objects("work")}
    # of a local store, also folders without a checkpoint
    for identity in {name.split("/")[1] for name in marks} | {*store.objects.list_folders("work")}:
        mark = f"work/{identity}/{KIND_FILE}"
        try:
            kind = store.objects.read(mark)[0].decode("utf-8")
            began = datetime.fromtimestamp(marks[mark].touched, UTC)
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, KeyError):
            found.append(UnfinishedWork("", identity, ""))
            continue
        found.append(UnfinishedWork(kind, identity, began.isoformat(timespec="seconds")))
    return sorted(found, key=lambda work: (work.since, work.identity))
