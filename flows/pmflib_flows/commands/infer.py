"""Command that drafts a pipeline from data: infer."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pmflib.core.errors import ConfigError
from pmflib_flows.console import AsJson, out, print_json

if TYPE_CHECKING:
    pass

NOTES_SHOWN = 20
"""Notes for the reviewer that are printed, at most; the configuration holds all."""


def infer(
    path: Annotated[str, typer.Argument(help="File, folder, glob or URL.")],
    sample: Annotated[str | None, typer.Option(help="Column that identifies the sample.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the weight of each sample.")
    ] = None,
    psu: Annotated[
        str | None, typer.Option(help="With a weight: column of the primary sampling units.")
    ] = None,
    stratum: Annotated[
        str | None, typer.Option(help="With --psu: column of the strata, which may be a variable.")
    ] = None,
    replicates: Annotated[
        str | None,
        typer.Option(
            help="With a weight: pattern of the columns of replicate weights, as 'W_FSTR*'."
        ),
    ] = None,
    replicate_method: Annotated[
        str | None,
        typer.Option(
            help="With --replicates: BRR, Fay, JK1, JK2 or bootstrap, as the survey says."
        ),
    ] = None,
    fay: Annotated[float | None, typer.Option(help="Fay's factor, with the method Fay.")] = None,
    variable: Annotated[
        str | None, typer.Option(help="Long logs: column that names the variable.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Long logs: column that holds the answer.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Long logs: column that orders answers.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first row holds names; if not, columns are named c1, c2, ...",
            show_default="found out",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="Delimiter of CSV files; \\t is a tab, whitespace any run of blanks.",
            show_default="found out",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of CSV files, as utf-8 or cp1252.", show_default="found out"),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="Sign before decimals: a point or a comma.", show_default="found out"),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="Text that means 'not given', besides '', NA, NaN, null; may be repeated."
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=1, help="Long logs: answers that a variable must have.")
    ] = 1,
    max_levels: Annotated[
        int, typer.Option(min=2, help="More distinct numbers are cut into bins.")
    ] = 32,
    bins: Annotated[int, typer.Option(min=2, help="Bins of a continuous column.")] = 8,
    rank: Annotated[
        str,
        typer.Option(help="Number of latent states; auto: chosen on held-out counts and samples."),
    ] = "auto",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Write a budget of a minute for rank auto, which else takes ten."
        ),
    ] = False,
    target: Annotated[
        str | None, typer.Option(help="Variable that the model is to predict; it is checked first.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for schema.json and pipeline.toml.")] = Path(
        "."
    ),
    as_json: AsJson = False,
) -> None:
    """Draft schema.json and pipeline.toml from data for you to review; schema.md explains each decision.

    Without --variable, a row is a sample and a column a variable. With --sample, --variable and --value, a row is one
    answer of a sample to a variable; where all answers are numbers, continuous traits are to be compared with latent
    classes; a table that looks like such a log is named, with these options.

    Encoding, delimiter, header and decimals of CSV files are found out unless they are given, and noted for
    review where they are not the usual ones.
    """
    from pmflib.cluster.memory import ClusterMemory
    from pmflib.ingest.draft_values import number_columns
    from pmflib.ingest.long_shape import find_long_log
    from pmflib.ingest.options import make_source
    from pmflib.ingest.schema_draft import draft_schema
    from pmflib.ingest.sniffing import sniff_source
    from pmflib.ingest.source_paths import make_absolute
    from pmflib.ingest.sources import find_sources
    from pmflib.model.traits.level_scores import are_ratings
    from pmflib.schema.variable import DEFAULT_MISSING
    from pmflib_tasks.config.loading import draft_config, relate
    from pmflib_tasks.operations.planning import check_width

    chosen = _read_rank(rank)
    targets = (output / "schema.json", output / "pipeline.toml", output / "schema.md")
    if existing := [str(target) for target in targets if target.exists()]:
        raise ConfigError(f"{existing} exist already; give --output another folder, or delete them")
    absolute = make_absolute(path)
    fields: dict[str, Any] = {
        "path": absolute,
        "layout": "wide" if variable is None and value is None and time is None else "long",
        "sample": sample,
        "weight": weight,
        "psu": psu,
        "stratum": stratum,
        "replicates": replicates,
        "replicate_method": replicate_method,
        "fay": fay,
        "variable": variable,
        "value": value,
        "time": time,
    }
    csv_options: dict[str, Any] = {
        "delimiter": None if delimiter is None else delimiter.replace("\\t", "\t"),
        "encoding": encoding,
        "decimal": decimal,
        "columns": None if columns is None else tuple(columns.split(",")),
    }
    fields |= {option: value for option, value in csv_options.items() if value is not None}
    if missing:
        fields["missing"] = tuple(dict.fromkeys([*DEFAULT_MISSING, *missing]))
    if header is not None and columns is not None:
        raise ConfigError(
            "--columns names the columns of files without a header, and --no-header names them itself; give one of them"
        )
    found = find_sources(absolute)
    # whether there is a header is not looked for where it was said
    given = {*fields, *(["columns"] if header is not None else [])}
    source, found_out = sniff_source(found, make_source(fields), given)
    if header is False:
        source = source.model_copy(update={"columns": number_columns(found[0], source)})
    drafted = draft_schema(
        found, source, max_levels=max_levels, bins=bins, min_count=min_count, target=target
    )
    shape = find_long_log(found, source) if source.layout == "wide" and sample is None else None
    flags = "" if shape is None else shape.flags
    if shape is not None:
        found_out.insert(0, f"{shape.reason}; if a row is one answer: pmf infer ... {flags}")
    drafted = replace(drafted, notes=(*found_out, *drafted.notes))
    schema, notes = drafted.schema, drafted.notes
    check_width(schema, ClusterMemory.here())
    output.mkdir(parents=True, exist_ok=True)
    related = relate(source, output)
    readable = replace(drafted, source=related.model_dump(mode="json", exclude_defaults=True)).save(
        targets[0]
    )
    # a target is predicted by latent classes alone
    suits_traits = source.layout == "long" and target is None and are_ratings(schema)
    method = "compare" if suits_traits else "auto"
    # states of a target's levels predict it better than forests; of traits and classes, these have none
    is_open = method == "auto" and target is None
    dependence = "auto" if is_open else "none"
    options: dict[str, Any] = {"rank": chosen, "method": method, "dependence": dependence}
    likely = drafted.likely_weight if weight is None else None
    options |= {"target": target, "likely_weight": likely, "quick": quick}
    options["likely_replicates"] = drafted.likely_replicates if replicates is None else None
    text = draft_config(related, **options, notes=notes)
    targets[1].write_text(text, "utf-8")
    if as_json:
        print_json(
            {
                "variables": schema.n_variables,
                "levels": schema.n_levels,
                "review": notes,
                "long_flags": flags,
            }
        )
        return
    out.print(f"{schema.n_variables} variables with {schema.n_levels} levels in all")
    for note in notes[:NOTES_SHOWN]:
        out.print(f"review: {note}")
    if notes[NOTES_SHOWN:]:
        out.print(f"review: all {len(notes)} notes are in {targets[1]}")
    command = f"pmf run {shlex.quote(str(targets[1]))}"
    out.print(
        f"Wrote {targets[0]}, {readable} and {targets[1]}; review them, then: {command}",
    )
    if flags:
        again = (
            f"pmf infer {shlex.quote(path)} {flags} --output {shlex.quote(str(output / 'long'))}"
        )
        out.print(f"If a row is one answer, draft it as a long log: {again}")


MOST_DIGITS = 9
"""Digits of a rank, at most: that of any data is below."""


def _read_rank(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    from pmflib.ingest.section import abridge

    # no rank has as many digits, and Python reads only so many
    rank = int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0
    if rank < 1:
        raise ConfigError(
            f"--rank is {abridge(text)}; give a whole number of at least 1 and at most {MOST_DIGITS} digits, or auto"
        )
    return rank
