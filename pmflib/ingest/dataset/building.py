"""Build a dataset from raw files: encode or quarantine rows, and assemble samples in partitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pmflib.base.errors import MisrememberedError, PmfError
from pmflib.base.hashing import HashArray
from pmflib.base.json_records import from_json
from pmflib.cluster.clients import Client, check_workers
from pmflib.cluster.item_maps import map_items, recall_items
from pmflib.cluster.maps import listen_to_counts
from pmflib.ingest.chunks import group_results
from pmflib.ingest.dataset.accounts import (
    DatasetAccount,
    StepSummary,
    add_weights,
    carry_account,
    combine_accounts,
)
from pmflib.ingest.dataset.build_steps import (
    BuildJob,
    FileSchemas,
    assemble_increment,
    assemble_partition,
    encode_file,
    recall,
    spill_file,
)
from pmflib.ingest.dataset.design_columns import name_replicates
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import (
    choose_buckets,
    estimate_csv_bytes,
    group_buckets,
    list_keys,
)
from pmflib.ingest.dataset.layering import (
    Base,
    find_touched,
    has_spills,
    join_keys,
    open_base,
    split_keys,
    supersede_samples,
)
from pmflib.ingest.dataset.spills import Spill, list_spills
from pmflib.ingest.options import DatasetOptions
from pmflib.ingest.sources import (
    Source,
    attempt,
    find_digest,
    find_sources,
    keep_readable,
    recall_digest,
)
from pmflib.ingest.splitting import FilePart, split_files
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, number_inputs
from pmflib.store.dataset import FileStep, open_layer, sum_weights, write_dataset, write_layers
from pmflib.store.objects.addresses import StoreAccess
from pmflib.store.objects.local_files import find_local_path

DAY = {"number": 86_400.0, "instant": 86_400e6}
"""Length of a day by time format: numbers are in seconds, instants in microseconds."""
R = TypeVar("R")
OnStep: TypeAlias = Callable[[str, int, int, int], None]
"""Progress callback, given the name of a step, its finished items, all its items, and the rows read so far."""


def build_dataset(
    client: Client,
    store: Store,
    options: DatasetOptions,
    schema: Schema,
    *,
    file_schemas: FileSchemas | None = None,
    base: Reference | None = None,
    rehash: bool = False,
    on_step: OnStep = lambda *_: None,
) -> Entry:
    """Build a dataset from raw files, reusing the artefacts of earlier calls on the same bytes.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the result has the same bytes.
    store
        Store that all workers can access.
    options
        Files, their layout, the policy for rows that do not fit, and the numbers of folds and buckets.
    schema
        Variables and levels.
    file_schemas
        Schemas of single files, such as the workers and labels of each file of a label log, so that new workers in
        other files do not affect it. The samples are the same.
    base
        Earlier dataset in the same store: only samples with rows in new, changed or removed files are assembled again,
        and other samples are kept by reference. The samples equal those of a fresh build; only the partitions differ.
        A base with another schema, layout, number of folds or buckets is ignored.
    rehash
        Whether to read all files, even those that seem unchanged: see `find_digest`.
    on_step
        Progress.

    Returns
    -------
    Entry of the dataset, whose summary is its `DatasetAccount`.

    Raises
    ------
    ConfigError
        If a worker cannot access the store.
    SourceError
        If a file is missing, empty, truncated or of another format, or changed while it was read; the message names all
        such files.
    SchemaError
        If the data do not fit the schema, and the policy is to stop.
    """
    build = partial(_build, client, store, options, schema, file_schemas, base, on_step=on_step)
    try:
        return build(rehash=rehash, heals=True)
    except MisrememberedError:
        # the wrong fingerprint was deleted: the file is read now
        return build(rehash=rehash, heals=False)


def _build(
    client: Client,
    store: Store,
    options: DatasetOptions,
    schema: Schema,
    file_schemas: FileSchemas | None,
    base: Reference | None,
    *,
    rehash: bool,
    heals: bool,
    on_step: OnStep,
) -> Entry:
    """Implement `build_dataset`; with ``heals``, raise an error at once if a fingerprint was wrong."""
    rule, skipped = options.source.on_unreadable_file, dict[str, str]()
    sources = find_sources(
        options.paths,
        options.source.suffixes,
        skip_empty=options.source.on_empty_file == "skip",
        skipped=skipped,
    )
    options = replace(options, source=name_replicates(sources, options.source))
    n_folds, root = options.folds, store.address
    # rows without identifiers cannot be erased
    erased = None if options.source.sample is None else ErasedSamples.of_store(store)
    job = BuildJob(
        root,
        schema,
        options.source,
        options.schema,
        n_folds,
        0,
        file_schemas,
        erased=erased,
        erased_workers=None if file_schemas is None else ErasedSamples.of_store(store, "workers"),
    )
    check_workers(client, StoreAccess(root))
    known: list[Any] = recall_items(partial(attempt, build=recall_digest), sources, root, rehash)
    find: Callable[..., str | PmfError] = partial(attempt, build=find_digest)
    digests: list[str | PmfError] = map_items(client, find, sources, root, rehash, known=known)
    files = [
        (
            replace(source, digest=digest, memory=root),
            store.record_source(source.name, digest, {"bytes": source.size}).reference,
        )
        for source, digest in keep_readable(sources, digests, rule, skipped)
    ]
    parts = split_files(client, store, options.source, files)
    if heals:
        _raise_misremembered(parts)
    found = keep_readable([source for source, _ in files], parts, rule, skipped)
    if options.source.sample is None:
        tried = _try_all(client, "encode files", encode_file, found, job, on_step)
        if heals:
            _raise_misremembered(tried)
        steps, partitions = _list_steps(found, tried, rule, skipped)
        account = combine_accounts([], _summarise(partitions), files_skipped=skipped)
        return _publish_fresh(store, job, steps, partitions, None, account)
    earlier = None
    if base is not None:
        earlier = open_base(store, base, job.origin, options.buckets)
    n_buckets = options.buckets or (
        earlier.n_buckets if earlier else choose_buckets(estimate_csv_bytes(sources), n_folds)
    )
    job = replace(job, n_buckets=n_buckets)
    tried = _try_all(client, "read files", spill_file, found, job, on_step)
    if heals:
        _raise_misremembered(tried)
    steps, spills = _list_steps(found, tried, rule, skipped)
    job = replace(job, since=find_start(spills, options.window_days))
    # row numbers of wide files are stored only if there is a single file
    if (
        earlier is not None
        and has_spills(store, earlier)
        and (options.source.layout == "long" or _is_single(steps) == _is_single(earlier.files))
    ):
        return _build_upon(client, store, earlier, job, steps, spills, skipped, on_step)
    listed = list_spills(store, steps).reference
    groups = group_buckets(estimate_csv_bytes(sources), n_buckets)
    partitions = _build_all(
        client, "sort partitions", assemble_partition, groups, job, on_step, listed
    )
    account = combine_accounts(
        _summarise(spills),
        _summarise(partitions),
        count_outside(client, store, spills, job.since),
        files_skipped=skipped,
    )
    keys = [(list_keys(first)[0], list_keys(stop - 1)[1]) for first, stop in groups]
    return _publish_fresh(store, job, steps, partitions, keys, account, listed)


def _raise_misremembered(tried: Sequence[object]) -> None:
    """Raise the first error about a wrong fingerprint."""
    for each in tried:
        if isinstance(each, MisrememberedError):
            raise each


def find_start(spills: Sequence[Entry], days: float | None) -> float:
    """Find the start of the window, some days before the newest row of all files.

    Parameters
    ----------
    spills
        Entries of all spills.
    days
        Length of the window, days; None for no window.

    Returns
    -------
    The time in the unit of the log; minus infinity if there is no window or no row has a time.
    """
    if days is None:
        return -math.inf
    ends = [
        times.newest - days * DAY[times.format]
        for times in (each.times for each in _summarise(spills))
        if times is not None and times.newest is not None and times.format is not None
    ]
    return max(ends, default=-math.inf)


def _summarise(entries: Sequence[Entry]) -> list[StepSummary]:
    """Read the summaries of manifest entries."""
    return [from_json(StepSummary, entry.summary, is_part=True) for entry in entries]


def count_outside(client: Client, store: Store, spills: Sequence[Entry], start: float) -> int:
    """Count the rows before the window; only files that are partly in it are opened."""
    n_past, paths = 0, []
    for spill, summary in zip(spills, _summarise(spills), strict=True):
        if _has_times(summary, -math.inf, start):
            if _has_times(summary, start, math.inf):
                paths.append(store.address_artefact(spill.reference))
            else:
                n_past += summary.account.rows_encoded
    return n_past + sum(map_items(client, _count_rows, paths, start))


def _has_times(summary: StepSummary, first: float, stop: float) -> bool:
    """Whether the time span of a file overlaps the interval [first, stop)."""
    times = summary.times
    if times is None or times.newest is None or times.oldest is None:
        return False
    return times.newest >= first and times.oldest < stop


def _count_rows(spill: str, stop: float) -> int:
    return Spill(find_local_path(spill), {}).count_rows(stop)


def find_moved(
    client: Client, store: Store, spills: Sequence[Entry], before: float, start: float
) -> list[HashArray]:
    """Keys of samples with rows between the starts of two windows, for each file that has such rows."""
    first, last = sorted((before, start))
    paths = [
        store.address_artefact(spill.reference)
        for spill, summary in zip(spills, _summarise(spills), strict=True)
        if _has_times(summary, first, last)
    ]
    return map_items(client, _read_keys_between, paths, first, last) if first < last else []


def _read_keys_between(spill: str, start: float, stop: float) -> HashArray:
    return Spill(find_local_path(spill), {}).read_keys_between(start, stop)


def _is_single(steps: Sequence[FileStep]) -> bool:
    return len({step.name for step in steps}) == 1


def _build_upon(
    client: Client,
    store: Store,
    base: Base,
    job: BuildJob,
    steps: Sequence[FileStep],
    spills: Sequence[Entry],
    skipped: Mapping[str, str],
    on_step: OnStep,
) -> Entry:
    """Build a dataset upon another: assemble only the samples whose rows have changed."""
    references = [step.step for step in steps]
    same = job.since == base.since and skipped == base.account.files_skipped
    if same and list(steps) == list(base.files):
        return base.entry
    moved = find_moved(client, store, spills, base.since, job.since)
    touched = join_keys([find_touched(client, store, base, references), *moved])
    left = supersede_samples(client, base, touched)
    carried = carry_account(base.account, left.lost)
    n_rows = sum(spill.summary["rows_encoded"] for spill in spills) - carried.account.rows_in
    listed = list_spills(store, steps).reference
    items = split_keys(left.keys, n_rows)
    built = _build_all(client, "sort partitions", assemble_increment, items, job, on_step, listed)
    account = combine_accounts(
        _summarise(spills),
        [carried, *_summarise(built)],
        count_outside(client, store, spills, job.since),
        files_skipped=skipped,
    )
    layers = list(left.layers)
    for entry, keys in zip(built, items, strict=True):
        if entry.summary["samples"]:
            layers.append(open_layer(store, entry.reference, (int(keys[0]), int(keys[-1]))))
    account = replace(account, blocks=sum(len(layer.blocks) for layer in layers))
    content = account.to_json()

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        origin = {**job.origin, **job.window, "buckets": job.n_buckets}
        write_layers(folder, layers, content, steps, origin)
        return add_weights(content, sum_weights(folder))

    return store.build(
        "dataset",
        inputs={
            "base": base.entry.reference,
            "spills": listed,
            **number_inputs("samples", [layer.partition for layer in layers]),
        },
        options={"schema": job.schema.digest, "skipped": content["files_skipped"]},
        version=job.version,
        write=write,
    )


def _list_steps(
    files: Sequence[tuple[Source, Sequence[FilePart]]],
    tried: Sequence[list[Entry] | PmfError],
    rule: str,
    skipped: dict[str, str],
) -> tuple[list[FileStep], list[Entry]]:
    """Chunks of the readable files, with the artefacts of their rows."""
    raw = {source.name: parts[0].raw for source, parts in files}
    read = keep_readable([source for source, _ in files], tried, rule, skipped)
    pairs = [(source.name, entry) for source, entries in read for entry in entries]
    steps = [FileStep(name, raw[name], entry.reference) for name, entry in pairs]
    return steps, [entry for _, entry in pairs]


def _try_all(
    client: Client,
    name: str,
    build: Callable[[Any, BuildJob], Entry],
    files: Sequence[tuple[Source, Sequence[FilePart]]],
    job: BuildJob,
    on_step: OnStep,
) -> list[list[Entry] | PmfError]:
    """Call `_build_all` on the chunks of all files; a file that cannot be used gives its error instead of entries."""
    chunks = [part for _, parts in files for part in parts]
    tried: list[Entry | PmfError] = _build_all(
        client, name, partial(attempt, build=build), chunks, job, on_step
    )
    return group_results([parts for _, parts in files], tried)


def _build_all(
    client: Client,
    name: str,
    build: Callable[..., R],
    items: Sequence[Any],
    job: BuildJob,
    on_step: OnStep,
    *shared: Any,
) -> list[R]:
    """Build one artefact per item on the workers, and report progress."""
    n_items, n_done, n_rows = len(items), 0, 0

    def show() -> None:
        # the last report, below, has the rows of all items
        if n_done < n_items:
            on_step(name, n_done, n_items, n_rows)

    def on_rows(count: int) -> None:
        nonlocal n_rows
        n_rows += count
        show()

    def on_result(done: int) -> None:
        nonlocal n_done
        n_done = done
        show()

    known = recall_items(partial(recall, build=build), items, job, *shared)
    n_done = sum(entry is not None for entry in known)
    show()
    # no workers are needed if nothing is to be built
    with listen_to_counts(client if n_done < n_items else None, on_rows) as topic:
        heard = replace(job, topic=topic)
        entries = map_items(client, build, items, heard, *shared, known=known, on_result=on_result)
    # rows of items found in the store count as well
    done = [entry for entry in entries if isinstance(entry, Entry)]
    on_step(name, n_items, n_items, sum(entry.summary["rows_in"] for entry in done))
    return entries


def _publish_fresh(
    store: Store,
    job: BuildJob,
    steps: Sequence[FileStep],
    partitions: Sequence[Entry],
    keys: Sequence[tuple[int, int]] | None,
    account: DatasetAccount,
    spills: Reference | None = None,
) -> Entry:
    """Publish a dataset of complete partitions."""
    references = [entry.reference for entry in partitions]
    content = account.to_json()

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        origin = {**job.origin, **job.window, "buckets": job.n_buckets}
        write_dataset(folder, store, references, content, keys=keys, files=steps, origin=origin)
        return add_weights(content, sum_weights(folder))

    return store.build(
        "dataset",
        inputs={
            **({} if spills is None else {"spills": spills}),
            **number_inputs("samples", references),
        },
        options={"schema": job.schema.digest, "skipped": content["files_skipped"]},
        version=job.version,
        write=write,
    )
