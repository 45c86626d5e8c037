"""Draft a schema from raw files, for review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pmflib.core.errors import SchemaError
from pmflib.ingest.draft_values import count_answers, count_long, count_wide, read_all
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import Source
from pmflib.schema import Schema
from pmflib.schema.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.schema.drafting.inference import Proposal
from pmflib.schema.drafting.table_draft import (
    find_sisters,
    list_names,
    note_codes,
    note_strays,
    propose_columns,
    share_codes,
    share_sister_codes,
)
from pmflib.schema.drafting.value_counts import ValueCounts
from pmflib.schema.variable import read_number


def draft_schema(
    sources: Sequence[Source],
    config: SourceOptions,
    *,
    max_levels: int = 32,
    bins: int = 8,
    min_count: int = 1,
    target: str | None = None,
) -> DraftedSchema:
    """Draft a schema from raw files, in bounded memory.

    Wide files: every column of the first file except identifiers and weights may become a variable. Long logs: every
    distinct value of the variable column may become one, in natural order ("2" before "10"). Numeric variables of long
    logs share the union of their levels if it has at most ``max_levels``, so that products rated 1 to 5 share these
    levels even if one was never rated 1.

    Parameters
    ----------
    sources
        The files, at least one.
    config
        Layout of the files, and the missing codes.
    max_levels, bins
        As in `propose_variable`.
    min_count
        Long only: least number of answers of a variable, at least 1.
    target
        Variable that a model is to predict, which is always kept.

    Returns
    -------
    The schema, the decision about every column with its reason, and notes on what to check.

    Raises
    ------
    SchemaError
        If no column can be a variable, the target cannot be one, or a long log has more than ``MAX_VARIABLES``.
    SourceError
        If a file cannot be read.
    """
    notes: list[str] = []
    if config.layout == "wide":
        counted = count_wide(sources, config, target, notes)
    else:
        counted = count_long(sources, config, target, min_count, max_levels, notes)
    sisters = (
        find_sisters(counted.value_counts, counted.codes, config.missing)
        if config.layout == "wide"
        else []
    )
    codes = share_sister_codes(counted.value_counts, counted.codes, sisters)
    shared = share_codes(counted.value_counts, codes)
    proposals = propose_columns(
        counted.value_counts,
        codes,
        sisters,
        scales=counted.scales,
        target=target,
        missing=(*config.missing, *(text for text in shared if read_number(text) is None)),
        max_levels=max_levels,
        bins=bins,
        is_answer=config.layout == "long",
    )
    if target is not None:
        check_drafted_target(target, proposals[target])
    variables = [each.variable for each in proposals.values() if each.variable is not None]
    notes += [*note_codes(codes), *note_strays(proposals), *_note_proposals(proposals)]
    if not variables:
        raise SchemaError(
            f"no column of {[source.name for source in sources[:4]]} can be a variable: {notes[:4]}; "
            f"check source.layout and source.delimiter, or raise max_levels={max_levels}"
        )
    if config.layout == "wide" and len(variables) < len(proposals) / 2:
        notes.append(
            "most columns are left out; if a row is one answer, name the columns source.sample, source.variable and "
            "source.value (pmf infer: --sample, --variable, --value)"
        )
    missing = tuple(dict.fromkeys([*config.missing, *shared]))
    # variables with the common set of codes, in any order, share one list
    variables = [
        replace(each, missing=missing) if set(each.missing) == set(missing) else each
        for each in variables
    ]
    schema = Schema(tuple(variables), tuple(counted.left_out), missing)
    columns = {name: ColumnDraft.from_proposal(each) for name, each in proposals.items()}
    return DraftedSchema(schema, columns, tuple(notes), None, bins, max_levels)


def check_drafted_target(target: str, proposal: Proposal) -> None:
    """Check that a target is drafted as a variable of at least two levels.

    Raises
    ------
    SchemaError
        If it identifies rows, is free text, or has one level.
    """
    if proposal.variable is None:
        raise SchemaError(
            f"target {target!r} cannot be predicted: it is {proposal.note.partition(';')[0]}; name another column"
        )
    if proposal.variable.cardinality < 2:
        raise SchemaError(
            f"target {target!r} has one level only, {proposal.variable.levels[0]!r}; name another column, or give the "
            "data of its other levels"
        )


def _note_proposals(proposals: Mapping[str, Proposal]) -> Iterator[str]:
    """List each note on proposals with the columns it applies to."""
    remarks: dict[str, list[str]] = {}
    for name, proposal in proposals.items():
        if proposal.note:
            remarks.setdefault(proposal.note, []).append(name)
    for note, names in remarks.items():
        yield f"{list_names(names)}: {note}"


def count_values(
    sources: Sequence[Source], config: SourceOptions, names: Sequence[str]
) -> dict[str, ValueCounts]:
    """Count the values of some columns, or of some variables of a long log, in all files.

    Raises
    ------
    SourceError
        If a file cannot be read or lacks a column.
    """
    if config.layout == "long":
        found = count_answers(sources, config, [])
        return {name: found.get(name, ValueCounts()) for name in names}
    value_counts = {name: ValueCounts() for name in names}
    for raw in read_all(sources, config, list(names), []):
        for name, counted in value_counts.items():
            counted.add(raw.batch.column(name))
    return value_counts
