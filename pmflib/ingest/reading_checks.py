"""Whether files are read as they are written: what is found out of them against what is configured."""

from __future__ import annotations

from pmflib.config import SourceConfig
from pmflib.errors import SourceError
from pmflib.ingest.dialects import cut_text, find_delimiter
from pmflib.ingest.encodings import EncodingGuess, detect_encoding
from pmflib.ingest.first_rows import find_decimal, find_header
from pmflib.ingest.readers import is_parquet
from pmflib.ingest.sniffing import read_beginning
from pmflib.ingest.sources import Source


def check_reading(source: Source, config: SourceConfig) -> list[str]:
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
    cutting = cut_text(text, config.delimiter)
    if not cutting.works:
        try:
            other, note = find_delimiter(source.name, text)
        except SourceError as error:
            found.append(str(error))
        else:
            if other.delimiter != config.delimiter:
                found.append(f"source.delimiter is {config.delimiter!r}; {note or 'a comma works'}")
            cutting = other
    has_header, alike = find_header(cutting, config)
    if has_header is False and config.columns is None:
        found.append(
            f"its first row is read as a header, and looks like data: {alike[:4]} are values of their own columns; "
            "set source.columns"
        )
    if has_header is True and config.columns is not None and cutting.rows:
        names = [field.strip() for field in cutting.rows[0]]
        if names == list(config.columns):
            found.append("its first row is read as data, and holds the names in source.columns")
    decimal, note = find_decimal(cutting, config)
    if note and decimal != config.decimal:
        found.append(f"source.decimal is {config.decimal!r}; {note}")
    return found


def _reads_alike(guess: EncodingGuess, encoding: str) -> bool:
    """Whether an encoding reads the texts that were found as the one does that was guessed."""
    try:
        return all(word.encode(guess.encoding).decode(encoding) == word for word in guess.words)
    except UnicodeError:
        return False
