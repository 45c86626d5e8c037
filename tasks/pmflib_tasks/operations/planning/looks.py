"""Rows and samples of a CSV log, estimated from excerpts that are spread over its files."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pmflib.schema import Schema

if TYPE_CHECKING:
    from pmflib.ingest.options import SourceOptions
    from pmflib.ingest.sources import Source
    from pmflib_tasks.config import PipelineConfig

EXCERPTS, EXCERPT_BYTES = 16, 256 << 10
"""Pieces that are looked at, and bytes of each."""


@dataclass(frozen=True)
class Look:
    """What excerpts of a log say of all of it.

    Parameters
    ----------
    seen
        Rows that were looked at.
    row_bytes
        Bytes of a row.
    observed
        Share of the cells of a wide row that hold something; 0 of a long log.
    samples
        Samples of a long log; 0 of a wide one.
    """

    seen: int
    row_bytes: float
    observed: float
    samples: int


def look_at_log(
    sources: Sequence[Source], csv_bytes: int, config: PipelineConfig, schema: Schema
) -> Look:
    """Look at excerpts of the files of a log.

    Parameters
    ----------
    sources
        Its files, at least one; of packed ones the beginning alone is read.
    csv_bytes
        Bytes that all of them have unpacked.
    config
        Section ``source`` says how they are written.
    schema
        Variables of a wide log.
    """
    options = config.source
    names = options.columns or next(_read_lines(sources[0], 0, EXCERPT_BYTES, options), ([], 0))[0]
    indices = {name.strip("\ufeff "): index for index, name in enumerate(names)}
    variables = [
        (index, {*variable.missing, ""})
        for variable in schema.variables
        if (index := indices.get(variable.name, -1)) >= 0
    ]
    sample = indices.get(options.sample or "", 0)
    n_rows, n_bytes, n_given = 0, 0, 0
    excerpts: list[set[str]] = []
    for source, start, size in choose_excerpts(sources):
        excerpts.append(set())
        for number, (line, length) in enumerate(_read_lines(source, start, size, options)):
            if not number and (start or options.columns is None):
                # what is left of a row that began before, or names
                continue
            n_rows, n_bytes = n_rows + 1, n_bytes + length
            if options.layout == "long":
                excerpts[-1].update(line[sample : sample + 1])
            else:
                n_given += sum(
                    len(line) > index and line[index].strip() not in missing
                    for index, missing in variables
                )
    n_rows, n_bytes = max(n_rows, 1), max(n_bytes, 1)
    samples = 0
    if options.layout == "long":
        share = min(1.0, n_bytes / max(csv_bytes, 1))
        samples = estimate_samples(excerpts, share)
    observed = n_given / (n_rows * schema.n_variables)
    return Look(n_rows, n_bytes / n_rows, observed, samples)


def choose_excerpts(sources: Sequence[Source]) -> list[tuple[Source, int, int]]:
    """File, position and length of each excerpt, bytes: evenly spread; no two of the same place."""
    from pmflib.ingest.sources import PACKED

    total = sum(each.size for each in sources)
    size = min(EXCERPT_BYTES, -(-total // EXCERPTS))
    found: dict[tuple[str, int], tuple[Source, int, int]] = {}
    for number in range(EXCERPTS):
        position = number * total // EXCERPTS
        for source in sources:
            if position < source.size:
                break
            position -= source.size
        if source.name.lower().endswith(PACKED):
            found[source.name, 0] = source, 0, EXCERPT_BYTES
        else:
            found[source.name, position] = source, position, size
    return list(found.values())


def estimate_samples(excerpts: Sequence[set[str]], share: float) -> int:
    """Estimate how many samples a log has from the identifiers in some of its excerpts.

    Where the rows of a sample lie together, as many more samples follow as rows. Where they lie scattered, samples come
    again in other excerpts: how many were seen in one, and in two, says how many in none (Chao, 1987, for unequal
    frequencies). That is a lower bound, and the first an upper one; taken is the lesser.

    Parameters
    ----------
    excerpts
        Identifiers in each excerpt.
    share
        Share of the rows that the excerpts have, in (0, 1].
    """
    times = Counter(identifier for excerpt in excerpts for identifier in excerpt)
    n_seen = len(times)
    most = n_seen / share
    if len(excerpts) < 2:
        return max(1, round(most))
    once, twice = (sum(count == n for count in times.values()) for n in (1, 2))
    unseen = once * (once - 1) / (2 * (twice + 1))
    return max(1, round(min(most, n_seen + unseen)))


def _read_lines(
    source: Source, start: int, size: int, options: SourceOptions
) -> Iterator[tuple[Sequence[str], int]]:
    """Fields of the lines of an excerpt, the last one cut off, and the bytes of each."""
    from pmflib.ingest.options import WHITESPACE
    from pmflib.ingest.sources import open_source

    with open_source(source) as stream:
        if start:
            stream.seek(start)
        content = stream.read(size)
    if (end := content.rfind(b"\n")) > 0:
        content = content[: end + 1]
    for line in content.splitlines():
        text = line.decode(options.encoding, "replace")
        if options.delimiter == WHITESPACE:
            yield text.split(), len(line) + 1
        elif len(options.delimiter) == 1:
            read = csv.reader(io.StringIO(text, newline=""), delimiter=options.delimiter)
            yield next(read, []), len(line) + 1
        else:
            yield text.split(options.delimiter), len(line) + 1
