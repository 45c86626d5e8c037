"""Command that scores samples with the live model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from flows.console import AsJson, ConfigPath, load_pipeline, out, print_json, progress_shown
from pmflib.errors import ConfigError


def score(
    config: ConfigPath,
    data: Annotated[
        str | None, typer.Option(help="New samples; default: those of the last run.")
    ] = None,
    questions: Annotated[
        str | None, typer.Option(help="File of (sample, variable[, value]) rows to answer.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Variable to predict; may be repeated.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also of every level of a target.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(help="Variables that are passed through, or columns of wide files: a,b,c."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="One file of all predictions, .csv or .parquet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score samples with the live model, or answer questions about them; Parquet, and CSV by --output."""
    from pmflib.ingest.kept_columns import write_with_columns
    from pmflib.table_files import check_suffix, join_files
    from tasks.stage import load_schema, open_store

    checked = load_pipeline(config)
    if questions and (data or target or probabilities or keep):
        raise ConfigError(
            "--questions goes without --data, --target, --probabilities and --keep: questions are about samples of the "
            "last run"
        )
    if probabilities and not target:
        raise ConfigError("--probabilities are those of a target; name one by --target")
    names, columns = keep.split(",") if keep else [], []
    if output is not None:
        check_suffix(output)
        if checked.source.layout == "wide" and checked.source.sample is None:
            known = load_schema(checked).names
            columns = [name for name in names if name not in known]
    from flows.score import score_flow

    with progress_shown(as_json):
        reference = score_flow(
            str(config),
            data=_absolute(data),
            questions=_absolute(questions),
            targets=tuple(target or ()),
            probabilities=probabilities,
            keep=tuple(name for name in names if name not in columns),
        )
    store = open_store(checked)
    entry = store.find(reference.identity)
    assert entry is not None
    place = store.locate(reference)
    answer = {"path": str(place), "digest": reference.digest, **entry.summary}
    measures = answer.get("measures", {})
    if output is not None:
        if columns:
            paths = checked.source_paths if data is None else _absolute(data)
            write_with_columns(
                store, entry.inputs["dataset"], place, paths, checked.source, columns, output
            )
        else:
            join_files(place, output, None if questions else "row")
        answer["output"] = str(output)
    if as_json:
        print_json(answer)
        return
    for key, value in answer.items():
        if key != "measures":
            out.print(f"{key}: {value}")
    for name, found in measures.items():
        out.print(describe_measures(name, found, is_new=data is not None))


def describe_measures(target: str, found: Mapping[str, float], *, is_new: bool) -> str:
    """Say how good the predictions of a target are where the truth is in the data.

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


def _absolute(path: str | None) -> str:
    return "" if path is None else path if "://" in path else str(Path(path).resolve())
