"""Sizes of a user's own log and fit: from its files, a few of its first rows, and the last run of its pipeline."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pmflib.fitting.candidates import Options
from pmflib.planning.sizes import FitSize, LogSize
from pmflib.schema import Schema

if TYPE_CHECKING:
    from pmflib.config import PipelineConfig
    from pmflib.ingest.sources import Source

SAMPLED_BYTES = 1 << 20
"""Bytes of the first file that are looked at."""
ASSUMED_RANK = 20
"""Rank where it is yet to be chosen."""
ASSUMED_PASSES = 50
"""Passes of a run of EM where no run has been made."""
COMPARED_PSEUDO_COUNTS = 3
"""Pseudo-counts that are compared where the first is best: it, and a neighbour on each side."""


def measure_log(
    config: PipelineConfig, schema: Schema, facts: dict[str, Any], n_bytes_then: int = 0
) -> tuple[LogSize, list[str]]:
    """Measure the log of a pipeline: its files, and rows by the last run or else by the first rows.

    Parameters
    ----------
    config
        Section ``source`` names the files.
    schema
        Variables and levels.
    facts
        Account of rows of the last run: ``rows_in``, ``samples`` and ``observed``; empty where there is none.
    n_bytes_then
        Bytes of the files of that run: rows are taken to grow with them.

    Returns
    -------
    The size, and notes on where it is from.

    Raises
    ------
    SourceError
        If there are no files, or the first cannot be read.
    """
    from pmflib.ingest.buckets import estimate_csv_bytes
    from pmflib.ingest.readers import count_group_rows, is_parquet
    from pmflib.ingest.sources import PACKED, find_sources

    source = config.source
    found = find_sources(config.source_paths, source.suffixes, skip_empty=True)
    raw_bytes, csv_bytes = sum(each.size for each in found), estimate_csv_bytes(found)
    first, parquet = found[0], is_parquet(found[0], source)
    cut: Literal["bytes", "row groups", "not"] = "row groups" if parquet else "bytes"
    if not parquet and first.name.lower().endswith(PACKED):
        cut = "not"
    n_cells, samples = schema.n_variables, 0
    if facts.get("samples"):
        factor = raw_bytes / n_bytes_then if n_bytes_then else 1.0
        rows, samples = round(facts["rows_in"] * factor), round(facts["samples"] * factor)
        observed = facts["observed"] / (facts["samples"] * n_cells)
        notes = [f"rows: those of the last run, times {factor:.3g} for the bytes of the files"]
    elif parquet:
        rows = round(sum(count_group_rows(first)) * raw_bytes / first.size)
        observed, notes = 1.0, ["rows: of the first file; all cells are taken as observed"]
    else:
        n_read, n_rows, observed, per_sample = _look_at_rows(first, config, schema)
        rows = round(csv_bytes / n_read * n_rows)
        samples = round(rows / per_sample)
        notes = [f"rows: by the first {n_rows:,} rows of {first.name}"]
        if source.layout == "long":
            notes.append(
                f"samples: {per_sample:.3g} rows each, as there; --samples gives another number"
            )
    log = LogSize(
        rows=max(rows, 1),
        samples=max(1, samples or rows),
        variables=n_cells,
        levels=schema.n_levels,
        observed=min(1.0, observed),
        files=len(found),
        raw_bytes=raw_bytes,
        csv_bytes=csv_bytes,
        layout=source.layout,
        identified=source.sample is not None,
        identifier_bytes=0.0 if source.sample is None else 10.0,
        code_bytes=schema.code_dtype.itemsize,
        cut=cut,
    )
    return log, notes


def measure_fit(config: PipelineConfig, facts: dict[str, Any]) -> tuple[FitSize, list[str]]:
    """Size of the fit of a pipeline, from scratch.

    Parameters
    ----------
    config
        Sections ``model``, ``em``, ``evaluate`` and ``store``.
    facts
        What the last run says of its model: ``rank`` and ``passes``; empty where there is none.
    """
    notes, em, folds = [], config.em, config.fold_split
    rank = config.model.rank
    if rank == "auto":
        rank = int(facts.get("rank", ASSUMED_RANK))
        where = "of the last run" if "rank" in facts else "taken, for it is yet to be chosen"
        notes.append(f"rank: {rank}, {where}; choosing it is not in the plan")
    n_passes = min(em.max_passes, int(facts.get("passes", ASSUMED_PASSES)))
    where = "as many as the last run made" if "passes" in facts else "taken, for none were made yet"
    notes.append(f"passes: {n_passes} a run of EM, {where}; --passes gives another number")
    if (dependence := config.model.dependence) != "none":
        notes.append(
            f"forests: those of model.dependence = {dependence!r} come on top, and are not in the plan: a search on "
            "some of the samples, and passes over all that take 20 to 50 times as long as those of EM, hundreds where "
            "there are gaps"
        )
    options = Options.make(config.start_method, em.pseudo_count, em.members, rank)
    n_pseudo_counts = min(COMPARED_PSEUDO_COUNTS, len(options.pseudo_counts))
    runs = n_pseudo_counts + len(options.start_methods) - 1
    fit = FitSize(
        rank=rank,
        passes=n_passes,
        runs=runs if folds.validation else 1,
        members=em.members,
        train=len(folds.train),
        validation=len(folds.validation),
        test=len(folds.test),
        buckets=config.store.buckets,
        start=config.start_method,
        traits="alone" if config.has_traits else "compared" if config.compares_traits else "",
    )
    return fit, notes


def read_last_run(config: PipelineConfig) -> dict[str, Any]:
    """Facts of the last complete run, and ``input_bytes``; empty where there is none, or no store yet."""
    from pmflib.store.artefacts import Store
    from pmflib.store.run_records import find_last_run

    root = config.resolve(config.store.path)
    if "://" not in root and not Path(root).is_dir():
        return {}
    record = find_last_run(Store(root), config.name)
    if record is None:
        return {}
    n_bytes = sum(int(each.get("bytes", 0)) for each in record.inputs)
    return {**record.facts, "input_bytes": n_bytes}


def with_samples(log: LogSize, samples: int) -> LogSize:
    """The same long log with another number of samples."""
    observed = min(1.0, log.rows / samples / log.variables)
    return replace(log, samples=samples, observed=observed)


def _look_at_rows(
    source: Source, config: PipelineConfig, schema: Schema
) -> tuple[int, int, float, float]:
    """Bytes and rows at the beginning of a CSV file, share of observed cells, and rows of a sample."""
    from pmflib.config.csv_options import WHITESPACE
    from pmflib.ingest.sources import open_source

    options = config.source
    with open_source(source) as stream:
        content = stream.read(SAMPLED_BYTES)
    if (end := content.rfind(b"\n")) > 0:
        content = content[: end + 1]
    text = content.decode(options.encoding, "replace")
    lines: Sequence[Sequence[str]]
    if options.delimiter == WHITESPACE:
        lines = [line.split() for line in text.splitlines()]
    elif len(options.delimiter) == 1:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=options.delimiter))
    else:
        lines = [line.split(options.delimiter) for line in text.splitlines()]
    if options.columns is None and lines:
        names, lines = lines[0], lines[1:]
    else:
        names = options.columns or ()
    n_rows = max(1, len(lines))
    places = {name.strip("\ufeff "): place for place, name in enumerate(names)}
    if options.layout == "long":
        place = places.get(options.sample or "", 0)
        n_samples = len({line[place] for line in lines if len(line) > place})
        per_sample = n_rows / max(1, n_samples)
        return len(content), n_rows, per_sample / schema.n_variables, per_sample
    n_given = 0
    for variable in schema.variables:
        missing = {*variable.missing, ""}
        if (place := places.get(variable.name, -1)) >= 0:
            n_given += sum(
                len(line) > place and line[place].strip() not in missing for line in lines
            )
    return len(content), n_rows, n_given / (n_rows * schema.n_variables), 1.0
