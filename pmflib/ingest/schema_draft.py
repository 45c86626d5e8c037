"""Drafting a schema from files of any size, for a person to review."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pmflib.arrays import IntArray
from pmflib.config import SourceConfig
from pmflib.errors import SchemaError, SourceError
from pmflib.ingest.raw_rows import RawRows
from pmflib.ingest.readers import is_parquet, read_columns, read_rows
from pmflib.ingest.sniffing import name_columns
from pmflib.ingest.sources import Source
from pmflib.ingest.target_checks import check_column, check_target
from pmflib.schema import Schema
from pmflib.schema.code_lists import list_names, note_codes, share_codes
from pmflib.schema.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.schema.inference import Proposal, Wishes, propose_variable
from pmflib.schema.level_census import LevelCensus
from pmflib.schema.level_order import natural_key
from pmflib.schema.missing_codes import CodeProposal, propose_codes
from pmflib.schema.variable import as_text, read_number

MAX_VARIABLES = 200_000
"""Distinct values of a long log's variable column; with more it is not the variable column."""
LONG_TRACKED = 1024
"""Distinct values that are counted per variable of a long log; more are not counted."""


def draft_schema(
    sources: Sequence[Source],
    config: SourceConfig,
    *,
    max_levels: int = 32,
    bins: int = 8,
    min_count: int = 1,
    target: str | None = None,
) -> DraftedSchema:
    """Draft a schema from raw files, in memory that does not grow with them.

    Wide: every column of the first file but the sample column may be a variable. Long: every distinct value of the
    variable column may be one, in natural order ("2" before "10"); those whose values are all numbers, few enough to be
    levels, get the union of their levels, as long as it has at most max_levels, so that products rated 1 to 5
    share these levels even where one has no rating of 1.

    Parameters
    ----------
    sources
        The files, at least one.
    config
        Layout of the files, and the texts that mean "not given".
    max_levels, bins
        As in `propose_variable`.
    min_count
        Long only: answers that a variable needs, at least 1.
    target
        Variable that a model is to predict; it is always kept.

    Returns
    -------
    The schema with what was decided of every column and why, and notes that name what to check.

    Raises
    ------
    SchemaError
        If no column can be a variable, the target is none, or a long log has more than ``MAX_VARIABLES``.
    SourceError
        If a file cannot be read.
    """
    notes: list[str] = []
    if config.layout == "wide":
        counted = _count_wide(sources, config, target, notes)
    else:
        counted = _count_long(sources, config, target, min_count, max_levels, notes)
    shared = share_codes(counted.censuses, counted.codes)
    proposals = {
        name: propose_variable(
            name,
            census,
            missing=(*config.missing, *(text for text in shared if read_number(text) is None)),
            codes=counted.codes.get(name, ()),
            max_levels=max_levels,
            bins=bins,
            is_scale=name in counted.scales,
            is_answer=config.layout == "long",
            wishes=Wishes(is_kept=name == target),
        )
        for name, census in counted.censuses.items()
    }
    if target is not None:
        check_target(target, proposals[target])
    variables = [each.variable for each in proposals.values() if each.variable is not None]
    notes += [*note_codes(counted.codes), *_note_proposals(proposals)]
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
    # the order of codes means nothing: variables that have all of them have no list of their own
    variables = [
        replace(each, missing=missing) if set(each.missing) == set(missing) else each
        for each in variables
    ]
    schema = Schema(tuple(variables), tuple(counted.left_out), missing)
    columns = {name: ColumnDraft.from_proposal(each) for name, each in proposals.items()}
    return DraftedSchema(schema, columns, tuple(notes), None, bins, max_levels)


class _Counted(NamedTuple):
    """Values of what may be a variable, their missing codes, what shares a scale, and what is left out."""

    censuses: dict[str, LevelCensus]
    codes: dict[str, list[CodeProposal]]
    scales: set[str]
    left_out: list[str]


def _count_wide(
    sources: Sequence[Source], config: SourceConfig, target: str | None, notes: list[str]
) -> _Counted:
    """Count the values of the columns."""
    if target is not None:
        check_column(target, read_columns(sources[0], config), config.sample)
    censuses = _count_columns(sources, config, notes)
    return _Counted(censuses, propose_codes(censuses, config.missing), set(), [])


def _count_long(
    sources: Sequence[Source],
    config: SourceConfig,
    target: str | None,
    min_count: int,
    max_levels: int,
    notes: list[str],
) -> _Counted:
    """Count the answers to the variables, without those that have few, and share the levels of numeric ones."""
    everything = count_answers(sources, config, notes)
    if target is not None:
        check_column(target, list(everything), None)
    censuses = _drop_rare(everything, config, min_count, notes)
    if target is not None and target not in censuses:
        raise SchemaError(
            f"target {target!r} has fewer than {min_count} answers; lower --min-count"
        )
    left_out = [name for name in everything if name not in censuses]
    codes = propose_codes(censuses, config.missing)
    scales = _share_levels(censuses, config, codes, max_levels, notes)
    return _Counted(censuses, codes, scales, left_out)


def _note_proposals(proposals: Mapping[str, Proposal]) -> Iterator[str]:
    """Name the columns that each note on a proposal is of."""
    remarks: dict[str, list[str]] = {}
    for name, proposal in proposals.items():
        if proposal.note:
            remarks.setdefault(proposal.note, []).append(name)
    for note, names in remarks.items():
        yield f"{list_names(names)}: {note}"


def count_values(
    sources: Sequence[Source], config: SourceConfig, names: Sequence[str]
) -> dict[str, LevelCensus]:
    """Count the values of some columns, or of some variables of a long log, in all files.

    Raises
    ------
    SourceError
        If a file cannot be read, or lacks a column.
    """
    if config.layout == "long":
        found = count_answers(sources, config, [])
        return {name: found.get(name, LevelCensus()) for name in names}
    censuses = {name: LevelCensus() for name in names}
    for raw in _read_all(sources, config, list(names), []):
        for name, census in censuses.items():
            census.add(raw.batch.column(name))
    return censuses


def number_columns(source: Source, config: SourceConfig) -> tuple[str, ...]:
    """Names for the columns of a CSV file without a header: c1, c2, ...

    Raises
    ------
    SourceError
        If the file cannot be read, or is Parquet, whose columns have names.
    """
    if is_parquet(source, config):
        raise SourceError(f"{source.name}: Parquet columns have names; leave them as they are")
    return name_columns(len(read_columns(source, config)))


def _check_delimiter(source: Source, config: SourceConfig, header: Sequence[str]) -> None:
    """Refuse a single column whose name holds another delimiter."""
    if len(header) == 1 and not is_parquet(source, config):
        for other in "\t;|, ":
            if other != config.delimiter and other in header[0].strip():
                raise SourceError(
                    f"{source.name}: is one column, {header[0][:80]!r}, when cut at "
                    f"{config.delimiter!r}; is source.delimiter {other!r} (pmf infer: --delimiter)?"
                )


def _note_header(
    source: Source, censuses: Mapping[str, LevelCensus], config: SourceConfig, notes: list[str]
) -> None:
    """Note where the names of columns are found among their own values."""
    if config.columns is None and not is_parquet(source, config):
        alike = [name for name, census in censuses.items() if name.strip() in census.counts]
        if 2 * len(alike) > len(censuses):
            notes.append(
                f"the first row of {source.name} looks like data: {alike[:4]} are values of their own columns; name "
                "the columns in source.columns (pmf infer: --columns or --no-header)"
            )


def _read_all(
    sources: Sequence[Source], config: SourceConfig, columns: Sequence[str], notes: list[str]
) -> Iterator[RawRows]:
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


def _count_columns(
    sources: Sequence[Source], config: SourceConfig, notes: list[str]
) -> dict[str, LevelCensus]:
    header = read_columns(sources[0], config)
    _check_delimiter(sources[0], config, header)
    columns = [name for name in header if name != config.sample]
    if config.sample is not None:
        # an absent sample column is found here, not when the first row is ingested
        columns.append(config.sample)
    for source in sources[1:]:
        if extra := sorted(set(read_columns(source, config)) - set(columns)):
            notes.append(
                f"{source.name}: columns {extra[:8]} are not in {sources[0].name}: left out"
            )
    censuses = {name: LevelCensus() for name in columns if name != config.sample}
    for raw in _read_all(sources, config, columns, notes):
        for name, census in censuses.items():
            census.add(raw.batch.column(name))
    _note_header(sources[0], censuses, config, notes)
    undecodable = {name: n for name, each in censuses.items() if (n := each.undecodable)}
    if undecodable:
        where = f" of the columns {list_names(list(undecodable))}"
        notes.append(_describe_undecodable(sum(undecodable.values()), "values" + where, config))
    return censuses


def _describe_undecodable(count: int, what: str, config: SourceConfig) -> str:
    return (
        f"{count} {what} are not in the encoding {config.encoding}: they are not among the levels, and their rows "
        "would go to quarantine; set source.encoding (pmf infer: --encoding cp1252, say), or save the files as UTF-8"
    )


def count_answers(
    sources: Sequence[Source], config: SourceConfig, notes: list[str]
) -> dict[str, LevelCensus]:
    """Count values by variable, in natural order of the variables."""
    assert config.variable is not None
    assert config.value is not None
    assert config.sample is not None
    censuses: dict[str, LevelCensus] = {}
    undecodable = 0
    columns = list(dict.fromkeys([config.variable, config.value, config.sample]))
    for raw in _read_all(sources, config, columns, notes):
        names, variable = _distinct(raw.batch.column(config.variable))
        values, value = _distinct(raw.batch.column(config.value))
        pairs, counts = _count_pairs(variable * len(values) + value, len(names) * len(values))
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            which, what = divmod(pair, len(values))
            name, text = names[which], values[what]
            if name is None or text is None:
                undecodable += count
            elif name:
                censuses.setdefault(name, LevelCensus()).count(text, count, LONG_TRACKED)
        if len(censuses) > MAX_VARIABLES:
            raise SchemaError(
                f"column {config.variable!r} has more than {MAX_VARIABLES} distinct values; "
                "is source.variable the column that names the question?"
            )
    if undecodable:
        notes.append(_describe_undecodable(undecodable, "answers", config))
    return dict(sorted(censuses.items(), key=lambda item: natural_key(item[0])))


def _distinct(column: pa.Array) -> tuple[list[str | None], IntArray]:
    """Distinct texts of a column, None where not UTF-8, and each row's place among them."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts: list[str | None] = []
    for value in [*coded.dictionary.to_pylist(), None]:
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else value
            texts.append("" if text is None else as_text(text).strip())
        except UnicodeDecodeError:
            texts.append(None)
    places = coded.indices.cast(pa.int64()).fill_null(len(texts) - 1)
    return texts, places.to_numpy(zero_copy_only=False)


def _count_pairs(pairs: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Distinct pairs and how often each occurs."""
    if size > 4 * pairs.size + 1024:
        distinct, counts = np.unique(pairs, return_counts=True)
        return distinct, counts
    table = np.bincount(pairs, minlength=size)
    present = np.flatnonzero(table)
    return present, table[present]


def _drop_rare(
    censuses: Mapping[str, LevelCensus], config: SourceConfig, min_count: int, notes: list[str]
) -> dict[str, LevelCensus]:
    missing = {text.strip() for text in config.missing}
    kept: dict[str, LevelCensus] = {}
    n_answers = 0
    for name, census in censuses.items():
        count = sum(n for text, n in census.counts.items() if text not in missing)
        if count >= min_count:
            kept[name] = census
        else:
            n_answers += count
    if rare := len(censuses) - len(kept):
        notes.append(
            f"{rare} variables with fewer than {min_count} answers ({n_answers} in all) are left out: the schema names "
            "them in left_out, and their rows will be counted, but neither used nor put in quarantine"
        )
    return kept


def _share_levels(
    censuses: Mapping[str, LevelCensus],
    config: SourceConfig,
    codes: Mapping[str, Sequence[CodeProposal]],
    max_levels: int,
    notes: list[str],
) -> set[str]:
    """Add the levels of all numeric variables to each of them, counted zero times, and name these variables."""
    missing = {text.strip() for text in config.missing}
    union: dict[float, str] = {}
    group: dict[str, dict[float, str]] = {}
    for name, census in censuses.items():
        own_codes = {each.text for each in codes.get(name, ())}
        texts = [text for text in census.counts if text not in missing and text not in own_codes]
        numbers = [_finite(text) for text in texts]
        if census.overflowed or any(number is None for number in numbers):
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
                censuses[name].counts[text] = 0
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
