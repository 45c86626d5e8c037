"""Detect the header, columns and decimal sign of CSV files, and compare detected options with configured ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from pmflib.base.errors import SourceError
from pmflib.base.texts import list_some
from pmflib.ingest.chunks import is_text
from pmflib.ingest.csv.delimiters import LEAST_CUT, SplitRows, are_cut, find_delimiter, split_rows
from pmflib.ingest.csv.encodings import EncodingGuess, detect_encoding
from pmflib.ingest.csv.rows import (
    DECIMAL_COMMA,
    SEPARATOR_LINE,
    join_header,
    number_names,
    open_text,
)
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import DAMAGED, Source, open_source, spare_transient
from pmflib.schema.variable import DEFAULT_MISSING, read_number

SNIFFED_BYTES = 128 << 10
"""Size of the examined part of the first file, bytes in UTF-8."""
SNIFFED_ROWS = 1000
"""Largest number of examined rows."""
SNIFFED_FILES = 16
"""Largest number of files whose encoding is detected."""


def sniff_source(
    sources: Sequence[Source], config: SourceOptions, given: Collection[str]
) -> tuple[SourceOptions, list[str]]:
    """Detect the options of CSV files that were not given: encoding, delimiter, decimal sign, columns.

    The encoding is detected in the first ``SNIFFED_FILES`` files, other options in the first one. Columns of files
    without a header are named c1, c2, ...

    Parameters
    ----------
    sources
        The files, at least one.
    config
        Given options and defaults.
    given
        Names of the given options, which are not detected.

    Returns
    -------
    The options, and a note on each that differs from the default.

    Raises
    ------
    SourceError
        If the result is ambiguous, with the candidates and the option to set.
    """
    files = [source for source in sources if is_text(source, config)]
    if not files:
        return config, []
    notes: list[str] = []
    if "encoding" not in given:
        guess = _agree({each: detect_encoding(each) for each in files[:SNIFFED_FILES]})
        config = config.model_copy(update={"encoding": guess.encoding})
        if guess.encoding != "utf-8":
            notes.append(guess.describe())
    text = read_beginning(files[0], config)
    if "delimiter" in given:
        split = split_rows(text, config.delimiter)
    else:
        split, note = find_delimiter(files[0].name, text)
        config = config.model_copy(update={"delimiter": split.delimiter})
        notes += [note] if note else []
    n_rows = config.header_rows
    if "header_rows" not in given and "columns" not in given:
        n_rows = count_header_rows(split.rows)
    if "decimal" not in given:
        decimal, note = find_decimal(replace(split, rows=split.rows[n_rows - 1 :]), config)
        config = config.model_copy(update={"decimal": decimal})
        notes += [note] if note else []
    if n_rows > config.header_rows:
        config = config.model_copy(update={"header_rows": n_rows})
        names = join_header(split.rows[:n_rows])
        words = [repr(text) for text in dict.fromkeys(filter(None, split.rows[1]))]
        notes.append(
            f"the header has {n_rows} rows: {list_some(words, 4)} in the second are no answers; columns are named "
            f"{list_some(names, 4)}; if it has one: pmf infer --header-rows 1"
        )
    if "columns" not in given and config.header_rows == 1:
        config = _name_columns(files[0], split, config, notes)
    if "repeated_columns" not in given and config.columns is None and split.rows:
        config = _number_columns(split, config, notes)
    if "short_rows" not in given and config.columns is None:
        config = _pad_rows(split.rows, config, notes)
    return config, notes


def _pad_rows(
    rows: Sequence[Sequence[str]], config: SourceOptions, notes: list[str]
) -> SourceOptions:
    """Pad short rows, and note them, if all end in a field that is not empty, and their texts fit their columns."""
    width = len(rows[0]) if rows else 0
    data = rows[config.header_rows :]
    short = [row for row in data if len(row) < width]
    if len(short) < LEAST_CUT or not are_cut(rows):
        return config
    columns = list(zip(*(row for row in data if len(row) == width), strict=True))
    for place, column in enumerate(columns):
        known = set(column)
        cells = [row[place] for row in short if place < len(row)]
        # in a row that lost a field elsewhere, texts are in wrong columns
        is_known = all(cell in known or not cell.strip() for cell in cells)
        if len(column) >= REPEATED * len(known) and not is_known:
            return config
    notes.append(
        f"{len(short)} of the first {len(data)} rows have fewer fields than the header, and their last is not empty: "
        "empty ones at their ends were cut, as spreadsheets do, and are missing (source.short_rows = 'pad'; "
        "'quarantine' refuses such rows)"
    )
    return config.model_copy(update={"short_rows": "pad"})


def _number_columns(split: SplitRows, config: SourceOptions, notes: list[str]) -> SourceOptions:
    """Number repeated names of columns, and note them."""
    names = join_header(split.rows[: config.header_rows])
    changed = [
        (old, new) for old, new in zip(names, number_names(names), strict=True) if new != old
    ]
    # equal numbers are rather data than names, and are asked about when the columns are found
    if not changed or any(read_number(old) is not None for old, _ in changed):
        return config
    numbered = [new for _, new in changed]
    notes.append(
        f"the header repeats names of columns, which are numbered: {list_some([repr(name) for name in numbered], 4)}; "
        "rename them in the files if they are other columns (source.repeated_columns)"
    )
    return config.model_copy(update={"repeated_columns": "number"})


NAMED_SHARE = 0.9
"""Least share of columns in which the text of the second row is no value for the row to be part of the header."""
LEAST_NAMED = 3
"""Least number of such columns; two if all have the same text, such as "Response"."""


def count_header_rows(rows: Sequence[Sequence[str]]) -> int:
    """Count the rows of a header: three in exports of Qualtrics, two where the second holds no answers.

    It does where its words fill blank names, or where they are no values of the rows below, in columns of few texts or
    of numbers.
    """
    if len(rows) > 3 and all(field.startswith('{"ImportId"') for field in rows[2]):
        return 3
    blank = [place for place, name in enumerate(rows[0]) if not name.strip()] if rows else []
    is_filled = len(rows) > 2 and all(
        "".join(rows[1][place : place + 1]).strip() for place in blank
    )
    if len(rows) < 2 or any(read_number(field) is not None for field in rows[1]):
        return 1
    return 2 if (len(blank) > 1 and is_filled) or _holds_names(rows[1], rows[2:]) else 1


def _holds_names(second: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the texts of a row are no values of the rows below it."""
    named, n_known = list[str](), 0
    whole = [row for row in rows if len(row) == len(second)]
    for cell, column in zip(second, zip(*whole, strict=True), strict=False):
        values = [text for field in column if (text := field.strip())]
        text = cell.strip()
        if not values or not any(map(str.isalpha, text)) or text in DEFAULT_MISSING:
            continue
        is_number = all(read_number(value) is not None for value in values)
        if text in values:
            n_known += 1
        elif is_number or len(values) >= REPEATED * len(set(values)):
            named.append(text)
    least = 2 if len(set(named)) == 1 else LEAST_NAMED
    return len(named) >= max(least, NAMED_SHARE * (len(named) + n_known))


def name_columns(width: int) -> tuple[str, ...]:
    """Name the columns of a file without a header: c1, c2, ..., zero-padded."""
    return tuple(f"c{number:0{len(str(width))}}" for number in range(1, width + 1))


def _name_columns(
    source: Source, split: SplitRows, config: SourceOptions, notes: list[str]
) -> SourceOptions:
    has_header, alike = find_header(split, config)
    configured = {config.sample, config.weight, config.variable, config.value, config.time} - {None}
    names = [field.strip() for field in split.rows[0]] if split.rows else []
    if configured & set(names):
        # columns named in the options are in the header
        has_header = True
    if has_header is None:
        raise SourceError(
            f"{source.name}: it is not clear whether its first row, {names[:6]}, is a header: {alike[:4]} may be "
            "values of their columns. Say which (pmf infer: --header or --no-header), or name the columns in "
            "source.columns"
        )
    if has_header:
        return config
    columns = name_columns(split.width)
    notes.append(
        f"no header: the first row of {source.name} looks like data, {alike[:4]} are values of their own columns; "
        f"columns are named {columns[0]} to {columns[-1]} (pmf infer: --columns, or --header if it is one)"
    )
    return config.model_copy(update={"columns": columns})


def _agree(guesses: dict[Source, EncodingGuess]) -> EncodingGuess:
    """Choose one encoding for all files; files in ASCII are compatible with any."""
    decisive = {source: guess for source, guess in guesses.items() if guess.words}
    found = {guess.encoding: source.name for source, guess in reversed(decisive.items())}
    if "utf-8" in found and len(found) > 1:
        listed = ", ".join(f"{name} in {encoding}" for encoding, name in sorted(found.items()))
        raise SourceError(
            f"files are in different encodings: {listed}; save all of them as UTF-8, or say which it is in "
            "source.encoding (pmf infer: --encoding)"
        )
    # use the first decisive file
    return next(iter(decisive.values()), next(iter(guesses.values())))


def read_beginning(source: Source, config: SourceOptions) -> str:
    """Read complete lines from the beginning of a file."""
    content = b""
    try:
        with open_source(source) as stored:
            # the delimiter is not known yet, so that none may be replaced
            plain = config.model_copy(update={"delimiter": ","})
            stream = open_text(source, plain, stored)
            while len(content) <= SNIFFED_BYTES and (part := stream.read(SNIFFED_BYTES)):
                content += part
    except DAMAGED as error:
        # damage is reported when the file is read
        spare_transient(error)
    text = content[:SNIFFED_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    if line := SEPARATOR_LINE.match(text):
        text = text[line.end() :]
    if len(content) > SNIFFED_BYTES:
        text = text[: text.rfind("\n") + 1] or text
    return "".join(text.splitlines(keepends=True)[:SNIFFED_ROWS])


def check_reading(source: Source, config: SourceOptions) -> list[str]:
    """Compare the configured options of a CSV file with the detected ones.

    Parameters
    ----------
    source
        The file.
    config
        Configured encoding, delimiter, columns and decimal sign.

    Returns
    -------
    A sentence with the option to set for each difference; empty for other formats.

    Raises
    ------
    SourceError
        If the file cannot be read.
    """
    if not is_text(source, config):
        return []
    found: list[str] = []
    guess = detect_encoding(source)
    if not _reads_alike(guess, config.encoding):
        found.append(f"source.encoding is {config.encoding!r}; {guess.describe()}")
        config = config.model_copy(update={"encoding": guess.encoding})
    text = read_beginning(source, config)
    split = split_rows(text, config.delimiter)
    if not split.works:
        try:
            other, note = find_delimiter(source.name, text)
        except SourceError as error:
            found.append(str(error))
        else:
            if other.delimiter != config.delimiter:
                found.append(f"source.delimiter is {config.delimiter!r}; {note or 'a comma works'}")
            split = other
    has_header, alike = find_header(split, config)
    if has_header is False and config.columns is None:
        found.append(
            f"its first row is read as a header, and looks like data: {alike[:4]} are values of their own columns; "
            "set source.columns"
        )
    if has_header is True and config.columns is not None and split.rows:
        names = [field.strip() for field in split.rows[0]]
        if names == list(config.columns):
            found.append("its first row is read as data, and holds the names in source.columns")
    decimal, note = find_decimal(split, config)
    if note and decimal != config.decimal:
        found.append(f"source.decimal is {config.decimal!r}; {note}")
    return found


def follow_file(source: Source, config: SourceOptions) -> SourceOptions:
    """Detect encoding, delimiter and decimal sign of a file whose header is undecodable or one column as configured.

    Parameters
    ----------
    source
        A CSV file.
    config
        Options that fit other files.

    Returns
    -------
    The options that fit the file; those that were given for files without a header.

    Raises
    ------
    SourceError
        If the file cannot be read, or its delimiter is ambiguous.
    """
    if config.columns is not None:
        return config
    found = config.model_copy(update={"encoding": detect_encoding(source).encoding})
    split, _ = find_delimiter(source.name, read_beginning(source, found))
    if split.width < 2:
        return found
    found = found.model_copy(update={"delimiter": split.delimiter})
    return found.model_copy(update={"decimal": find_decimal(split, found)[0]})


def _reads_alike(guess: EncodingGuess, encoding: str) -> bool:
    """Whether an encoding decodes the sample texts like the guessed one."""
    try:
        return all(word.encode(guess.encoding).decode(encoding) == word for word in guess.words)
    except UnicodeError:
        return False


MANY_VALUES = 20
"""Number of distinct numbers above which any number within the range of a column may belong to it."""
REPEATED = 4
"""Least number of rows per distinct text for a text only in the first row to be a column name."""
UNCLEAR_SHARE = 1 / 3
"""Share of contradicting columns from which the existence of a header is ambiguous."""

_COMMA = re.compile(DECIMAL_COMMA)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def find_header(split: SplitRows, config: SourceOptions) -> tuple[bool | None, list[str]]:
    """Detect whether the first row is a header, by a vote of the columns.

    A first field that occurs again in its column is evidence for data. A text above numbers, or a text that does not
    occur again in a column with few distinct texts, is evidence for a header.

    Parameters
    ----------
    split
        The rows.
    config
        Missing codes and decimal sign.

    Returns
    -------
    Whether there is a header, None if columns contradict each other; and the fields that are evidence for data.
    """
    if not split.rows:
        return True, []
    first = [field.strip() for field in split.rows[0]]
    columns = _read_columns(split, config, split.rows[1:])
    absent = {text.strip() for text in config.missing} | {"?", "-"}
    alike: list[str] = []
    weak: list[str] = []
    names = 0
    for field, column in zip(first, columns, strict=False):
        if not column or field in absent:
            continue
        numbers = [_read(text, config) for text in column]
        own = _read(field, config)
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers):
            if own is None:
                names += 1
            elif own in known or (
                len(set(known)) > MANY_VALUES and min(known) <= own <= max(known)
            ):
                alike.append(field)
            else:
                weak.append(field)
        elif field in column:
            alike.append(field)
        elif len(column) >= REPEATED * len(set(column)):
            names += 1
    if not alike and not names and weak:
        return None, weak
    less = min(len(alike), names)
    if less and less >= UNCLEAR_SHARE * (len(alike) + names):
        return None, alike
    return len(alike) <= names, alike


def find_decimal(split: SplitRows, config: SourceOptions) -> tuple[Literal[".", ","], str]:
    """Detect the decimal sign; return it with a note for review, or ""."""
    commas: list[str] = []
    points: list[str] = []
    for column in _read_columns(split, config, split.rows):
        written = [text for text in column if _COMMA.match(text)]
        texts = [_point(text) for text in column]
        # the first row may be a header
        if sum(read_number(text) is None for text in texts) <= 1:
            commas += written
            points += [text for text in column if "." in text and read_number(text) is not None]
    if not commas:
        return ".", ""
    if points:
        return ".", (
            f"some numbers have a decimal comma ({commas[0]!r}) and some a point ({points[0]!r}): those with a comma "
            "are texts; correct the files, or set source.decimal (pmf infer: --decimal)"
        )
    if all(_THOUSANDS.fullmatch(text) for text in commas):
        return ".", (
            f"{commas[0]!r} may be thousands, or a number with three decimals, and is a text as it stands: set "
            "source.decimal = ',' (pmf infer: --decimal), or take the commas out of the files"
        )
    return ",", f"decimal comma: {commas[0]!r} is read as {_point(commas[0])!r}"


def _read_columns(
    split: SplitRows, config: SourceOptions, rows: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Nonmissing values by column, from rows with the right number of fields."""
    missing = {text.strip() for text in config.missing}
    whole = [row for row in rows if len(row) == split.width]
    columns = zip(*whole, strict=True)
    return [
        [text for field in column if (text := field.strip()) not in missing] for column in columns
    ]


def _read(text: str, config: SourceOptions) -> float | None:
    return read_number(_point(text) if config.decimal == "," else text)


def _point(text: str) -> str:
    """Replace a decimal comma by a point."""
    return _COMMA.sub(r"\1.\2", text)
