"""Command that scores samples with the live model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.errors import ConfigError
from pmflib.base.texts import list_some, show_text
from pmflib_flows.console import AsJson, load_pipeline, out, print_json, progress_shown

if TYPE_CHECKING:
    from pmflib.store.artefacts import Reference
    from pmflib_tasks.config import PipelineConfig

SAID = ("measures", "cells_made_missing", "unknown_levels", "targets_absent", "left_missing")
"""Keys of an account that are described in sentences."""
OUTPUT_HELP = (
    "Output file, .csv, .parquet, .sav, .zsav (SPSS) or .dta (Stata), or a folder of Parquet files."
)
"""Help of the option that names the output."""
Data = Annotated[str | None, typer.Option(help="New samples. Default: those of the pipeline.")]
Keep = Annotated[
    str | None, typer.Option(help="Columns of wide files to copy to the output: a,b,c.")
]
Output = Annotated[Path | None, typer.Option(help=OUTPUT_HELP)]


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
            "give a pipeline configuration, or --model for a model alone: one of both"
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


def print_answer(answer: dict[str, Any], as_json: bool) -> None:
    """Print the account of results on samples, what needs a sentence in one."""
    from pmflib.apps.scoring.accounts import describe_unknown

    if as_json:
        print_json(answer)
        return
    for key, value in answer.items():
        if key not in SAID and value not in ({}, []):
            out.print(f"{key}: {value}", soft_wrap=True)
    targets = answer.get("targets", ())
    for name, files in answer.get("targets_absent", {}).items():
        out.print(show_text(f"{name}: no column of {list_some(files)}"), soft_wrap=True)
    for name, found in answer.get("unknown_levels", {}).items():
        sentence = describe_unknown(name, found, is_target=name in targets)
        out.print(show_text(sentence), soft_wrap=True)
    for name in answer.get("left_missing", ()):
        sentence = (
            f"{name}: no sample that the model was fitted to holds it; its cells stay missing"
        )
        out.print(show_text(sentence), soft_wrap=True)


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
    from pmflib_flows.score import score_flow
    from pmflib_tasks.stage import load_schema

    checked = load_pipeline(config)
    _check_output(checked, output, data, questions, is_table=bool(questions))
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


def publish_results(
    flow: Callable[..., Reference],
    config: Path,
    data: str | None,
    keep: str | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> dict[str, Any]:
    """Run a flow on samples and write its results, as `publish_answer` does.

    Parameters
    ----------
    flow
        Function of the configuration's path, its options, the path of new samples and the columns to copy.
    config, data, keep, output, as_json
        Arguments of the command. What is wrong with them is found before hours of work.
    options
        Options of the flow.

    Raises
    ------
    ConfigError
        If columns are to be copied of samples with identifiers, or the output exists and holds something else.
    """
    from pmflib.ingest.source_paths import make_absolute

    checked = load_pipeline(config)
    _check_output(checked, output, data)
    if keep and not (checked.source.layout == "wide" and checked.source.sample is None):
        raise ConfigError(
            "--keep is for columns of wide files whose rows have no identifiers; samples of others have 'sample'"
        )
    columns = tuple(keep.split(",")) if keep else ()
    with progress_shown(as_json):
        reference = flow(str(config), **options, data=make_absolute(data or ""), columns=columns)
    return publish_answer(checked, reference, output, data)


def _check_output(
    config: PipelineConfig, output: Path | None, *read: str | None, is_table: bool = False
) -> None:
    """Check, before hours of work, that an output is none of the files read and can be written."""
    from pmflib.apps.scoring.outputs import check_output_folder
    from pmflib.ingest.source_paths import check_output
    from pmflib.store.table_files import check_suffix

    if output is None:
        return
    if output.suffix or is_table:
        check_suffix(output)
    else:
        check_output_folder(output)
    check_output([*config.source_paths, *filter(None, read)], output, config.source.suffixes)


def publish_answer(
    config: PipelineConfig,
    reference: Reference,
    output: Path | None,
    data: str | None,
    *,
    is_joined: bool = False,
) -> dict[str, Any]:
    """Write results on samples to the requested location.

    Parameters
    ----------
    config
        The pipeline.
    reference
        Reference to the results in the store.
    output
        File or folder; None leaves the results in the store.
    data
        New samples; None for those of the pipeline.
    is_joined
        Whether the results are one table, as for answers to questions.

    Returns
    -------
    The account, with the paths of the parts and the output.
    """
    from pmflib.apps.scoring.outputs import mark_files, publish_parts
    from pmflib.base.hooks import find_offers
    from pmflib.store.care.exports import remember_export
    from pmflib.store.file_digests import fetch_all
    from pmflib.store.table_files import hold_output, join_files
    from pmflib.surveys.statistics_files.described_columns import describe_columns
    from pmflib_tasks.stage import load_schema, open_store

    store = open_store(config)
    entry = store.find(reference.identity)
    assert entry is not None
    folder = fetch_all(store.locate(reference))
    answer = {"path": store.name_artefact(reference), "digest": reference.digest, **entry.summary}
    if output is not None:
        described = {}
        if output.suffix.lower() in find_offers("writers"):
            raw = (*config.source_paths, data)
            described = describe_columns(load_schema(config), raw, config.source)
        with hold_output(output):
            if is_joined:
                join_files(folder, output, described=described)
            else:
                answer |= publish_parts(folder, output, entry.summary["samples"], described)
            paths = [output.parent / name for name in mark_files(output)]
            remember_export(store, reference.kind, output, paths)
        answer["output"] = str(output)
    return answer


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
