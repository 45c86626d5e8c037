"""What a user's own files and last run say: the sizes of log and fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pmflib.em.traits.fit import DIMENSIONS, PASSES
from pmflib.em.traits.passes import list_biases
from pmflib.fitting.candidates import Options
from pmflib.fitting.fit_specifications import count_compared
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model.traits.level_scores import LevelScores
from pmflib.schema import Schema
from pmflib_tasks.operations.planning.looks import look_at_log
from pmflib_tasks.operations.planning.sizes import FitSize, ForestSize, LogSize, TraitSize
from pmflib_tasks.operations.planning.speeds import Learnt
from pmflib_tasks.operations.planning.trait_stages import list_class_counts

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store
    from pmflib.store.run_records import RunRecord
    from pmflib_tasks.config import PipelineConfig

ASSUMED_RANK = 20
"""Rank where it is yet to be chosen."""
ASSUMED_PASSES = 15
"""Passes of a run of EM where no run has been made: extrapolated ones took 7 to 17 on rating logs and surveys."""
EARLIER_RUNS = 10
"""Runs whose passes say how many the next one makes."""


@dataclass(frozen=True)
class LastRun:
    """What the last complete run of a pipeline has recorded; without any, that nothing is known.

    Parameters
    ----------
    rows, samples, observed
        Rows of its files, the samples that they made, and the observed cells of these.
    input_bytes
        Bytes of its files.
    rank, passes
        Those of its latent classes; None where it has fitted none. Of the model that was not chosen, as of the other.
    n_traits, trait_passes
        Traits of its trait model, the biases of people included, and passes; None where it has fitted none.
    learnt
        What it and the runs before it have shown of their machines.
    """

    rows: int = 0
    samples: int = 0
    observed: int = 0
    input_bytes: int = 0
    rank: int | None = None
    passes: int | None = None
    n_traits: int | None = None
    trait_passes: int | None = None
    learnt: Learnt = field(default_factory=Learnt)


def measure_log(config: PipelineConfig, schema: Schema, last: LastRun) -> tuple[LogSize, list[str]]:
    """Measure the log of a pipeline: its files, and rows by the last run or else by excerpts of the files.

    Parameters
    ----------
    config
        Section ``source`` names the files.
    schema
        Variables and levels.
    last
        The last run: rows are assumed to grow with the bytes of its files.

    Returns
    -------
    The size, and notes on where it is from.

    Raises
    ------
    SourceError
        If there are no files, or one cannot be read.
    """
    from pmflib.ingest.dataset.identifiers import estimate_csv_bytes
    from pmflib.ingest.dataset.sample_weights import name_replicates
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
    if last.samples:
        factor = raw_bytes / last.input_bytes if last.input_bytes else 1.0
        rows, samples = round(last.rows * factor), round(last.samples * factor)
        observed = last.observed / (last.samples * n_cells)
        notes = [f"rows: those of the last run, times {factor:.3g} for the bytes of the files"]
    elif parquet:
        rows = round(sum(count_group_rows(first)) * raw_bytes / first.size)
        observed, notes = 1.0, ["rows: of the first file; all cells are assumed to be observed"]
    else:
        look = look_at_log(found, csv_bytes, config, schema)
        rows, samples = round(csv_bytes / look.row_bytes), look.samples or 0
        observed = look.observed
        notes = [f"rows: by {look.seen:,} rows of excerpts that are spread over the files"]
        if samples:
            observed = rows / samples / n_cells
            notes.append(
                f"samples: {rows / samples:.3g} rows each, by those that come again in other excerpts; --samples gives "
                "another number"
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
        design_columns=(source.weight is not None) + 2 * (source.psu is not None),
        replicates=len(name_replicates(found, source).replicate_columns),
        cut=cut,
    )
    return log, notes


def measure_fit(config: PipelineConfig, schema: Schema, last: LastRun) -> tuple[FitSize, list[str]]:
    """Size of the fit of a pipeline, from scratch.

    Parameters
    ----------
    config
        Sections ``model``, ``em``, ``evaluate`` and ``store``.
    schema
        Variables and levels.
    last
        The last run, whose rank and passes are used.
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
    traits, notes = measure_traits(config, schema, last)
    if traits is not None:
        size = replace(size, traits=traits, schema=schema)
    if traits is not None and not size.has_classes:
        return replace(size, rank=list_class_counts(traits)[-1], runs=1), notes
    rank = config.model.rank
    if rank == "auto":
        rank = ASSUMED_RANK if last.rank is None else last.rank
        where = "assumed, for it is yet to be chosen" if last.rank is None else "of the last run"
        notes.append(f"rank: {rank}, {where}; choosing it is not in the plan")
    made = last.passes is not None
    n_passes = min(em.max_passes, ASSUMED_PASSES if last.passes is None else last.passes)
    where = "as many as the last run made" if made else "assumed, for none were made yet"
    notes.append(f"passes: {n_passes} a run of EM, {where}; --passes gives another number")
    if (dependence := config.model.dependence) != "none":
        forests = ForestSize(dependence == "tree")
        size = replace(size, forests=forests, schema=schema)
        if dependence == "auto":
            notes.append(
                "forests: none are fitted where no pair asks for them, which is yet to be seen"
            )
    options = Options.make(config.start_method, em.pseudo_count, em.members, rank)
    runs = count_compared(options.pseudo_counts) + len(options.start_methods) - 1
    runs = runs if folds.validation else 1
    return replace(size, rank=rank, passes=n_passes, runs=runs), notes


def measure_traits(
    config: PipelineConfig, schema: Schema, last: LastRun
) -> tuple[TraitSize | None, list[str]]:
    """Size of the fit of traits of a pipeline; None if there is none.

    Parameters
    ----------
    config
        Sections ``model`` and ``evaluate``.
    schema
        Variables and levels.
    last
        The last run, whose dimensions and passes are used.
    """
    if not (config.has_traits or config.compares_traits):
        return None, []
    dimensions, passes = (DIMENSIONS[0], DIMENSIONS[-1]), (PASSES[0], PASSES[-1])
    n_states: int | Literal["auto"] = "auto" if config.compares_traits else config.model.rank
    note = f"traits: {dimensions[0]} to {dimensions[1]} dimensions, {passes[0]} to {passes[1]} passes, yet to be chosen"
    if last.n_traits is not None and last.trait_passes is not None:
        n_biases = len(list_biases(LevelScores.make(schema, np.zeros(schema.n_levels))))
        dimensions, passes = (last.n_traits - n_biases,) * 2, (last.trait_passes,) * 2
        note = f"traits: {dimensions[0]} dimensions, {passes[0]} passes, as the last run has chosen"
    traits = TraitSize(
        config.compares_traits, dimensions, passes, n_states, hide=config.evaluate.hide
    )
    return traits, [note]


def read_last_run(config: PipelineConfig) -> LastRun:
    """Read what the last complete run has recorded: nothing where there is none, or no store yet."""
    from pmflib.store.artefacts import Store
    from pmflib.store.run_records import find_last_run, list_records

    root = config.resolve(config.store.path)
    if "://" not in root and not Path(root).is_dir():
        return LastRun()
    store = Store(root)
    record = find_last_run(store, config.name)
    if record is None:
        return LastRun()
    earlier = [each.facts for each in list_records(store, config.name)[-EARLIER_RUNS:]]
    return summarize_run(store, record, earlier)


def summarize_run(
    store: Store, record: RunRecord, earlier: Sequence[Mapping[str, Any]] = ()
) -> LastRun:
    """What a run says to those that plan the next one.

    Parameters
    ----------
    store
        Its store.
    record
        Its record.
    earlier
        Facts of runs up to it: the passes of a fit are the median of those of their fits from scratch.
    """
    fitted: dict[str, Mapping[str, int]] = {}
    for stage in ("model", "classes", "traits"):
        entry = store.find(record.stages[stage].identity) if stage in record.stages else None
        if entry is not None:
            kind = "traits" if "n_traits" in entry.summary else "classes"
            fitted[kind] = entry.summary
    classes, traits = fitted.get("classes", {}), fitted.get("traits", {})
    passes = classes.get("passes")
    if made := [each for facts in earlier if (each := _find_passes(facts))]:
        passes = round(float(np.median(made)))
    rows = DatasetAccount.find(record.facts) or DatasetAccount()
    return LastRun(
        rows=rows.rows_in,
        samples=rows.samples,
        observed=rows.observed,
        input_bytes=sum(file.bytes or 0 for file in record.inputs),
        rank=classes.get("rank"),
        passes=passes,
        n_traits=traits.get("n_traits"),
        trait_passes=traits.get("passes"),
        learnt=Learnt.find(record.facts),
    )


def _find_passes(facts: Mapping[str, Any]) -> int:
    """Passes of the classes that a run has fitted from scratch; 0 of another run."""
    fit = facts.get("classes") or facts.get("model") or {}
    return 0 if (facts.get("refit") or {}).get("start") else int(fit.get("passes", 0))


def with_samples(log: LogSize, samples: int) -> LogSize:
    """The same long log with another number of samples."""
    observed = min(1.0, log.rows / samples / log.variables)
    return replace(log, samples=samples, observed=observed)
