"""Command for label logs: crowd."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.apps.crowd.options import CrowdOptions
from pmflib.base.errors import ConfigError, SchemaError
from pmflib.base.options import option
from pmflib_flows.console import (
    AsJson,
    load_pipeline,
    out,
    print_json,
    progress_shown,
)
from pmflib_flows.crowd.crowd_tags import label_tags
from pmflib_flows.option_objects import takes_options

if TYPE_CHECKING:
    from pmflib.ingest.options import SourceOptions
    from pmflib.ingest.sources import Source
    from pmflib_tasks.config import PipelineConfig

SETTINGS = {
    "path": "source.path",
    "task": "source.sample",
    "worker": "source.variable",
    "label": "source.value",
    "delimiter": "source.delimiter",
    "encoding": "source.encoding",
    "columns": "source.columns",
    "known": "crowd.known",
    "classifier": "crowd.classifier",
    "ordinal": "crowd.ordinal",
    "method": "crowd.method",
    "em": "crowd.em",
    "on_repeated": "schema_.on_duplicate",
    "classes": "crowd.classes",
    "rng": "seed",
}
"""Configuration setting for each option of the command."""
OPTIONS = {setting: "--" + name.replace("_", "-") for name, setting in SETTINGS.items()} | {
    "source.path": "PATH",
    "crowd.em": "--em/--no-em",
    "crowd.ordinal": "--ordinal/--nominal",
    "seed": "--seed",
}
"""Command-line option for each setting."""


PATHS = ("source.path", "crowd.known", "crowd.classifier")
"""Options that are paths; in the configuration they are relative to its folder."""
COLUMNS = {"sample": "task", "variable": "worker", "value": "label"}
"""Default column names."""
NOTE = (
    "`pmf crowd` uses this file from now on and never changes it: [source], [store], [em], [crowd], [cluster] "
    "and seed are used; schema.json is regenerated from the labels"
)


@dataclass(frozen=True, kw_only=True)
class LabelFiles:
    """Options for reading label files; None if not given."""

    task: str | None = option(
        None, "Column with the task.", show_default="task", rich_help_panel="Files"
    )
    worker: str | None = option(
        None, "Column with the worker.", show_default="worker", rich_help_panel="Files"
    )
    label: str | None = option(
        None,
        "Column with the worker's label.",
        show_default="label",
        rich_help_panel="Files",
    )
    delimiter: str | None = option(
        None,
        "Delimiter of CSV files; \\t is a tab.",
        show_default="detected",
        rich_help_panel="Files",
    )
    encoding: str | None = option(
        None,
        "Encoding of CSV files, for example utf-8 or cp1252.",
        show_default="detected",
        rich_help_panel="Files",
    )
    columns: tuple[str, ...] | None = option(
        None,
        "Column names of files without a header: a,b,c.",
        separator=",",
        rich_help_panel="Files",
    )


@takes_options
def crowd(
    path: Annotated[
        str | None,
        typer.Argument(
            help="Labels: file, folder, glob or URL; CSV or Parquet. Default: the source in pipeline.toml."
        ),
    ] = None,
    *,
    output: Annotated[
        Path,
        typer.Option(
            help="Output folder for labels, workers, pipeline.toml and the store; or a file for the labels, .csv or "
            ".parquet, in which case the rest is in a folder of the same name."
        ),
    ] = Path("crowd"),
    files: LabelFiles,
    options: CrowdOptions,
    tags: Annotated[
        bool,
        typer.Option(
            "--tags",
            help="Tasks have several labels: one row per tag given by a worker. Runs once, without a pipeline.",
        ),
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(help="With --tags: sign between several tags in a cell, such as ';'."),
    ] = None,
    accept_quality: Annotated[
        bool,
        typer.Option(
            "--accept-quality",
            help="Accept the labels of this run even if a quality check fails.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate the true labels of tasks labelled by many workers; writes Parquet, or CSV if --output ends in .csv.

    Run it again with the same --output when new labels have arrived; files already read are not read again. An existing
    pipeline.toml is used as it is.
    """
    if path is not None and path.endswith(".toml"):
        folder = Path(path).parent
        raise ConfigError(
            f"PATH is {path!r}, a configuration; pass a log of labels, or leave it out and name the folder that "
            f"holds the configuration: pmf crowd --output {str(folder)!r}"
        )
    given = list_settings({"path": path, **asdict(files), **options.list_given()})
    if tags:
        if accept_quality:
            raise ConfigError("--tags has no guards, and no use for --accept-quality; leave it out")
        source = {"layout": "long", **COLUMNS, **_take(given, "source")}
        label_tags(given, source, output, OPTIONS, as_json, split)
        return
    if split is not None:
        raise ConfigError(
            f"--split is {split!r} without --tags; add --tags for tasks of several labels"
        )
    from pmflib.store.table_files import list_suffixes

    folder = output.with_suffix("") if output.suffix.lower() in list_suffixes() else output
    file = folder / "pipeline.toml"
    is_new = not file.exists()
    if not is_new:
        _check_agreement(load_pipeline(file), file, given)
    else:
        notes = _draft(file, given)
        if not as_json:
            for note in notes:
                out.print(f"review: {note}")
    from pmflib.apps.crowd.stored.summaries import KnownSummary, LabelSummary
    from pmflib.store.care.exports import remember_export
    from pmflib.store.objects.local_files import find_local_path
    from pmflib_flows.crowd.crowd_flow import crowd_flow
    from pmflib_flows.run_tables import show_quarantine
    from pmflib_tasks.crowd.label_sections import describe_agreement, describe_known
    from pmflib_tasks.stage import open_store

    try:
        with progress_shown(as_json):
            facts = crowd_flow(str(file), accept_quality=accept_quality)
    except SchemaError:
        if is_new:
            # nothing was labelled, and the options are to be given again
            file.unlink()
        raise
    written = hand_over(find_local_path(facts["path"]), output, folder)
    paths = sorted(written.glob("*.parquet")) if written.is_dir() else [written]
    store = open_store(load_pipeline(file))
    remember_export(store, "labels", output, [*paths, folder / "workers.parquet"])
    if as_json:
        print_json(facts)
        return
    for key in ("tasks", "labels", "workers", "classes", "prior", "passes", "converged"):
        out.print(f"{key}: {facts[key]}")
    summary, set_known = LabelSummary.find(facts), KnownSummary.find(facts)
    assert summary is not None
    out.print(f"Run {facts['run']}: {facts['reason']}")
    for line in describe_agreement(summary):
        out.print(line)
    out.print(f"Labels: {written}, workers: {folder / 'workers.parquet'}")
    show_quarantine(facts)
    if set_known is not None:
        out.print(describe_known(set_known))


def list_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the configuration for the options that are given; paths are absolute.

    Parameters
    ----------
    options
        Values by the name of the option; None where it is not given.
    """
    from pmflib.ingest.source_paths import make_absolute

    given = {SETTINGS[name]: value for name, value in options.items() if value is not None}
    given |= {setting: make_absolute(given[setting]) for setting in PATHS if setting in given}
    if "source.delimiter" in given:
        given["source.delimiter"] = given["source.delimiter"].replace("\\t", "\t")
    return given


def _draft(file: Path, given: Mapping[str, Any]) -> list[str]:
    """Write a configuration for the given options; returns notes on what was detected."""
    from pmflib.ingest.csv.sniffing import sniff_source
    from pmflib.ingest.options import make_source
    from pmflib.ingest.sources import find_sources
    from pmflib_tasks.config.loading import draft_config, relate, relate_path
    from pmflib_tasks.config.pipeline import draft_name
    from pmflib_tasks.crowd.section import make_crowd

    if "source.path" not in given:
        raise ConfigError(
            f"no PATH is given, and there is no {str(file)!r} that names one; say where the labels are"
        )
    source = make_source({"layout": "long", **COLUMNS, **_take(given, "source")})
    crowd = make_crowd(_take(given, "crowd"))
    beside = {"known": crowd.known, "classifier": crowd.classifier}
    related = {key: relate_path(each, file.parent) for key, each in beside.items() if each}
    crowd = crowd.model_copy(update=related)
    # columns are named by the user, or have their usual names: nothing is to be found out about a header
    known = {*_take(given, "source"), "columns", "decimal"}
    files = find_sources(source.path)
    source, notes = sniff_source(files, source, known)
    _check_columns(files[0], source)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = draft_config(
        relate(source, file.parent),
        rank=1,
        notes=[*notes, NOTE],
        sections={"crowd": crowd},
        on_duplicate=given.get("schema_.on_duplicate", "last"),
        seed=given.get("seed", 0),
        name=draft_name(file.parent),
    )
    file.write_text(text, "utf-8")
    return notes


def _check_columns(file: Source, source: SourceOptions) -> None:
    """Check that a file has the three columns, and name those that may be meant."""
    from pmflib.apps.crowd.label_log import guess_columns
    from pmflib.ingest.readers import read_columns

    columns = read_columns(file, source)
    wanted = {option: getattr(source, field) for field, option in COLUMNS.items()}
    absent = {option: name for option, name in wanted.items() if name not in columns}
    if not absent:
        return
    free = [name for name in columns if name not in wanted.values()]
    meant = {option: name for name, option in guess_columns(free, list(absent)).items()}
    shown = " ".join(f"--{option} {shlex.quote(meant.get(option, '...'))}" for option in absent)
    raise ConfigError(
        f"{file.name} has no column {list(absent.values())}; its columns are {columns[:12]}. Say which hold the task, "
        f"the worker and the label: pmf crowd {shown}; of a file without a header, --columns names all"
    )


def _take(given: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the options of a section."""
    start = f"{section}."
    return {name[len(start) :]: value for name, value in given.items() if name.startswith(start)}


def _check_agreement(config: PipelineConfig, file: Path, given: Mapping[str, Any]) -> None:
    """Check that the options agree with an existing configuration."""
    from pmflib.ingest.options import make_source
    from pmflib.ingest.source_paths import make_absolute

    if config.source.layout != "long":
        raise ConfigError(
            f"source.layout of {str(file)!r} is {config.source.layout!r}; label logs are laid out 'long': give "
            "--output another folder, or correct the file"
        )
    for field, value in given.items():
        known: Any = attrgetter(field)(config)
        if field in PATHS and isinstance(known, str) and "://" not in known:
            known = make_absolute(config.resolve_source(known))
        if field == "source.encoding":
            value = make_source(
                {**COLUMNS, "path": "x", "layout": "long", "encoding": value}
            ).encoding
        if known != value:
            option, field = OPTIONS[field], field.replace("schema_", "schema")
            raise ConfigError(
                f"{option} is {value!r}, but {field} of {str(file)!r} is {known!r}; leave {option} out, change "
                "the file, or give --output another folder"
            )


def hand_over(found: Path, output: Path, folder: Path) -> Path:
    """Copy labels and workers from the store to where they were asked for.

    Parameters
    ----------
    found
        Folder of the artefact of labels, on this machine.
    output
        Where the labels go: a folder, which takes one file a part, or a file name, which takes all in one.
    folder
        Folder of the file of workers; the same as ``output`` where that is a folder.

    Returns
    -------
    Where the labels are.

    Raises
    ------
    StoreError
        If a file of the artefact is damaged; nothing is written then.
    """
    from pmflib.store.file_digests import check_artefact
    from pmflib.store.table_files import hold_output, join_files

    check_artefact(found)
    with hold_output(folder):
        shutil.copyfile(found / "workers.parquet", folder / "workers.parquet")
        if output != folder:
            join_files(found / "labels", output, "task", in_all=True)
            return output
        shutil.rmtree(folder / "labels", ignore_errors=True)
        shutil.copytree(found / "labels", folder / "labels")
        return folder / "labels"
