"""Command that recommends items to samples with the live model."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pmflib.core.errors import SourceError
from pmflib.core.options import Recommendations
from pmflib.core.texts import show_text
from pmflib_flows.commands.live_model import OUTPUT_HELP, SAID, check_request, publish_answer
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json, progress_shown
from pmflib_flows.option_objects import takes_options


@takes_options
def recommend(
    config: ConfigPath,
    *,
    requested: Recommendations,
    groups: Annotated[
        Path | None, typer.Option(help="CSV file with the group of each item: columns item, group.")
    ] = None,
    most_per_group: Annotated[
        int | None,
        typer.Option(min=1, help="With --groups: most items of a group for each sample."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="New samples. Default: those of the pipeline.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Columns of wide files to copy to the output: a,b,c.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help=OUTPUT_HELP),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend the best items to every sample with the live model, a row for each sample and item."""
    from pmflib.ingest.source_paths import make_absolute
    from pmflib.scoring.accounts import describe_unknown
    from pmflib_flows.score import recommend_flow

    pairs = () if groups is None else tuple(_read_groups(groups).items())
    requested = replace(requested, groups=pairs, most_per_group=most_per_group)
    checked = load_pipeline(config)
    check_request(checked, data, keep, output)
    with progress_shown(as_json):
        reference = recommend_flow(
            str(config),
            requested.to_json(),
            data=make_absolute(data or ""),
            columns=tuple(keep.split(",")) if keep else (),
        )
    answer = publish_answer(checked, reference, output, data)
    if as_json:
        print_json(answer)
        return
    for key, value in answer.items():
        if key not in (*SAID, "targets") and value not in ({}, []):
            out.print(f"{key}: {value}", soft_wrap=True)
    for name, found in answer["unknown_levels"].items():
        out.print(show_text(describe_unknown(name, found, is_target=False)), soft_wrap=True)


def _read_groups(path: Path) -> dict[str, str]:
    """Read the group of each item from a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows, reader = [], csv.DictReader(file, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise csv.Error(f"line {reader.line_num} has more or fewer fields than line 1")
                rows.append((row["item"], row["group"]))
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise SourceError(
            f"--groups {str(path)!r} cannot be read ({error}); name a CSV file in UTF-8 with the columns item, group"
        ) from error
    found = dict(rows)
    twice = next((item for item, group in rows if found[item] != group), None)
    if twice is not None:
        raise SourceError(f"--groups {str(path)!r} has several groups of item {twice!r}; give one")
    return found
