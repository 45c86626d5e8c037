"""Sizes of a user's own log and fit: from its files, a few of its first rows, and the last run of its pipeline."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pmflib.fitting.candidates import Options
from pmflib.planning.sizes import FitSize, ForestSize, LogSize, TraitSize
from pmflib.planning.trait_stages import list_states
from pmflib.schema import Schema
from pmflib.traits.coefficients import list_biases
from pmflib.traits.level_scores import LevelScores
from pmflib.traits.trait_fit import DIMENSIONS, PASSES

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


def measure_fit(
    config: PipelineConfig, schema: Schema, last: dict[str, Any]
) -> tuple[FitSize, list[str]]:
    """Size of the fit of a pipeline, from scratch.

    Parameters
    ----------
    config
        Sections ``model``, ``em``, ``evaluate`` and ``store``.
    schema
        Variables and levels.
    last
        What `read_last_run` gives: of latent classes ``rank`` and ``passes`` count, of traits see `measure_traits`.
    """
    em, folds = config.em, config.fold_split
    size = FitSize(
        rank=ASSUMED_RANK,
        members=em.members,
        train=len(folds.train),
        validation=len(folds.validation),
        test=len(folds.test),
        buckets=config.store.buckets,
        start=config.start_method,
    )
    traits, notes = measure_traits(config, schema, last.get("traits", {}))
    if traits is not None:
        size = replace(size, traits=traits, schema=schema)
    if traits is not None and not size.has_classes:
        return replace(size, rank=list_states(traits)[-1], runs=1), notes
    facts, rank = last.get("classes", {}), config.model.rank
    if rank == "auto":
        rank = int(facts.get("rank", ASSUMED_RANK))
        where = "of the last run" if "rank" in facts else "taken, for it is yet to be chosen"
        notes.append(f"rank: {rank}, {where}; choosing it is not in the plan")
    n_passes = min(em.max_passes, int(facts.get("passes", ASSUMED_PASSES)))
    where = "as many as the last run made" if "passes" in facts else "taken, for none were made yet"
    notes.append(f"passes: {n_passes} a run of EM, {where}; --passes gives another number")
    if (dependence := config.model.dependence) != "none":
        forests = ForestSize(dependence == "tree", config.model.rank == "auto")
        size = replace(size, forests=forests, schema=schema)
        if dependence == "auto":
            notes.append(
                "forests: none are fitted where no pair asks for them, which is yet to be seen"
            )
    options = Options.make(config.start_method, em.pseudo_count, em.members, rank)
    n_pseudo_counts = min(COMPARED_PSEUDO_COUNTS, len(options.pseudo_counts))
    runs = n_pseudo_counts + len(options.start_methods) - 1
    runs = runs if folds.validation else 1
    return replace(size, rank=rank, passes=n_passes, runs=runs), notes


def measure_traits(
    config: PipelineConfig, schema: Schema, facts: dict[str, Any]
) -> tuple[TraitSize | None, list[str]]:
    """Size of the fit of traits of a pipeline; None if there is none.

    Parameters
    ----------
    config
        Sections ``model`` and ``evaluate``.
    schema
        Variables and levels.
    facts
        What the last run says of its model with traits: ``n_traits`` and ``passes``; empty where there is none.
    """
    if not (config.has_traits or config.compares_traits):
        return None, []
    dimensions, passes = (DIMENSIONS[0], DIMENSIONS[-1]), (PASSES[0], PASSES[-1])
    n_states: int | Literal["auto"] = "auto" if config.compares_traits else config.model.rank
    note = f"traits: {dimensions[0]} to {dimensions[1]} dimensions, {passes[0]} to {passes[1]} passes, yet to be chosen"
    if facts:
        n_biases = len(list_biases(LevelScores.make(schema, np.zeros(schema.n_levels))))
        dimensions = (int(facts["n_traits"]) - n_biases,) * 2
        passes = (int(facts["passes"]),) * 2
        note = f"traits: {dimensions[0]} dimensions, {passes[0]} passes, as the last run has chosen"
    traits = TraitSize(
        config.compares_traits, dimensions, passes, n_states, hide=config.evaluate.hide
    )
    return traits, [note]


def read_last_run(config: PipelineConfig) -> dict[str, Any]:
    """Facts of the last complete run, and ``input_bytes``; empty where there is none, or no store yet.

    ``classes`` and ``traits`` are those of its latent classes and of its traits, where it has fitted them, whichever of
    the two it has taken.
    """
    from pmflib.store.artefacts import Store
    from pmflib.store.run_records import find_last_run

    root = config.resolve(config.store.path)
    if "://" not in root and not Path(root).is_dir():
        return {}
    store = Store(root)
    record = find_last_run(store, config.name)
    if record is None:
        return {}
    n_bytes = sum(int(each.get("bytes", 0)) for each in record.inputs)
    fitted: dict[str, Any] = {}
    for stage in ("model", "classes", "traits"):
        entry = store.find(record.stages[stage].identity) if stage in record.stages else None
        if entry is not None:
            kind = "traits" if "n_traits" in entry.summary else "classes"
            fitted[kind] = entry.summary
    return {**record.facts, **fitted, "input_bytes": n_bytes}


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
