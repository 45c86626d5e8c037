"""How raw files are to be read, found out from their first part, and compared with what is configured."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pmflib.core.errors import SourceError
from pmflib.ingest.csv.dialects import (
    SplitRows,
    find_decimal,
    find_delimiter,
    find_header,
    split_rows,
)
from pmflib.ingest.csv.encodings import EncodingGuess, detect_encoding
from pmflib.ingest.csv.rows import open_text
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import is_parquet
from pmflib.ingest.sources import DAMAGED, Source, open_source, spare_transient

SNIFFED_BYTES = 128 << 10
"""Bytes of the first file, in UTF-8, whose rows are looked at."""
SNIFFED_ROWS = 1000
"""Rows that are looked at, at most."""
SNIFFED_FILES = 16
"""Files whose encoding is looked at, at most."""


def sniff_source(
    sources: Sequence[Source], config: SourceOptions, given: Collection[str]
) -> tuple[SourceOptions, list[str]]:
    """Find the options of CSV files that were not given: encoding, delimiter, decimal, columns.

    Encodings are looked for in the first ``SNIFFED_FILES`` files, everything else in the first one. Columns of a file
    without a header are named c1, c2, ...

    Parameters
    ----------
    sources
        The files, at least one.
    config
        Options that were given, and defaults.
    given
        Names of the options that were given, and are not looked for.

    Returns
    -------
    The options, and a note for each that is not the default.

    Raises
    ------
    SourceError
        If it is not clear how a file is to be read: the error names what may be meant, and the option to set.
    """
    files = [source for source in sources if not is_parquet(source, config)]
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
    if "decimal" not in given:
        decimal, note = find_decimal(split, config)
        config = config.model_copy(update={"decimal": decimal})
        notes += [note] if note else []
    if "columns" not in given:
        config = _name_columns(files[0], split, config, notes)
    return config, notes


def name_columns(width: int) -> tuple[str, ...]:
    """Names for the columns of a file without a header: c1, c2, ..., with as many digits as the last has."""
    return tuple(f"c{number:0{len(str(width))}}" for number in range(1, width + 1))


def _name_columns(
    source: Source, split: SplitRows, config: SourceOptions, notes: list[str]
) -> SourceOptions:
    has_header, alike = find_header(split, config)
    configured = {config.sample, config.weight, config.variable, config.value, config.time} - {None}
    names = [field.strip() for field in split.rows[0]] if split.rows else []
    if configured & set(names):
        # whoever names columns has seen the header
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
    """One encoding for all files; those of ASCII alone are in any."""
    decisive = {source: guess for source, guess in guesses.items() if guess.words}
    found = {guess.encoding: source.name for source, guess in reversed(decisive.items())}
    if "utf-8" in found and len(found) > 1:
        listed = ", ".join(f"{name} in {encoding}" for encoding, name in sorted(found.items()))
        raise SourceError(
            f"files are in different encodings: {listed}; save all of them as UTF-8, or say which it is in "
            "source.encoding (pmf infer: --encoding)"
        )
    # the file with most texts that could decide is not known: the first one speaks for all
    return next(iter(decisive.values()), next(iter(guesses.values())))


def read_beginning(source: Source, config: SourceOptions) -> str:
    """Whole lines of the beginning of a file."""
    content = b""
    try:
        with open_source(source) as stored:
            # it is split at single characters, whatever the delimiter turns out to be
            plain = config.model_copy(update={"delimiter": ","})
            stream = open_text(source, plain, stored)
            while len(content) <= SNIFFED_BYTES and (part := stream.read(SNIFFED_BYTES)):
                content += part
    except DAMAGED as error:
        # what is wrong is said when the file is read
        spare_transient(error)
    text = content[:SNIFFED_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    if len(content) > SNIFFED_BYTES:
        text = text[: text.rfind("\n") + 1] or text
    return "".join(text.splitlines(keepends=True)[:SNIFFED_ROWS])


def check_reading(source: Source, config: SourceOptions) -> list[str]:
    """Differences between how a CSV file seems to be written and how it is read, a sentence for each.

    Parameters
    ----------
    source
        The file.
    config
        Encoding, delimiter, columns and sign before decimals that are configured.

    Returns
    -------
    Sentences that name the option to set; none for Parquet.

    Raises
    ------
    SourceError
        If the file cannot be read.
    """
    if is_parquet(source, config):
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


def _reads_alike(guess: EncodingGuess, encoding: str) -> bool:
    """Whether an encoding reads the texts that were found as the one does that was guessed."""
    try:
        return all(word.encode(guess.encoding).decode(encoding) == word for word in guess.words)
    except UnicodeError:
        return False
