"""Command that recommends items to samples."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pmflib.apps.recommending.options import Recommendations
from pmflib.base.errors import SourceError
from pmflib_flows.commands.live_model import Data, Keep, Output, print_answer, publish_results
from pmflib_flows.console import AsJson, ConfigPath
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
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with labels of items, such as titles, for the output: its first columns are item, label."
        ),
    ] = None,
    data: Data = None,
    keep: Keep = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Recommend the best items to every sample by the samples of the last run, a row for each sample and item."""
    from pmflib_flows.recommending.recommend_flow import recommend_flow

    options = replace(
        requested,
        groups=() if groups is None else _read_pairs("--groups", groups, ("item", "group")),
        most_per_group=most_per_group,
        labels=() if labels is None else _read_pairs("--labels", labels),
    ).to_json()
    answer = publish_results(recommend_flow, config, data, keep, output, as_json, options=options)
    print_answer(answer, as_json)


def _read_pairs(
    flag: str, path: Path, columns: tuple[str, ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Read the group or the label of each item from a CSV file, by default from its first two columns."""
    wanted = (
        "the columns " + " and ".join(columns)
        if columns
        else "the item and its label in its first columns"
    )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows, reader = [], csv.DictReader(file, strict=True)
            item, other = columns or (reader.fieldnames or ())[:2]
            for row in reader:
                if None in row or None in row.values():
                    raise csv.Error(f"line {reader.line_num} has more or fewer fields than line 1")
                rows.append((row[item], row[other]))
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise SourceError(
            f"{flag} {str(path)!r} cannot be read ({error}); name a CSV file in UTF-8 with {wanted}"
        ) from error
    found = dict(rows)
    twice = next((item for item, text in rows if found[item] != text), None)
    if twice is not None:
        raise SourceError(f"{flag} {str(path)!r} has several entries of item {twice!r}; pass one")
    return tuple(found.items())
