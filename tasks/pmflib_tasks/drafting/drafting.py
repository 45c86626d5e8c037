"""Drafts of pipelines from data: schema.json, schema.md and pipeline.toml, for a person to review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pmflib.base.errors import ConfigError
from pmflib.ingest.csv.sniffing import sniff_source
from pmflib.ingest.dataset.repeated_rows import check_repeated
from pmflib.ingest.options import abridge, make_source
from pmflib.ingest.source_paths import make_absolute
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema
from pmflib.schema.variable import DEFAULT_MISSING
from pmflib.surveys.drafting.long_shape import find_long_log, note_waves
from pmflib.surveys.drafting.schema_draft import draft_schema, number_columns
from pmflib_tasks.config.loading import draft_config, relate
from pmflib_tasks.config.pipeline import draft_name
from pmflib_tasks.drafting.draft_options import DraftOptions
from pmflib_tasks.features import list_offers

MOST_DIGITS = 9
"""Maximum number of digits of a rank."""


@dataclass(frozen=True)
class DraftedPipeline:
    """A drafted pipeline.

    Parameters
    ----------
    schema
        Variables.
    notes
        Points to review, a sentence each.
    files
        Files of the schema, its description and the configuration.
    long_flags
        Options that would read the table as a long log, if it looks like one; else empty.
    """

    schema: Schema
    notes: tuple[str, ...]
    files: tuple[Path, Path, Path]
    long_flags: str = ""


def draft_pipeline(path: str, output: Path, options: DraftOptions) -> DraftedPipeline:
    """Draft a pipeline from data.

    Parameters
    ----------
    path
        File, folder, glob or URL.
    output
        Folder for schema.json, schema.md and pipeline.toml, which must not exist.
    options
        Options of the draft.

    Raises
    ------
    ConfigError
        If a file exists already, or options contradict each other or are out of range.
    SourceError, SchemaError
        If the data cannot be read, or lack a named column.
    """
    rank = None if options.rank is None else read_rank(options.rank)
    schema_path, config_path, about = (
        output / name for name in ("schema.json", "pipeline.toml", "schema.md")
    )
    if existing := [str(each) for each in (schema_path, config_path, about) if each.exists()]:
        raise ConfigError(f"{existing} exist already; give --output another folder, or delete them")
    if options.header is not None and options.columns is not None:
        raise ConfigError(
            "--columns names the columns of files without a header, and --no-header names them itself; pass one of them"
        )
    absolute = make_absolute(path)
    fields = {"path": absolute, **options.list_fields()}
    if options.missing:
        fields["missing"] = tuple(dict.fromkeys([*DEFAULT_MISSING, *options.missing]))
    sources = find_sources(absolute)
    # a header that was declared is not detected
    given = {*fields, *(["columns"] if options.header is not None else [])}
    source, found_out = sniff_source(sources, make_source(fields), given)
    if options.header is False:
        source = source.model_copy(update={"columns": number_columns(sources[0], source)})
    drafted = draft_schema(
        sources,
        source,
        max_levels=options.max_levels,
        bins=options.bins,
        min_count=options.min_count,
        target=options.target,
        split=options.signs,
        absent=options.absent,
    )
    if options.target is not None:
        for cut_draft in list_offers("cut_draft"):
            drafted = cut_draft(drafted, sources, source, options.target)
    is_plain = source.layout == "wide" and options.sample is None
    shape = find_long_log(sources, source) if is_plain else None
    waves = note_waves(sources, source, shape) if source.layout == "wide" else None
    if waves is not None:
        found_out.insert(0, waves)
        shape = None
    if shape is not None:
        found_out.insert(0, f"{shape.reason}; if a row is one answer: pmf infer ... {shape.flags}")
    drafted = replace(drafted, notes=(*found_out, *drafted.notes))
    schema = drafted.schema
    is_plain &= shape is None
    if is_plain and (repeated := check_repeated(sources, source, schema.columns)):
        drafted = replace(drafted, notes=(repeated, *drafted.notes))
    own = tuple(filter(None, (note(schema) for note in list_offers("note_draft"))))
    drafted = replace(drafted, notes=(*drafted.notes, *own))
    output.mkdir(parents=True, exist_ok=True)
    related = relate(source, output)
    read = related.model_dump(mode="json", exclude_defaults=True)
    readable = replace(drafted, source=read).save(schema_path)
    # only latent classes predict a target
    is_rating_log = source.layout == "long" and options.target is None
    suited = [choose(schema) for choose in list_offers("draft_model")] if is_rating_log else []
    # a rank that is asked for is that of latent classes
    fit: Mapping[str, Any] = {} if rank is not None else next(filter(None, suited), {})
    # latent classes of a target's levels predict it better than forests
    is_open = not fit and options.target is None
    if rank is None and not is_open:
        rank = fit.get("rank", "auto")
    text = draft_config(
        related,
        rank=rank,
        method=fit.get("method", "auto"),
        method_options=fit.get("method_options"),
        dependence="auto" if is_open and rank is not None else "none",
        target=options.target,
        likely_weight=drafted.likely_weight if options.weight is None else None,
        likely_replicates=drafted.likely_replicates if options.replicates is None else None,
        quick=options.quick,
        notes=drafted.notes,
        name=draft_name(output),
    )
    config_path.write_text(text, "utf-8")
    files = schema_path, readable, config_path
    return DraftedPipeline(schema, drafted.notes, files, "" if shape is None else shape.flags)


def read_rank(text: str) -> int | Literal["auto"]:
    """Parse a rank.

    Raises
    ------
    ConfigError
        If it is neither an integer of at least 1 nor "auto".
    """
    if text == "auto":
        return "auto"
    # Python limits the number of digits that it parses
    rank = int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0
    if rank < 1:
        raise ConfigError(
            f"--rank is {abridge(text)}; pass a whole number of at least 1 and at most {MOST_DIGITS} digits, or auto"
        )
    return rank
