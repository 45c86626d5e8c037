"""Command that imputes missing answers with draws from the live model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmflib.core.texts import show_text
from pmflib_flows.commands.live_model import OUTPUT_HELP, SAID, check_request, publish_answer
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json, progress_shown


def impute(
    config: ConfigPath,
    draws: Annotated[
        int,
        typer.Option(
            min=1, help="Number of imputed tables; several are each based on a bootstrap sample."
        ),
    ] = 1,
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
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed. Default: that of the pipeline.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Impute missing answers with draws from the live model; writes every row once per draw."""
    from pmflib.ingest.source_paths import make_absolute
    from pmflib.scoring.accounts import describe_unknown
    from pmflib_flows.score import impute_flow

    checked = load_pipeline(config)
    check_request(checked, data, keep, output)
    with progress_shown(as_json):
        reference = impute_flow(
            str(config),
            draws=draws,
            data=make_absolute(data or ""),
            columns=tuple(keep.split(",")) if keep else (),
            seed=seed,
        )
    answer = publish_answer(checked, reference, output, data)
    answer["draws"] = draws
    if as_json:
        print_json(answer)
        return
    for key, value in answer.items():
        if key not in (*SAID, "left_missing", "targets") and value not in ({}, []):
            out.print(f"{key}: {value}", soft_wrap=True)
    for name, found in answer["unknown_levels"].items():
        sentence = describe_unknown(name, found, is_target=False)
        out.print(show_text(sentence), soft_wrap=True)
    for name in answer["left_missing"]:
        sentence = (
            f"{name}: no sample that the model was fitted to holds it; its cells stay missing"
        )
        out.print(show_text(sentence), soft_wrap=True)
