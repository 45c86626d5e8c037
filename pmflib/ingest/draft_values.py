"""Values of raw files counted for a draft: what is counted, how all files are read, what is said of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pmflib.core.errors import SchemaError
from pmflib.core.texts import abridge_names, list_near
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_rows
from pmflib.ingest.sources import Source
from pmflib.schema.drafting.missing_codes import CodeProposal
from pmflib.schema.drafting.value_counts import ValueCounts


class CountedValues(NamedTuple):
    """Values of what may be a variable, their missing codes, what shares a scale, and what is left out."""

    value_counts: dict[str, ValueCounts]
    codes: dict[str, list[CodeProposal]]
    scales: set[str]
    left_out: list[str]


def check_target_column(name: str, columns: Sequence[str], sample: str | None) -> None:
    """Check that a target is a column of the data, or a variable of a long log.

    Raises
    ------
    SchemaError
        If it is none, with those that are named alike, or identifies the samples.
    """
    if name == sample:
        raise SchemaError(f"target {name!r} is the sample column; name the column to predict")
    if name not in columns:
        close = list_near(name, columns)
        hint = f"did you mean {close}?" if close else f"there are {abridge_names(columns, 12)}"
        raise SchemaError(f"target {name!r} is no column of the data; {hint}")


def read_all(
    sources: Sequence[Source], config: SourceOptions, columns: Sequence[str], notes: list[str]
) -> Iterator[RawRows]:
    """Rows of some columns of all files, in order; ragged rows are noted at the end."""
    n_ragged = n_rows = 0
    for source in sources:
        for raw in read_rows(source, config, columns):
            n_rows += raw.batch.num_rows + len(raw.ragged)
            n_ragged += len(raw.ragged)
            yield raw
    if n_ragged:
        notes.append(
            f"{n_ragged} of {n_rows} rows have too few or too many fields; check source.delimiter and quotation marks"
        )


def describe_undecodable(count: int, what: str, config: SourceOptions) -> str:
    """Note on values that are no texts in the encoding."""
    return (
        f"{count} {what} are not in the encoding {config.encoding}: they are not among the levels, and their rows "
        "would go to quarantine; set source.encoding (pmf infer: --encoding cp1252, say), or save the files as UTF-8"
    )
