"""Work that was interrupted: which stage it is of, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pmflib.store.artefacts import KIND_FILE, Store


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
    for folder in (store.root / "work").iterdir():
        try:
            kind = (folder / KIND_FILE).read_text("utf-8")
            began = datetime.fromtimestamp((folder / KIND_FILE).stat().st_mtime, UTC)
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            found.append(UnfinishedWork("", folder.name, ""))
            continue
        found.append(UnfinishedWork(kind, folder.name, began.isoformat(timespec="seconds")))
    return sorted(found, key=lambda work: (work.since, work.identity))
