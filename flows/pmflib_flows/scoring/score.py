"""The command `pmf score`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pmflib.base.errors import ConfigError
from pmflib_flows.commands.live_model import (
    Data,
    Output,
    check_answer_output,
    print_answer,
    publish_answer,
)
from pmflib_flows.console import AsJson, load_pipeline, out, progress_shown


def score(
    config: Annotated[
        Path | None, typer.Argument(help="Pipeline configuration, pipeline.toml; or --model.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Model to use without a pipeline; requires --data and --output."),
    ] = None,
    data: Data = None,
    questions: Annotated[
        str | None, typer.Option(help="File of (sample, variable[, value]) rows to answer.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Variable to predict; may be repeated.")
    ] = None,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities", help="Also write the probability of every level of a target."
        ),
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(help="Variables, or columns of wide files, to copy to the output: a,b,c."),
    ] = None,
    output: Output = None,
    sample: Annotated[
        str | None, typer.Option(help="With --model: column with the sample identifier.")
    ] = None,
    variable: Annotated[
        str | None,
        typer.Option(help="With --model: column with the variable, if each row is one answer."),
    ] = None,
    value: Annotated[str | None, typer.Option(help="With --model: column with the answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score samples with the live model or a given model (probability, unusual answers), or answer questions."""
    from pmflib.store.table_files import check_suffix

    if (config is None) == (model is None):
        raise ConfigError(
            "pass a pipeline configuration, or --model for a model alone: one of both"
        )
    if questions and (data or target or probabilities or keep or model):
        raise ConfigError(
            "--questions goes without --model, --data, --target, --probabilities and --keep: questions are about "
            "samples of the last run"
        )
    columns = {"sample": sample, "variable": variable, "value": value}
    reading = {name: column for name, column in columns.items() if column is not None}
    if reading and model is None:
        raise ConfigError(f"{sorted(reading)} go with --model; a pipeline says it in [source]")
    if probabilities and not target:
        raise ConfigError("--probabilities are those of a target; name one by --target")
    if output is not None and (output.suffix or questions):
        check_suffix(output)
    names = keep.split(",") if keep else []
    if model is not None:
        if data is None or output is None:
            raise ConfigError("--model needs --data, the rows to score, and --output")
        layout = "long" if "variable" in reading or "value" in reading else "wide"
        requested = {"targets": target or [], "probabilities": probabilities, "keep": names}
        answer = _score_alone(model, data, output, as_json, **requested, layout=layout, **reading)
    else:
        assert config is not None
        answer = _score_live(
            config, data, questions, tuple(target or ()), probabilities, names, output, as_json
        )
    print_answer(answer, as_json)
    if not as_json:
        for name, found in answer.get("measures", {}).items():
            out.print(describe_measures(name, found, is_new=data is not None))


def _score_alone(
    model: Path, data: str, output: Path, as_json: bool, **options: Any
) -> dict[str, Any]:
    """Score files with a given model."""
    from pmflib.apps.scoring.file_scoring import score_file
    from pmflib.base.display.progress import report_progress
    from pmflib.model import JointPMF

    with progress_shown(as_json):
        on_piece = partial(report_progress, "score")
        return score_file(JointPMF.load(model), data, output, on_piece=on_piece, **options)


def _score_live(
    config: Path,
    data: str | None,
    questions: str | None,
    targets: tuple[str, ...],
    probabilities: bool,
    names: list[str],
    output: Path | None,
    as_json: bool,
) -> dict[str, Any]:
    """Score samples with the live model of a pipeline, or answer questions about them."""
    from pmflib.ingest.source_paths import make_absolute
    from pmflib_flows.scoring.score_flow import score_flow
    from pmflib_tasks.stage import load_schema

    checked = load_pipeline(config)
    check_answer_output(checked, output, data, questions, is_table=bool(questions))
    columns: list[str] = []
    if checked.source.layout == "wide" and checked.source.sample is None and names:
        known = load_schema(checked).names
        columns = [name for name in names if name not in known]
    with progress_shown(as_json):
        reference = score_flow(
            str(config),
            data=make_absolute(data or ""),
            questions=make_absolute(questions or ""),
            targets=targets,
            probabilities=probabilities,
            keep=tuple(name for name in names if name not in columns),
            columns=tuple(columns),
        )
    return publish_answer(checked, reference, output, data, is_joined=bool(questions))


def describe_measures(target: str, found: Mapping[str, float], *, is_new: bool) -> str:
    """Describe the accuracy of predictions for a target whose true levels are in the data.

    Examples
    --------
    >>> describe_measures("car", {"judged": 0, "truth_missing": 9}, is_new=True)
    'car: no true level is in the data: 9 samples are not judged'
    """
    n_judged, n_missing = int(found["judged"]), int(found["truth_missing"])
    if not n_judged:
        return f"{target}: no true level is in the data: {n_missing:,} samples are not judged"
    said = [
        f"accuracy {found['accuracy']:.4f} ± {found['accuracy_error']:.4f}",
        f"log-loss {found['log_loss']:.4f}"
        + (f" ± {found['log_loss_error']:.4f}" if "log_loss_error" in found else "")
        + " nats",
        f"on {n_judged:,} samples",
    ]
    if n_missing:
        said.append(f"{n_missing:,} without a true level left out")
    if not is_new:
        said.append("which the model may have been fitted to: --data names new ones")
    return f"{target}: {', '.join(said)}"
