"""The command ``pmf``.

Exit codes: 0 done; 1 a defect of ours, shown with ``--debug``; 2 wrong usage or configuration; 3 the data do not fit:
source or schema; 4 the store: an artefact is missing or damaged; 5 it would not fit in memory; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.server import prefect_api
from pmflib.config import PipelineConfig, SourceConfig, draft_config, load_config, make_source
from pmflib.errors import (
    ConfigError,
    MemoryPlanError,
    PmfError,
    RankError,
    SchemaError,
    SourceError,
    StoreError,
)
from pmflib.schema.variable import DEFAULT_MISSING

app = typer.Typer(
    help="The joint distribution of many categorical variables, from very large logs.",
    epilog="Begin with `pmf demo`, or with `pmf infer DATA` and then `pmf run pipeline.toml`. Exit codes: 0 done, "
    "1 defect of pmf (--debug shows where), 2 usage or configuration, 3 data or schema, 4 store, 5 memory, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# texts are wrapped by the terminal, if at all: what is written to a file can be searched and copied
out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)

EXIT_CODES: dict[type[PmfError], int] = {
    ConfigError: 2,
    RankError: 2,
    SourceError: 3,
    SchemaError: 3,
    StoreError: 4,
    MemoryPlanError: 5,
}

NOTES_SHOWN = 20

FAR = "../../.."
"""Beginning of a relative path that a person can no longer follow."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ConfigPath = Annotated[Path, typer.Argument(help="Pipeline configuration, pipeline.toml.")]


def main() -> None:
    """Run the command; errors that a person can mend are one paragraph, others need ``--debug`` to show a traceback."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    else:
        # what went wrong is said once, below; Prefect keeps its own account with the run
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    try:
        app()
    except SystemExit as ending:
        # what typer makes of Ctrl-C, without a word
        if ending.code == 130:
            err.print(
                "interrupted: the store is valid; the same command goes on from here",
                soft_wrap=True,
            )
        raise
    except Exception as error:
        if debug:
            raise
        known = isinstance(error, PmfError)
        err.print(
            f"error: {error}" if known else f"defect: {type(error).__name__}: {error}",
            style="red",
            markup=False,
        )
        if not known:
            err.print("run again with --debug for a traceback")
        sys.exit(EXIT_CODES.get(type(error), 2) if isinstance(error, PmfError) else 1)


@contextmanager
def _orchestrated(config: PipelineConfig, as_json: bool) -> Iterator[None]:
    """Have a Prefect API and, for a person, progress bars while a flow runs."""
    # the server starts at once, and is ready when the imports below are done
    api = prefect_api(Path(config.resolve(config.store.path)) / ".prefect")
    from flows.display import show_progress

    with api, show_progress(Console(stderr=True, quiet=as_json)):
        yield


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=1))


@app.command()
def run(config: ConfigPath, as_json: AsJson = False) -> None:
    """Run a pipeline: ingest what is new, count, fit, refine, evaluate, publish."""
    checked = load_config(config)
    with _orchestrated(checked, as_json):
        from flows.etl import etl

        facts = etl(str(config))
    _show_facts(facts, as_json)


def _show_facts(facts: dict[str, Any], as_json: bool) -> None:
    from flows.display import make_facts_tables

    if as_json:
        _print_json(facts)
        return
    for table in make_facts_tables(facts):
        out.print(table)
    out.print(f"\nLive model: {facts['verdict']}")
    if "quarantine" in facts:
        out.print(f"Quarantined rows: {facts['quarantine']}", markup=False, highlight=False)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option(help="New folder for the log, the store and the answers.")
    ] = Path("demo"),
    users: Annotated[int, typer.Option(min=100, help="Samples to generate.")] = 40_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Generate a dirty rating log with a known truth, run everything on it, and compare."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"folder {str(folder)!r} is not empty; give --folder another name, or delete it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    api = prefect_api(folder.resolve() / "store" / ".prefect")
    with api:
        from flows.demo import run_demo
        from flows.display import show_progress

        with show_progress(Console(stderr=True, quiet=as_json)):
            facts = run_demo(folder, users, seed)
    if as_json:
        _print_json(facts)
        return
    from flows.display import make_facts_tables, make_table

    for table in make_facts_tables(facts):
        out.print(table)
    states = [(s["true"], s["recovered"], s["largest_error"]) for s in facts["truth"]["states"]]
    columns = ("true prior", "recovered", "largest error of a conditional probability")
    out.print(make_table("Latent states", columns, states))
    out.print(f"Factor MSE against the truth: {facts['truth']['factor_mse']:.3g}")
    out.print(f"Try: pmf query {folder}/pipeline.toml 'm0002 given m0001=5'", highlight=False)


@app.command()
def infer(
    path: Annotated[str, typer.Argument(help="File, folder, glob or URL.")],
    sample: Annotated[str | None, typer.Option(help="Column that identifies the sample.")] = None,
    variable: Annotated[
        str | None, typer.Option(help="Long logs: column that names the variable.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Long logs: column that holds the answer.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Long logs: column that orders answers.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="The first row is data: columns are named c1, c2, ..."),
    ] = False,
    delimiter: Annotated[str, typer.Option(help="Of CSV files; \\t is a tab.")] = ",",
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="Text that means 'not given', besides '', NA, NaN, null; may be repeated."
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=1, help="Long logs: answers that a variable must have.")
    ] = 1,
    max_levels: Annotated[
        int, typer.Option(min=2, help="More distinct numbers are cut into bins.")
    ] = 32,
    bins: Annotated[int, typer.Option(min=2, help="Bins of a continuous column.")] = 8,
    rank: Annotated[int, typer.Option(min=1, help="Number of latent states to begin with.")] = 8,
    output: Annotated[Path, typer.Option(help="Folder for schema.json and pipeline.toml.")] = Path(
        "."
    ),
    as_json: AsJson = False,
) -> None:
    """Draft schema.json and pipeline.toml from data, for a person to review.

    Without --variable, a row is a sample and a column a variable. With --sample, --variable and --value, a row is one
    answer of a sample to a variable.
    """
    from pmflib.ingest import draft_schema, find_sources, number_columns

    targets = (output / "schema.json", output / "pipeline.toml")
    if existing := [str(target) for target in targets if target.exists()]:
        raise ConfigError(f"{existing} exist already; give --output another folder, or delete them")
    absolute = path if "://" in path else str(Path(path).resolve())
    fields: dict[str, Any] = {
        "path": absolute,
        "layout": "wide" if variable is None and value is None and time is None else "long",
        "sample": sample,
        "variable": variable,
        "value": value,
        "time": time,
        "delimiter": delimiter.replace("\\t", "\t"),
        "columns": None if columns is None else tuple(columns.split(",")),
    }
    if missing:
        fields["missing"] = tuple(dict.fromkeys([*DEFAULT_MISSING, *missing]))
    source = make_source(fields)
    found = find_sources(absolute)
    if no_header:
        if columns is not None:
            raise ConfigError("--no-header names the columns itself; give it or --columns")
        source = source.model_copy(update={"columns": number_columns(found[0], source)})
    schema, notes = draft_schema(
        found, source, max_levels=max_levels, bins=bins, min_count=min_count
    )
    output.mkdir(parents=True, exist_ok=True)
    schema.save(targets[0], review=notes)
    targets[1].write_text(draft_config(_relative(source, output), rank=rank, notes=notes), "utf-8")
    if as_json:
        _print_json({"variables": schema.n_variables, "levels": schema.n_levels, "review": notes})
        return
    out.print(f"{schema.n_variables} variables with {schema.n_levels} levels in all")
    for note in notes[:NOTES_SHOWN]:
        out.print(f"review: {note}", markup=False, highlight=False)
    if notes[NOTES_SHOWN:]:
        out.print(f"review: all {len(notes)} notes stand in {targets[1]}", markup=False)
    command = f"pmf run {shlex.quote(str(targets[1]))}"
    out.print(
        f"Wrote {targets[0]} and {targets[1]}; review them, then: {command}",
        markup=False,
        highlight=False,
    )


def _relative(source: SourceConfig, base: Path) -> SourceConfig:
    """Source as seen from the folder of the configuration; data far away from it keep their full path."""
    path = str(source.path)
    if "://" not in path:
        near = os.path.relpath(path, base.resolve())
        path = path if near.startswith(FAR) else near
    return source.model_copy(update={"path": path})


@app.command()
def status(config: ConfigPath, as_json: AsJson = False) -> None:
    """Show the last run of a pipeline, and what its store holds."""
    from flows.display import make_table
    from pmflib.store.runs import read_run
    from tasks.stage import open_store

    checked = load_config(config)
    store = open_store(checked)
    kinds: dict[str, int] = {}
    for entry in store.entries():
        kinds[entry.reference.kind] = kinds.get(entry.reference.kind, 0) + 1
    under_way = sorted(path.name[:12] for path in (store.root / "work").iterdir())
    last = read_run(store, checked.name)
    facts = {} if last is None else last[1]
    current = facts.get("config") == checked.digest
    if as_json:
        _print_json({"artefacts": kinds, "unfinished": under_way, "run": facts, "current": current})
        return
    out.print(make_table("Artefacts", ("kind", "how many"), sorted(kinds.items())))
    if under_way:
        out.print(f"Unfinished work, resumed by `pmf run`: {', '.join(under_way)}")
    if last is None:
        out.print("No run has finished yet.")
        return
    _show_facts(facts, as_json=False)
    if not current:
        out.print("The configuration has changed since that run.")


@app.command()
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
    as_json: AsJson = False,
) -> None:
    """Score samples with the live model, or answer questions about them; Parquet."""
    checked = load_config(config)
    if questions and (data or target):
        raise ConfigError(
            "--questions goes without --data and --target: it asks about samples of the last run"
        )
    with _orchestrated(checked, as_json):
        from flows.score import score_flow

        reference = score_flow(
            str(config),
            data=_absolute(data),
            questions=_absolute(questions),
            targets=tuple(target or ()),
        )
    from tasks.stage import open_store

    store = open_store(checked)
    entry = store.find(reference.identity)
    summary = {} if entry is None else entry.summary
    answer = {"path": str(store.locate(reference)), "digest": reference.digest, **summary}
    if as_json:
        _print_json(answer)
    else:
        for key, value in answer.items():
            out.print(f"{key}: {value}", markup=False, highlight=False, soft_wrap=True)


def _absolute(path: str | None) -> str:
    return "" if path is None else path if "://" in path else str(Path(path).resolve())


@app.command()
def crowd(
    path: Annotated[
        str, typer.Argument(help="Answers: file, folder, glob or URL; CSV or Parquet.")
    ],
    output: Annotated[Path, typer.Option(help="Folder for labels, workers and the store.")] = Path(
        "crowd"
    ),
    task: Annotated[str, typer.Option(help="Column that names the task.")] = "task",
    worker: Annotated[str, typer.Option(help="Column that names the worker.")] = "worker",
    label: Annotated[str, typer.Option(help="Column that holds the answer.")] = "label",
    classes: Annotated[
        str | None, typer.Option(help="Labels that there are: a,b,c. Default: all that occur.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="auto, dawid_skene, mv_em, one_coin or balanced.")
    ] = "auto",
    delimiter: Annotated[str, typer.Option(help="Of CSV files; \\t is a tab.")] = ",",
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the true labels of tasks that many workers have answered; Parquet.

    Run it again with the same --output after answers have come in: files that were read before are not read again,
    unless there are new workers.
    """
    source = make_source(
        {
            "path": path if "://" in path else str(Path(path).resolve()),
            "layout": "long",
            "sample": task,
            "variable": worker,
            "value": label,
            "delimiter": delimiter.replace("\\t", "\t"),
            "columns": None if columns is None else tuple(columns.split(",")),
        }
    )
    output.mkdir(parents=True, exist_ok=True)
    config = output / "pipeline.toml"
    config.write_text(draft_config(_relative(source, output), rank=1), "utf-8")
    with _orchestrated(load_config(config), as_json):
        from flows.crowd import crowd_flow

        named = None if classes is None else tuple(classes.split(","))
        facts = crowd_flow(str(config), method=method, classes=named)
    _hand_over(Path(facts["path"]), output)
    if as_json:
        _print_json(facts)
        return
    for key in ("tasks", "answers", "workers", "classes", "prior", "passes", "converged"):
        out.print(f"{key}: {facts[key]}", markup=False, highlight=False)
    out.print(f"Labels: {output / 'labels'}, workers: {output / 'workers.parquet'}", markup=False)
    if "quarantine" in facts:
        out.print(f"Quarantined rows: {facts['quarantine']}", markup=False, highlight=False)


def _hand_over(found: Path, output: Path) -> None:
    """Copy labels and workers from the store to where a person looks for them."""
    shutil.rmtree(output / "labels", ignore_errors=True)
    shutil.copytree(found / "labels", output / "labels")
    shutil.copyfile(found / "workers.parquet", output / "workers.parquet")


@app.command()
def query(
    config: ConfigPath,
    question: Annotated[str, typer.Argument(help="For example: 'B given A=5 and C=yes'.")],
    top: Annotated[int, typer.Option(min=1, help="Combinations to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Ask the live model for the distribution of some variables, given levels of others."""
    from pmflib.query import answer, parse_question

    found = answer(_load_live(load_config(config)), parse_question(question))
    if as_json:
        _print_json(found)
        return
    from flows.display import make_table

    names = list(found["best"])
    rows = [[*item["level"].values(), item["probability"]] for item in found["levels"][:top]]
    out.print(make_table(question, (*names, "probability"), rows))
    if "expected" in found:
        out.print(f"expected value: {found['expected']:.4g}")


def _load_live(config: PipelineConfig) -> Any:
    from pmflib.model import JointPMF
    from pmflib.store.runs import read_run
    from tasks.stage import open_store

    store = open_store(config)
    last = read_run(store, config.name)
    if last is None:
        raise StoreError(f"pipeline {config.name!r} has no live model yet; `pmf run` makes one")
    return JointPMF.load(store.locate(last[0]["live"]) / "model")


@app.command()
def log(
    config: ConfigPath,
    artefact: Annotated[
        str | None, typer.Argument(help="Beginning of a digest; default: the live model.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an artefact was made from, back to the raw files."""
    from pmflib.store.lineage import find_reference, trace
    from pmflib.store.runs import read_run
    from tasks.stage import open_store

    checked = load_config(config)
    store = open_store(checked)
    if artefact is not None:
        reference = find_reference(store, artefact)
    elif (last := read_run(store, checked.name)) is not None:
        reference = last[0]["live"]
    else:
        raise StoreError(f"pipeline {checked.name!r} has no live model yet; `pmf run` makes one")
    steps = list(trace(store, reference))
    if as_json:
        _print_json(
            [
                {"depth": s.depth, "role": s.role, "again": s.again, **s.entry.to_json()}
                for s in steps
            ]
        )
        return
    for step in steps:
        entry = step.entry
        name = entry.options.get("name", "")
        more = " (see above)" if step.again and entry.inputs else ""
        line = (
            f"{'  ' * step.depth}{entry.reference.kind} {entry.reference.digest[:12]} {name}{more}"
        )
        out.print(line.rstrip(), markup=False, highlight=False)


if __name__ == "__main__":
    main()
