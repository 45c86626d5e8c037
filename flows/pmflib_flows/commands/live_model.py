"""Parts that the commands share which apply the live model to samples: options, results and their account."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.errors import ConfigError
from pmflib.base.texts import list_some, show_text
from pmflib_flows.console import load_pipeline, out, print_json, progress_shown

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


def print_answer(answer: dict[str, Any], as_json: bool) -> None:
    """Print the account of results on samples, what needs a sentence in one."""
    from pmflib.answering.sample_tables.accounts import describe_unknown

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
    check_answer_output(checked, output, data)
    if keep and not (checked.source.layout == "wide" and checked.source.sample is None):
        raise ConfigError(
            "--keep is for columns of wide files whose rows have no identifiers; samples of others have 'sample'"
        )
    columns = tuple(keep.split(",")) if keep else ()
    with progress_shown(as_json):
        reference = flow(str(config), **options, data=make_absolute(data or ""), columns=columns)
    return publish_answer(checked, reference, output, data)


def check_answer_output(
    config: PipelineConfig, output: Path | None, *read: str | None, is_table: bool = False
) -> None:
    """Check, before hours of work, that an output is none of the files read and can be written."""
    from pmflib.answering.sample_tables.outputs import check_output_folder
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
    from pmflib.answering.sample_tables.outputs import mark_files, publish_parts
    from pmflib.store.care.exports import remember_export
    from pmflib.store.file_digests import fetch_all
    from pmflib.store.table_files import describe_columns, hold_output, join_files
    from pmflib_tasks.stage import load_schema, open_store

    store = open_store(config)
    entry = store.find(reference.identity)
    assert entry is not None
    folder = fetch_all(store.locate(reference))
    answer = {"path": store.name_artefact(reference), "digest": reference.digest, **entry.summary}
    if output is not None:
        raw = *config.source_paths, data
        described = describe_columns(output, load_schema(config), raw, config.source)
        with hold_output(output):
            if is_joined:
                join_files(folder, output, described=described)
            else:
                answer |= publish_parts(folder, output, entry.summary["samples"], described)
            paths = [output.parent / name for name in mark_files(output)]
            remember_export(store, reference.kind, output, paths)
        answer["output"] = str(output)
    return answer
