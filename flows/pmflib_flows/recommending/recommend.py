"""Command that recommends items to samples with the live model."""

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
    data: Data = None,
    keep: Keep = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Recommend the best items to every sample with the live model, a row for each sample and item."""
    from pmflib_flows.recommending.recommend_flow import recommend_flow

    pairs = () if groups is None else tuple(_read_groups(groups).items())
    options = replace(requested, groups=pairs, most_per_group=most_per_group).to_json()
    answer = publish_results(recommend_flow, config, data, keep, output, as_json, options=options)
    print_answer(answer, as_json)


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
        raise SourceError(f"--groups {str(path)!r} has several groups of item {twice!r}; pass one")
    return found
