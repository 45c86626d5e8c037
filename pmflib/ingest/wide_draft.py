"""A wide table for a draft: a row is a sample, and every column but the sample column may be a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pmflib.core.errors import SourceError
from pmflib.core.texts import abridge_names
from pmflib.ingest.dataset.sample_weights import name_replicates, note_weights
from pmflib.ingest.draft_values import (
    CountedValues,
    check_target_column,
    describe_undecodable,
    read_all,
)
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import is_parquet, read_columns
from pmflib.ingest.sniffing import name_columns
from pmflib.ingest.sources import Source
from pmflib.schema.drafting.missing_codes import propose_codes
from pmflib.schema.drafting.table_draft import list_names
from pmflib.schema.drafting.value_counts import ValueCounts


def count_wide(
    sources: Sequence[Source], config: SourceOptions, target: str | None, notes: list[str]
) -> CountedValues:
    """Count the values of the columns."""
    if target is not None:
        check_target_column(target, read_columns(sources[0], config), config.sample)
    value_counts = _count_columns(sources, config, notes)
    return CountedValues(value_counts, propose_codes(value_counts, config.missing), set(), [])


def _count_columns(
    sources: Sequence[Source], config: SourceOptions, notes: list[str]
) -> dict[str, ValueCounts]:
    header = read_columns(sources[0], config)
    _check_delimiter(sources[0], config, header)
    # a stratum may be a variable, as a region is; units are as many as identifiers
    replicates = name_replicates(sources, config).replicate_columns
    design = (config.sample, config.weight, config.psu, *replicates)
    named = [name for name in design if name is not None]
    # those that are absent are found here, not when the first row is ingested
    columns = [*(name for name in header if name not in named), *named]
    for source in sources[1:]:
        if extra := sorted(set(read_columns(source, config)) - set(columns)):
            notes.append(
                f"{source.name}: columns {abridge_names(extra)} are not in {sources[0].name}: left out"
            )
    value_counts = {name: ValueCounts() for name in columns if name not in named}
    weights = ValueCounts()
    for raw in read_all(sources, config, columns, notes):
        for name, counted in value_counts.items():
            counted.add(raw.batch.column(name))
        if config.weight is not None:
            weights.add(raw.batch.column(config.weight))
    notes += note_weights(weights, config)
    _note_header(sources[0], value_counts, config, notes)
    undecodable = {name: n for name, each in value_counts.items() if (n := each.undecodable)}
    if undecodable:
        where = f" of the columns {list_names(list(undecodable))}"
        notes.append(describe_undecodable(sum(undecodable.values()), "values" + where, config))
    return value_counts


def number_columns(source: Source, config: SourceOptions) -> tuple[str, ...]:
    """Names for the columns of a CSV file without a header: c1, c2, ...

    Raises
    ------
    SourceError
        If the file cannot be read, or is Parquet, whose columns have names.
    """
    if is_parquet(source, config):
        raise SourceError(f"{source.name}: Parquet columns have names; leave them as they are")
    return name_columns(len(read_columns(source, config)))


def _check_delimiter(source: Source, config: SourceOptions, header: Sequence[str]) -> None:
    """Refuse a single column whose name holds another delimiter."""
    if len(header) == 1 and not is_parquet(source, config):
        for other in "\t;|, ":
            if other != config.delimiter and other in header[0].strip():
                raise SourceError(
                    f"{source.name}: is one column, {header[0][:80]!r}, when cut at "
                    f"{config.delimiter!r}; is source.delimiter {other!r} (pmf infer: --delimiter)?"
                )


def _note_header(
    source: Source, value_counts: Mapping[str, ValueCounts], config: SourceOptions, notes: list[str]
) -> None:
    """Note where the names of columns are found among their own values."""
    if config.columns is None and not is_parquet(source, config):
        alike = [name for name, counted in value_counts.items() if name.strip() in counted.counts]
        if 2 * len(alike) > len(value_counts):
            notes.append(
                f"the first row of {source.name} looks like data: {alike[:4]} are values of their own columns; name "
                "the columns in source.columns (pmf infer: --columns or --no-header)"
            )
