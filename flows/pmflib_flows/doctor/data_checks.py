"""Health checks of what a run reads and writes: schema, sources, store and disks."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import psutil

from pmflib.base.errors import PmfError
from pmflib.base.machine import find_temporary_danger
from pmflib.base.texts import mask_secrets
from pmflib.cluster.clients import Client
from pmflib.cluster.memory import format_bytes
from pmflib.ingest.sources import find_sources, open_source
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket, open_objects
from pmflib.store.objects.interface import ObjectChangedError, Objects
from pmflib.store.run_records import list_records
from pmflib_flows.doctor.server_checks import ask_workers
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.health import HealthLine
from pmflib_tasks.stage import load_schema

FULL_BYTES, LOW_BYTES = 100 << 20, 1 << 30
"""Free bytes below which a disk counts as full, and as nearly full."""


def check_schema(config: PipelineConfig) -> HealthLine:
    """Check that the schema can be read and has the target."""
    schema = load_schema(config)
    counted = f"{schema.n_variables:,} variables, {schema.n_levels:,} levels"
    return HealthLine("ok", "schema", counted)


def check_sources(config: PipelineConfig, client: Client) -> HealthLine:
    """Check that the raw files can be read here, and that every worker finds the same files."""
    source = config.source
    wanted = config.source_paths, source.suffixes, source.on_empty_file == "skip"
    n_files, n_bytes = measure_sources(*wanted)
    said = f"{n_files:,} file{'' if n_files == 1 else 's'}, {format_bytes(n_bytes)}"
    for worker, seen in ask_workers(client, measure_sources, *wanted).items():
        if seen != (n_files, n_bytes):
            error = mask_secrets(str(seen)) if isinstance(seen, Exception) else "other files"
            remedy = "put the files under the same path everywhere; each worker needs the credentials of a bucket"
            return HealthLine(
                "FAIL", "sources", f"{said} here, at worker {worker}: {error}", remedy, "source"
            )
    return HealthLine("ok", "sources", said)


def measure_sources(
    paths: tuple[str, ...], suffixes: tuple[str, ...], skip_empty: bool
) -> tuple[int, int]:
    """Count raw files and their bytes as this process sees them, and read one byte of the first file.

    Parameters
    ----------
    paths, suffixes, skip_empty
        As for `find_sources`.

    Raises
    ------
    SourceError
        If there are no files, or one cannot be read.
    """
    found = find_sources(paths, suffixes, skip_empty=skip_empty)
    with open_source(found[0], unpack=False) as stream:
        stream.read(1)
    return len(found), sum(each.size for each in found)


def check_store(config: PipelineConfig, client: Client) -> HealthLine:
    """Check that the store can be written and published to, that its records can be read, and that workers share it.

    A probe object is created and deleted. If the store does not exist yet, the nearest existing parent folder is tried.
    """
    path = config.resolve(config.store.path)
    location = path if is_bucket(path) else str(find_existing_folder(path))
    objects, name = open_objects(location), f".pmf-probe-{uuid.uuid4().hex}"
    try:
        objects.create(name, b"first")
        lacking = find_lacking_conditions(objects, name)
        unseen = {
            worker: said
            for worker, said in ask_workers(client, see_object, location, name).items()
            if said
        }
    finally:
        with suppress(OSError, PmfError):
            objects.delete([name])
    if lacking:
        remedy = "put the store on a local disk, on NFS, or in a bucket"
        said = f"{location}: publication needs more than this storage does: {lacking}"
        return HealthLine("FAIL", "store", said, remedy, "store")
    if unseen:
        worker, said = next(iter(unseen.items()))
        said = f"{len(unseen)} workers do not share {location}, such as {worker}: {said}"
        remedy = "mount one folder under one path everywhere; each worker needs the credentials of a bucket"
        return HealthLine("FAIL", "store", said, remedy, "store")
    if not is_bucket(path) and not Path(path, "manifest").is_dir():
        return HealthLine(
            "ok", "store", f"{path} is not there yet; the first run creates it in {location}"
        )
    n_runs = len(list_records(Store(path), config.name))
    return HealthLine("ok", "store", f"{path} can be read and written; {n_runs:,} recorded runs")


def find_existing_folder(path: str) -> Path:
    """Find a folder or its nearest existing parent.

    Raises
    ------
    NotADirectoryError
        If that is a file.
    """
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file, not a folder")
    return there


def find_lacking_conditions(objects: Objects, name: str) -> str:
    """Return which condition of publication a storage does not meet; empty if it meets all of them.

    Parameters
    ----------
    objects
        The storage.
    name
        Name of a probe object that exists.
    """
    try:
        objects.create(name, b"second")
        return "it creates an object over an existing one (If-None-Match)"
    except FileExistsError:
        pass
    tag = objects.read(name)[1]
    objects.replace(name, b"second", tag)
    try:
        objects.replace(name, b"third", tag)
        return "it replaces an object that has changed meanwhile (If-Match)"
    except ObjectChangedError:
        return ""


def see_object(location: str, name: str) -> str:
    """Return why this process cannot read an object; empty if it can.

    Parameters
    ----------
    location
        Folder, or address of a bucket.
    name
        Name of the object.
    """
    try:
        open_objects(location).read(name)
    except FileNotFoundError:
        return "another folder or bucket under the same address"
    except (OSError, PmfError) as error:
        return str(error)
    return ""


def check_store_disk(config: PipelineConfig) -> HealthLine:
    """Check the free space for the store; for a store in a bucket, that of its cache on this machine."""
    path = config.resolve(config.store.path)
    remedy = "free some space; `pmf gc` deletes what no kept run needs"
    if is_bucket(path):
        remedy = "free some space, or set PMF_MIRROR to a folder on another disk"
    folder = find_existing_folder(str(open_objects(path).find_root()))
    return _check_space("store disk", folder, remedy)


def check_temporary_folder() -> HealthLine:
    """Check that no other user can replace temporary files, and the free space for them."""
    remedy = "set TMPDIR to a folder of your own, with free space"
    if danger := find_temporary_danger():
        return HealthLine("FAIL", "temporary files", danger, remedy, "configuration")
    return _check_space("temporary files", Path(tempfile.gettempdir()), remedy)


def _check_space(what: str, folder: Path, remedy: str) -> HealthLine:
    free = psutil.disk_usage(str(folder)).free
    said = f"{format_bytes(free)} free at {folder}"
    if free < FULL_BYTES:
        return HealthLine("FAIL", what, said, remedy, "store")
    if free < LOW_BYTES:
        return HealthLine("warn", what, said, remedy)
    return HealthLine("ok", what, said)
