"""Outputs of predictions: folders of parts, files joined from parts, and the record of their inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pmflib.base.errors import ConfigError, StoreError
from pmflib.base.json_files import parse_json, read_json
from pmflib.schema.file_columns import FileColumn
from pmflib.store.table_files import ACCOUNT, check_no_file, draft_file, list_suffixes

PARTS = "parts"
"""Folder of parts in the checkpoints of an artefact."""
RECORD = "_scores.json"
"""Record of a folder of parts: its inputs, and its account of rows once it is complete."""


def publish_parts(
    folder: Path,
    output: Path,
    n_samples: int,
    described: Mapping[str, FileColumn] = MappingProxyType({}),
) -> dict[str, str]:
    """Publish parts as one file, or as a folder.

    Parameters
    ----------
    folder
        Folder of the parts and their quarantine.
    output
        A file with one of `list_suffixes`, or a folder, which may be the same. Existing predictions are replaced.
    n_samples
        As for `check_parts`.
    described
        As for `pmflib.store.table_files.write_file`.

    Returns
    -------
    The path of the ``quarantine``, if there is one.

    Raises
    ------
    ConfigError
        If the folder holds anything but predictions.
    StoreError
        If the parts do not cover all samples.
    """
    from pmflib.answering.sample_tables.parts import QUARANTINE_FOLDER
    from pmflib.store.table_files import join_files

    check_parts(folder, n_samples)
    rejected = folder / QUARANTINE_FOLDER
    if output.suffix.lower() in list_suffixes():
        join_files(folder, output, described=described)
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
    """Refuse an output folder that holds anything but predictions, which are replaced.

    Raises
    ------
    ConfigError
        If it is a file, or holds files without a record of predictions.
    """
    check_no_file(output)
    if output.is_dir() and not (output / RECORD).exists() and any(output.iterdir()):
        raise ConfigError(
            f"output {str(output)!r} holds something else than predictions; name another folder, or remove it"
        )


def _replace_parts(folder: Path, output: Path) -> None:
    """Copy parts into a folder, and delete the parts of earlier predictions there."""
    check_output_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    # if this is interrupted, the record marks the folder as one of predictions
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
    """Record the sizes and times of the files of an output, to notice later changes.

    Parameters
    ----------
    output
        A file with one of `list_suffixes`, with its quarantine beside it, or a folder.

    Returns
    -------
    Size in bytes and time of the last change in nanoseconds, by name of the file.
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
    """Return the folder for parts in the checkpoints of an artefact, with the parts of an interrupted run."""
    folder = work / PARTS
    folder.mkdir(exist_ok=True)
    return folder


def publish_folder(work: Path, folder: Path, n_samples: int) -> None:
    """Move finished parts and their quarantine into the folder of the artefact.

    Raises
    ------
    StoreError
        If the parts do not cover all samples: see `check_parts`.
    """
    check_parts(work / PARTS, n_samples)
    for path in sorted((work / PARTS).iterdir()):
        path.rename(folder / path.name)


def check_parts(folder: Path, n_samples: int) -> None:
    """Check by the accounts in their metadata that parts are those of all samples.

    Parameters
    ----------
    folder
        The parts.
    n_samples
        Number of scored samples.

    Raises
    ------
    StoreError
        If they are not.
    """
    import pyarrow.parquet as pq

    metadata = [pq.read_metadata(path).metadata or {} for path in folder.glob("*.parquet")]
    accounts = [parse_json(each.get(ACCOUNT, b"{}")) for each in metadata]
    found = sum(each.get("rows_in", 0) - each.get("rows_quarantined", 0) for each in accounts)
    if found != n_samples:
        raise StoreError(
            f"predictions in {str(folder)!r} are of {found} samples, and {n_samples} were scored: something else wrote "
            "or deleted files there meanwhile; delete the folder, and run again"
        )


def claim_output(folder: Path, identity: str, *, as_file: bool) -> None:
    """Prepare a folder for parts, keeping those of an interrupted call.

    Parameters
    ----------
    folder
        The folder, locked by this process: see `pmflib.store.table_files.hold_output`.
    identity
        Hash of the inputs of the parts.
    as_file
        Whether parts are drafts of one file, so that those of other inputs may be deleted.

    Raises
    ------
    ConfigError
        If it holds anything else.
    """
    known = read_output_record(folder / RECORD)
    if known.get("identity") != identity or "account" in known:
        _make_room(folder, is_ours=as_file or known.get("identity") == identity)
        write_record(folder / RECORD, {"identity": identity})


def _make_room(folder: Path, *, is_ours: bool) -> None:
    """Empty a folder of drafts or of incomplete scores; refuse one that holds anything else."""
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
    """Delete a folder of parts from `claim_output`, whose files were refused."""
    _make_room(folder, is_ours=True)
    folder.rmdir()


def read_output_record(path: Path) -> dict[str, Any]:
    """Read a record from `write_record`; empty if it is missing or unreadable."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    with draft_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1), "utf-8")
