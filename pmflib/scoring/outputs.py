"""Where predictions go: folders of parts, one file joined from them, and the record of what they were made of."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.core.errors import ConfigError, StoreError
from pmflib.store.table_files import check_no_file

PARTS = "parts"
"""Folder of parts among the checkpoints of an artefact."""
RECORD = "_scores.json"
"""What a folder of parts was made of, and its account of rows once it is whole."""


def publish_parts(folder: Path, output: Path, n_samples: int) -> dict[str, str]:
    """Put parts where a person wants them: into one file, or into a folder of their own.

    Parameters
    ----------
    folder
        Parts, and their quarantine.
    output
        File .csv or .parquet; or a folder, which may be the same. Predictions that are there are replaced.
    n_samples
        As for `check_parts`.

    Returns
    -------
    Where the ``quarantine`` is, if there is any.

    Raises
    ------
    ConfigError
        If the folder holds something else than predictions.
    StoreError
        If the parts are not those of all samples.
    """
    from pmflib.scoring.parts import QUARANTINE_FOLDER
    from pmflib.store.table_files import join_files

    check_parts(folder, n_samples)
    rejected = folder / QUARANTINE_FOLDER
    if output.suffix.lower() in (".csv", ".parquet"):
        join_files(folder, output)
        path = _name_quarantine(output)
        path.unlink(missing_ok=True)
        if rejected.is_dir():
            join_files(rejected, path)
            return {"quarantine": str(path)}
        return {}
    if output != folder:
        _replace_parts(folder, output)
    return {"quarantine": str(output / QUARANTINE_FOLDER)} if rejected.is_dir() else {}


def check_output_folder(output: Path) -> None:
    """Refuse a folder for predictions that holds something else: those of an earlier night are replaced.

    Raises
    ------
    ConfigError
        If it is a file, or holds anything, and no record of predictions.
    """
    check_no_file(output)
    if output.is_dir() and not (output / RECORD).exists() and any(output.iterdir()):
        raise ConfigError(
            f"output {str(output)!r} holds something else than predictions; name another folder, or remove it"
        )


def _replace_parts(folder: Path, output: Path) -> None:
    """Copy parts into a folder, and delete those of earlier predictions there: of more files there were more."""
    check_output_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    # whatever ends here leaves a folder that is known as one of predictions
    write_record(output / RECORD, {})
    drafts = {}
    for part in sorted(folder.rglob("*.parquet")):
        path = output / part.relative_to(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        drafts[path] = path.with_name(f".{path.name}.draft")
        shutil.copyfile(part, drafts[path])
    kept = {*drafts, *drafts.values()}
    for stale in {*output.rglob("*.parquet"), *output.rglob(".*.draft")} - kept:
        stale.unlink()
    for path, draft in drafts.items():
        draft.replace(path)
    for each in [path for path in output.iterdir() if path.is_dir() and not any(path.iterdir())]:
        each.rmdir()


def mark_files(output: Path) -> dict[str, list[int]]:
    """Sizes and times of the files of an output, by which one that is no longer whole is noticed.

    Parameters
    ----------
    output
        File .csv or .parquet, whose quarantine stands beside it; or a folder.

    Returns
    -------
    Bytes, and nanoseconds of the last change, by the name of the file.
    """
    paths = [output, _name_quarantine(output)]
    if output.is_dir():
        paths = sorted(output.rglob("*.parquet"))
    return {
        str(path.relative_to(output.parent)): [path.stat().st_size, path.stat().st_mtime_ns]
        for path in paths
        if path.exists()
    }


def _name_quarantine(output: Path) -> Path:
    return output.with_name(f"{output.stem}.quarantine.parquet")


def claim_parts(work: Path) -> Path:
    """Folder for parts in the folder of checkpoints of an artefact: what an interrupted run finished is there."""
    folder = work / PARTS
    folder.mkdir(exist_ok=True)
    return folder


def publish_folder(work: Path, folder: Path, n_samples: int) -> None:
    """Move finished parts, and what is beside them, into the folder of the artefact.

    Raises
    ------
    StoreError
        If the parts are not those of all samples: see `check_parts`.
    """
    check_parts(work / PARTS, n_samples)
    for path in sorted((work / PARTS).iterdir()):
        path.rename(folder / path.name)


def check_parts(folder: Path, n_samples: int) -> None:
    """See that parts hold a row for each sample, by their metadata: none is lost, whatever happened to the files.

    Parameters
    ----------
    folder
        The parts.
    n_samples
        Number of samples that were scored.

    Raises
    ------
    StoreError
        If they do not.
    """
    import pyarrow.parquet as pq

    found = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
    if found != n_samples:
        raise StoreError(
            f"predictions in {str(folder)!r} have {found} rows for {n_samples} samples that were scored: something "
            "else wrote or deleted files there meanwhile; delete the folder, and run again"
        )


def claim_output(folder: Path, identity: str, *, as_file: bool) -> None:
    """Make room in a folder for parts, or find those of an interrupted call there.

    Parameters
    ----------
    folder
        The folder, which this process holds: see `pmflib.store.table_files.hold_output`.
    identity
        What the parts are made of.
    as_file
        Whether they are drafts of one file, and those of another may go.

    Raises
    ------
    ConfigError
        If it holds something else.
    """
    known = read_output_record(folder / RECORD)
    if known.get("identity") != identity or "account" in known:
        _make_room(folder, is_ours=as_file or known.get("identity") == identity)
        write_record(folder / RECORD, {"identity": identity})


def _make_room(folder: Path, *, is_ours: bool) -> None:
    """Delete what is in a folder: drafts of other scores, which nobody has seen, or scores that are no longer whole."""
    found = list(folder.iterdir())
    if found and not is_ours:
        raise ConfigError(
            f"output {str(folder)!r} holds something else: other data, another model, other options; name "
            "another folder, or remove it"
        )
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def clear_output(folder: Path) -> None:
    """Delete a folder of parts that `claim_output` made room in: those of files that are refused are no scores."""
    _make_room(folder, is_ours=True)
    folder.rmdir()


def read_output_record(path: Path) -> dict[str, Any]:
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
