"""The check of the sources against the schema: their columns, and the levels in their first rows."""

from __future__ import annotations

from pathlib import Path

from pmflib.base.errors import PmfError
from pmflib.ingest.data_checks import HeadCheck, check_head
from pmflib.ingest.sources import find_sources
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket
from pmflib.store.run_records import find_newest, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.health import HealthLine
from pmflib_tasks.stage import load_schema

SHOWN = 3
"""Number of variables, and of levels of each, that the line lists."""


def check_columns(config: PipelineConfig) -> HealthLine:
    """Compare the columns of the first and the last file, and the levels in their first rows, with the schema.

    Raises
    ------
    SourceError, SchemaError
        If a file lacks a column.
    """
    source, policy = config.source, config.schema_
    skip_empty = source.on_empty_file == "skip"
    try:
        schema = load_schema(config)
        found = find_sources(config.source_paths, source.suffixes, skip_empty=skip_empty)
    except (PmfError, OSError):
        # they have lines of their own
        return HealthLine("warn", "columns", "not compared", "correct schema and sources first")
    heads = [check_head(each, schema, source) for each in dict.fromkeys((found[0], found[-1]))]
    read = ", ".join(f"{head.rows:,} rows of {head.name}" for head in heads)
    lacking = [f"{head.name}: {each}" for head in heads for each in describe_unknown(head)]
    if makes_schema(config):
        return HealthLine("ok", "columns", f"all columns are there; levels are taken from {read}")
    if not lacking:
        said = f"no unknown level in the first {read}"
        return HealthLine("ok", "columns", f"all columns are there; {said}")
    said = f"the schema lacks {'; '.join(lacking)} (first {read})"
    remedy = "correct the files, or add them to the schema; `pmf check` counts them in all rows"
    unknown = policy.on_unknown_level, policy.on_malformed
    is_refused = any(
        each == "error" and any(getattr(head, what) for head in heads)
        for each, what in zip(unknown, ("unknown", "unknown_names"), strict=True)
    )
    if is_refused:
        return HealthLine("FAIL", "columns", said, remedy, "source")
    return HealthLine("warn", "columns", said, remedy)


def makes_schema(config: PipelineConfig) -> bool:
    """Whether the runs of a pipeline make its schema of the files, as those of a label log do."""
    path = config.resolve(config.store.path)
    if not is_bucket(path) and not Path(path, "manifest").is_dir():
        return False
    store = Store(path)
    return (
        find_newest(store, config.name) is None
        and find_newest(store, name_labelling(config.name)) is not None
    )


def describe_unknown(head: HeadCheck) -> list[str]:
    """Name the variables and levels at the head of a file that the schema lacks, a sentence for each variable."""
    said = []
    if head.unknown_names:
        said.append(f"variables {', '.join(map(repr, head.unknown_names[:SHOWN]))}")
    for variable in head.unknown[:SHOWN]:
        levels = [
            f"{text!r} ({n:,}{'' if near is None else f', did you mean {near!r}?'})"
            for text, n, near in variable.unknown[:SHOWN]
        ]
        said.append(f"levels {', '.join(levels)} of {variable.name!r}")
    more = max(len(head.unknown_names) - SHOWN, 0) + max(len(head.unknown) - SHOWN, 0)
    return said if not more else [*said, f"{more:,} more"]
