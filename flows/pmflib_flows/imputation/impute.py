"""Command that imputes missing answers with draws from the live model."""

from __future__ import annotations

from typing import Annotated

import typer

from pmflib_flows.commands.live_model import Data, Keep, Output, print_answer, publish_results
from pmflib_flows.console import AsJson, ConfigPath


def impute(
    config: ConfigPath,
    draws: Annotated[
        int,
        typer.Option(
            min=1, help="Number of imputed tables; several are each based on a bootstrap sample."
        ),
    ] = 1,
    data: Data = None,
    keep: Keep = None,
    output: Output = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed. Default: that of the pipeline.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Impute missing answers with draws from the live model; writes every row once per draw."""
    from pmflib_flows.imputation.impute_flow import impute_flow

    answer = publish_results(
        impute_flow, config, data, keep, output, as_json, draws=draws, seed=seed
    )
    print_answer({**answer, "draws": draws}, as_json)
