"""Files that cannot be read: one does not hide what is wrong with others, nor what the good ones hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pmflib.errors import PmfError, SchemaError, SourceError
from pmflib.ingest.sources import Source

T = TypeVar("T")


def attempt(item: Any, *shared: Any, build: Callable[..., T]) -> T | PmfError:
    """Return what a step on one file gives, or its error: one bad file does not hide what is wrong with others."""
    try:
        return build(item, *shared)
    except (SourceError, SchemaError) as error:
        return error


def keep_readable(
    sources: Sequence[Source], results: Sequence[T | PmfError], rule: str, skipped: dict[str, str]
) -> list[tuple[Source, T]]:
    """Keep the files that a step could use.

    Parameters
    ----------
    sources, results
        The files, and what `attempt` gave for each.
    rule
        "skip" or "stop": what a file that cannot be read means for the others.
    skipped
        Gets the names of the files that cannot be read, and why, where they are skipped.

    Returns
    -------
    Files with their results.

    Raises
    ------
    SourceError, SchemaError
        For all files that failed and are not skipped, or if none is left.
    """
    kept: list[tuple[Source, T]] = []
    errors: list[PmfError] = []
    for source, result in zip(sources, results, strict=True):
        if not isinstance(result, PmfError):
            kept.append((source, result))
        elif rule == "skip" and isinstance(result, SourceError):
            skipped[source.name] = str(result)
        else:
            errors.append(result)
    if not kept and not errors:
        errors = [SourceError(reason) for reason in skipped.values()]
    if len(errors) > 1:
        listed = "\n".join(f"- {error}" for error in errors)
        raise type(errors[0])(f"{len(errors)} of {len(sources)} files cannot be used:\n{listed}")
    if errors:
        raise errors[0]
    return kept
