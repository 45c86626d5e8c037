"""Where predictions go: folders of parts, one file joined from them, and the record of what they were made of."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.errors import ConfigError

PARTS = "parts"
"""Folder of parts among the checkpoints of an artefact."""
RECORD = "_scores.json"
"""What a folder of parts was made of, and its account of rows once it is whole."""


def publish_parts(folder: Path, output: Path) -> dict[str, str]:
    """Put parts where a person wants them: into one file, or into a folder of their own.

    Parameters
    ----------
    folder
        Parts, and their quarantine.
    output
        File .csv or .parquet; or a folder, which may be the same.

    Returns
    -------
    Where the ``quarantine`` is, if there is any.
    """
    from pmflib.model.score_parts import QUARANTINE_FOLDER
    from pmflib.table_files import join_files

    rejected = folder / QUARANTINE_FOLDER
    if output.suffix.lower() in (".csv", ".parquet"):
        join_files(folder, output)
        path = output.with_name(f"{output.stem}.quarantine.parquet")
        path.unlink(missing_ok=True)
        if rejected.is_dir():
            join_files(rejected, path)
            return {"quarantine": str(path)}
        return {}
    if output != folder:
        for part in sorted(folder.rglob("*.parquet")):
            place = output / part.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_name(f".{place.name}.draft")
            shutil.copyfile(part, draft)
            draft.replace(place)
    return {"quarantine": str(output / QUARANTINE_FOLDER)} if rejected.is_dir() else {}


def claim_parts(work: Path) -> Path:
    """Folder for parts in the folder of checkpoints of an artefact: what an interrupted run finished is there."""
    folder = work / PARTS
    folder.mkdir(exist_ok=True)
    return folder


def publish_folder(work: Path, folder: Path) -> None:
    """Move finished parts, and what is beside them, into the folder of the artefact."""
    for path in sorted((work / PARTS).iterdir()):
        path.rename(folder / path.name)


def claim_output(folder: Path, identity: str, *, as_file: bool) -> None:
    """Make a folder for parts, or find those of an interrupted call there.

    Parameters
    ----------
    folder
        The folder.
    identity
        What the parts are made of.
    as_file
        Whether they are drafts of one file, and those of another may go.

    Raises
    ------
    ConfigError
        If it holds something else.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        if not folder.is_dir():
            raise ConfigError(
                f"output {str(folder)!r} is a file; name a folder, or a file .csv or .parquet"
            )
        if read_record(folder / RECORD).get("identity") == identity:
            return
        if as_file:
            # drafts of other scores, which nobody has seen
            shutil.rmtree(folder)
        elif any(folder.iterdir()):
            raise ConfigError(
                f"output {str(folder)!r} holds something else: other data, another model, other options; name "
                "another folder, or remove it"
            )
    folder.mkdir(exist_ok=True)
    write_record(folder / RECORD, {"identity": identity})


def read_record(path: Path) -> dict[str, Any]:
    """Read what `write_record` wrote; nothing where there is none, or it does not read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, which is there only once it is whole."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(content, indent=1), "utf-8")
    os.replace(draft, path)
