"""Draft a schema from raw files, for review: count the values of columns, then propose variables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pmflib.base.errors import SchemaError, SourceError
from pmflib.base.texts import abridge_names, list_near
from pmflib.base.weights import LARGEST_ERROR, MOST_DECIMALS, find_decimals
from pmflib.ingest.chunks import is_text
from pmflib.ingest.column_values import count_answers, describe_undecodable, read_all
from pmflib.ingest.csv.sniffing import name_columns
from pmflib.ingest.dataset.design_columns import STORED_DECIMALS, name_replicates, read_in_units
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_declared
from pmflib.ingest.sources import Source
from pmflib.schema import Schema
from pmflib.schema.file_columns import FileColumn
from pmflib.schema.value_counts import ValueCounts, find_strays
from pmflib.schema.variable import read_number
from pmflib.surveys.drafting.column_meaning import note_design
from pmflib.surveys.drafting.declared_columns import follow_file, label_counts, list_declared
from pmflib.surveys.drafting.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.surveys.drafting.inference import (
    DECLARED_WEIGHT,
    WEIGHT_NOTE,
    Proposal,
    give_absent,
)
from pmflib.surveys.drafting.missing_codes import CodeProposal, propose_codes
from pmflib.surveys.drafting.several_answers import split_columns
from pmflib.surveys.drafting.table_draft import (
    find_sisters,
    list_names,
    note_codes,
    note_strays,
    propose_columns,
    share_codes,
    share_sister_codes,
)


def draft_schema(
    sources: Sequence[Source],
    config: SourceOptions,
    *,
    max_levels: int = 32,
    bins: int = 8,
    min_count: int = 1,
    target: str | None = None,
    split: Mapping[str, str] | None = None,
    absent: str | None = None,
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
    split
        Wide only: columns whose cells hold several answers, with the sign between these; see
        `pmflib.surveys.drafting.several_answers.split_columns`.
    absent
        Level of empty cells in columns of one value, such as ticks, and of variables without a row of the sample in
        logs that list what is present.

    Returns
    -------
    The schema, the decision about every column with its reason, and notes on what to check.

    Raises
    ------
    SchemaError
        If no column can be a variable or all have one level, the target cannot be one, or a long log has more than
        ``MAX_VARIABLES``.
    SourceError
        If a file cannot be read.
    """
    notes: list[str] = []
    signs = split or {}
    if signs and config.layout == "long":
        raise SchemaError(
            f"split names {list(signs)}, columns of a wide table, and the log is long; give each answer its row"
        )
    is_part = any(target is not None and target.startswith(f"{column}_") for column in signs)
    if config.layout == "wide":
        counted = count_wide(sources, config, None if is_part else target, max_levels, notes)
    else:
        counted = count_long(sources, config, target, min_count, max_levels, notes)
        if absent is None:
            _refuse_unary(counted.value_counts, config)
    parts = split_columns(counted.value_counts, signs, config.missing)
    whole = {name: each for name, each in counted.value_counts.items() if name not in parts}
    codes = {name: each for name, each in counted.codes.items() if name not in parts}
    sisters = find_sisters(whole, codes, config.missing) if config.layout == "wide" else []
    codes = share_sister_codes(whole, codes, sisters)
    shared = share_codes(whole, codes)
    proposals = propose_columns(
        whole,
        codes,
        sisters,
        scales=counted.scales,
        target=None if is_part else target,
        missing=(*config.missing, *(text for text in shared if read_number(text) is None)),
        max_levels=max_levels,
        bins=bins,
        is_answer=config.layout == "long",
    )
    proposals = {
        name: each
        for column in counted.value_counts
        for name, each in (
            parts.get(column) or {column: give_absent(proposals[column], absent)}
        ).items()
    }
    for name in proposals.keys() & counted.declared.keys():
        each, by_label = proposals[name], bool(counted.value_counts[name].categories)
        column = counted.declared[name]
        if column.is_weight and config.weight is None and name != target:
            note = f"{WEIGHT_NOTE}, {DECLARED_WEIGHT}; name it by --weight (source.weight)"
            proposals[name] = replace(each, variable=None, role="left out", note=note, why=note)
        elif each.variable is not None:
            made = follow_file(each.variable, column, by_label=by_label)
            proposals[name] = replace(each, variable=made)
    if target is not None:
        check_target_column(target, list(proposals), config.sample)  # a part is no column
        check_drafted_target(target, proposals[target])
    variables = [each.variable for each in proposals.values() if each.variable is not None]
    if config.layout == "wide" and config.psu is None:
        notes += note_design(proposals)
    notes += [*note_codes(codes), *note_strays(proposals), *note_columns(proposals)]
    if not variables:
        raise SchemaError(
            f"no column of {[source.name for source in sources[:4]]} can be a variable: {notes[:4]}; "
            f"check source.layout and source.delimiter, or raise max_levels={max_levels}"
        )
    has_gaps = any(each.variable and each.share_missing for each in proposals.values())
    if config.layout == "wide" and has_gaps and max(each.cardinality for each in variables) == 1:
        raise SchemaError(
            f"all {len(variables)} columns that can be variables have one value, such as {variables[0].levels[0]!r} in "
            f"{variables[0].name!r}, and every probability would be 1; if an empty cell means no, name that level "
            "(pmf infer --absent no)"
        )
    if config.layout == "wide" and len(variables) < len(proposals) / 2:
        notes.append(
            "most columns are left out; if a row is one answer, name the columns source.sample, source.variable and "
            "source.value (pmf infer: --sample, --variable, --value)"
        )
    decimals, weight_notes = draft_unit(counted.weights, config)
    notes += weight_notes
    missing = tuple(dict.fromkeys([*config.missing, *shared]))
    # variables with the common set of codes, in any order, share one list
    variables = [
        replace(each, missing=missing) if set(each.missing) == set(missing) else each
        for each in variables
    ]
    schema = Schema(tuple(variables), tuple(counted.left_out), missing, decimals)
    columns = {
        name: replace(
            ColumnDraft.from_proposal(each), about=counted.declared.get(name, FileColumn()).label
        )
        for name, each in proposals.items()
    }
    return DraftedSchema(schema, columns, tuple(notes), None, bins, max_levels)


def draft_unit(counted: ValueCounts, config: SourceOptions) -> tuple[int | None, list[str]]:
    """Choose the decimals of a weight column, and note how many rows would go to quarantine.

    Parameters
    ----------
    counted
        Values of the column.
    config
        Options with the name of the column.

    Returns
    -------
    Decimals for the schema, None if `MOST_DECIMALS` are enough; and notes.
    """
    texts = pa.array(list(counted.counts), pa.string())
    numbers = np.array([read_number(text) or 0.0 for text in counted.counts])
    decimals, notes, found = MOST_DECIMALS, list[str](), None
    if (numbers > 0).any():
        decimals = min(find_decimals(numbers[numbers > 0]), STORED_DECIMALS)
    if decimals > MOST_DECIMALS:
        found = decimals
        notes.append(
            f"{config.weight}: weights down to {numbers[numbers > 0].min():g} are kept with {decimals} decimals, which "
            "weight_decimals of the schema says"
        )
    decimals = max(decimals, MOST_DECIMALS)
    is_bad = read_in_units(texts, decimals, LARGEST_ERROR) < 1
    bad = texts.filter(pa.array(is_bad)).to_pylist()
    n_bad, n_counted = (
        sum(counted.counts[text] for text in each) for each in (bad, counted.counts)
    )
    if n_bad:
        notes.append(
            f"{config.weight}: {n_bad:,} of {n_counted:,} values, as {bad[0][:40]!r}, are not weights above zero in "
            f"units of 10**-{decimals}, and such rows go to quarantine; pass numbers with a decimal point, or leave "
            "these rows out"
        )
    return found, notes


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
            f"target {target!r} has one level only, {proposal.variable.levels[0]!r}; name another column, or pass the "
            "data of its other levels"
        )


def note_columns(columns: Mapping[str, Proposal | ColumnDraft]) -> Iterator[str]:
    """List each note on columns with the names of those it applies to."""
    remarks: dict[str, list[str]] = {}
    for name, column in columns.items():
        if column.note:
            remarks.setdefault(column.note, []).append(name)
    for note, names in remarks.items():
        yield f"{list_names(names)}: {note}"


class CountedValues(NamedTuple):
    """Values of possible variables and of the weight, missing codes, variables that share a scale or are left out."""

    value_counts: dict[str, ValueCounts]
    codes: dict[str, list[CodeProposal]]
    scales: set[str]
    left_out: list[str]
    weights: ValueCounts
    declared: Mapping[str, FileColumn] = MappingProxyType({})


def check_target_column(name: str, columns: Sequence[str], sample: str | None) -> None:
    """Check that a target is a column of the data or a variable of a long log.

    Raises
    ------
    SchemaError
        If it is not, with similar names, or if it identifies the samples.
    """
    if name == sample:
        raise SchemaError(f"target {name!r} is the sample column; name the column to predict")
    if name not in columns:
        close = list_near(name, columns)
        hint = f"did you mean {close}?" if close else f"there are {abridge_names(columns, 12)}"
        raise SchemaError(f"target {name!r} is not a column of the data; {hint}")


def count_wide(
    sources: Sequence[Source],
    config: SourceOptions,
    target: str | None,
    max_levels: int,
    notes: list[str],
) -> CountedValues:
    """Count the values of the columns of wide files; labels and missing codes are those that the first declares."""
    if target is not None:
        check_target_column(target, read_columns(sources[0], config), config.sample)
    value_counts, weights = _count_columns(sources, config, notes)
    declared = _read_declared(sources, config, notes)
    for name in value_counts.keys() & declared.keys():
        value_counts[name] = label_counts(value_counts[name], declared[name], max_levels)
    codes = propose_codes(value_counts, config.missing)
    for name, counted in value_counts.items():
        if own := list_declared(counted, declared.get(name, FileColumn())):
            named = {each.text for each in own}
            codes[name] = [*own, *(each for each in codes.get(name, ()) if each.text not in named)]
    return CountedValues(value_counts, codes, set(), [], weights, declared)


def _read_declared(
    sources: Sequence[Source], config: SourceOptions, notes: list[str]
) -> Mapping[str, FileColumn]:
    """Read what the first file declares of its columns, and note others that differ; empty for CSV and Parquet."""
    found: Mapping[str, FileColumn] = {}
    for source in sources:
        own = read_declared(source, config)
        if not found:
            found = own
            notes.extend(note for column in own.values() for note in column.notes)
        alike = own.keys() & found.keys()
        if odd := [name for name in own if name in alike and own[name] != found[name]]:
            notes.append(
                f"{source.name}: the labels or missing codes of {abridge_names(odd)} are others than in "
                f"{sources[0].name}, and its values may be unknown levels"
            )
    return found


def _count_columns(
    sources: Sequence[Source], config: SourceOptions, notes: list[str]
) -> tuple[dict[str, ValueCounts], ValueCounts]:
    header = read_columns(sources[0], config)
    if header.count("") > 1:
        notes.append(f"{header.count('')} columns have no name in the header, and are left out")
        header = [name for name in header if name]
    # a stratum, such as a region, may be a variable; units are too many
    replicates = name_replicates(sources, config).replicate_columns
    design = (config.sample, config.weight, config.psu, *replicates)
    named = [name for name in design if name is not None]
    # missing columns are reported here rather than in the first run
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
    _note_header(sources[0], value_counts, config, notes)
    undecodable = {name: n for name, each in value_counts.items() if (n := each.undecodable)}
    if undecodable:
        where = f" of the columns {list_names(list(undecodable))}"
        notes.append(describe_undecodable(sum(undecodable.values()), "values" + where, config))
    return value_counts, weights


def number_columns(source: Source, config: SourceOptions) -> tuple[str, ...]:
    """Name the columns of a CSV file without a header: c1, c2, ...

    Raises
    ------
    SourceError
        If the file cannot be read, or is no CSV file.
    """
    if not is_text(source, config):
        raise SourceError(f"{source.name}: its columns have names; leave them as they are")
    return name_columns(len(read_columns(source, config)))


def _note_header(
    source: Source, value_counts: Mapping[str, ValueCounts], config: SourceOptions, notes: list[str]
) -> None:
    """Add a note if the names of columns occur among their own values."""
    if config.columns is None and is_text(source, config):
        alike = [name for name, counted in value_counts.items() if name.strip() in counted.counts]
        if 2 * len(alike) > len(value_counts):
            notes.append(
                f"the first row of {source.name} looks like data: {alike[:4]} are values of their own columns; name "
                "the columns in source.columns (pmf infer: --columns or --no-header)"
            )


def count_long(
    sources: Sequence[Source],
    config: SourceOptions,
    target: str | None,
    min_count: int,
    max_levels: int,
    notes: list[str],
) -> CountedValues:
    """Count the answers of a long log, leave out rare variables, and share the levels of numeric ones."""
    everything, weights = count_answers(sources, config, notes)
    if target is not None:
        check_target_column(target, list(everything), None)
    value_counts = _drop_rare(everything, config, min_count, notes)
    if target is not None and target not in value_counts:
        raise SchemaError(
            f"target {target!r} has fewer than {min_count} answers; lower --min-count"
        )
    left_out = [name for name in everything if name not in value_counts]
    codes = propose_codes(value_counts, config.missing)
    scales = _share_levels(value_counts, config, codes, max_levels, notes)
    return CountedValues(value_counts, codes, scales, left_out, weights)


def _refuse_unary(value_counts: Mapping[str, ValueCounts], config: SourceOptions) -> None:
    """Refuse a long log in which all answers are equal, though variables have several of them."""
    missing = {text.strip() for text in config.missing}
    texts = {text for each in value_counts.values() for text in each.counts} - missing
    most = max((each.n_rows for each in value_counts.values()), default=0)
    if len(texts) == 1 and most > 1:
        raise SchemaError(
            f"all answers in column {config.value!r} are {texts.pop()!r}: the log lists what is present, and every "
            "probability would be 1; name the level of what has no row (pmf infer --absent no), or add a row with "
            "another value for what is absent"
        )


def _drop_rare(
    value_counts: Mapping[str, ValueCounts], config: SourceOptions, min_count: int, notes: list[str]
) -> dict[str, ValueCounts]:
    missing = {text.strip() for text in config.missing}
    kept: dict[str, ValueCounts] = {}
    n_answers = 0
    for name, counted in value_counts.items():
        count = sum(n for text, n in counted.counts.items() if text not in missing)
        if count >= min_count:
            kept[name] = counted
        else:
            n_answers += count
    if rare := len(value_counts) - len(kept):
        notes.append(
            f"{rare} variables with fewer than {min_count} answers ({n_answers} in all) are left out: the schema names "
            "them in left_out, and their rows will be counted, but neither used nor put in quarantine"
        )
    return kept


def _share_levels(
    value_counts: Mapping[str, ValueCounts],
    config: SourceOptions,
    codes: Mapping[str, Sequence[CodeProposal]],
    max_levels: int,
    notes: list[str],
) -> set[str]:
    """Add the levels of all numeric variables to each of them, with count zero; return the names of these variables."""
    missing = {text.strip() for text in config.missing}
    union: dict[float, str] = {}
    group: dict[str, dict[float, str]] = {}
    for name, counted in value_counts.items():
        own_codes = {each.text for each in codes.get(name, ())}
        given = {
            text: n
            for text, n in counted.counts.items()
            if text not in missing and text not in own_codes
        }
        astray = find_strays(given)
        texts = [text for text in given if text not in astray]
        numbers = [_finite(text) for text in texts]
        if counted.overflowed or any(number is None for number in numbers):
            continue
        own = {
            number: text for number, text in zip(numbers, texts, strict=True) if number is not None
        }
        if 0 < len(own) <= max_levels:
            group[name] = own
            for number, text in own.items():
                # "5" rather than "5.0", whichever was read first
                union[number] = min(text, union.get(number, text), key=lambda t: (len(t), t))
    if len(union) > max_levels:
        notes.append(
            f"numeric variables have {len(union)} distinct values together, more than max_levels={max_levels}: "
            "each keeps its own levels; a level that does not occur in the data is not among them"
        )
        return set(group)
    widened = 0
    for name, own in group.items():
        widened += len(own) < len(union)
        for number, text in union.items():
            if number not in own:
                value_counts[name].counts[text] = 0
    if widened:
        notes.append(
            f"{widened} of {len(group)} numeric variables were not given every level from "
            f"{union[min(union)]} to {union[max(union)]}: all share the union of the levels"
        )
    return set(group)


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
