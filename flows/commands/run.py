"""Commands that run pipelines: run, demo, status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.console import AsJson, ConfigPath, orchestrated, out, print_json, show_facts
from flows.server.embedded import prefect_api
from pmflib.config import load_config
from pmflib.errors import ConfigError


def run(
    config: ConfigPath,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Read all sources, also those that seem unchanged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline: ingest what is new, count, fit, refine, evaluate, publish."""
    checked = load_config(config)
    with orchestrated(checked, as_json):
        from flows.etl import etl

        facts = etl(str(config), rehash)
    show_facts(facts, as_json)


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
        from flows.progress_bars import show_progress

        with show_progress(Console(stderr=True, quiet=as_json)):
            facts = run_demo(folder, users, seed)
    if as_json:
        print_json(facts)
        return
    from flows.fact_tables import make_facts_tables, make_table

    for table in make_facts_tables(facts):
        out.print(table)
    states = [(s["true"], s["recovered"], s["largest_error"]) for s in facts["truth"]["states"]]
    columns = ("true prior", "recovered", "largest error of a conditional probability")
    out.print(make_table("Latent states", columns, states))
    out.print(f"Factor MSE against the truth: {facts['truth']['factor_mse']:.3g}")
    out.print(f"Try: pmf query {folder}/pipeline.toml 'm0002 given m0001=5'", highlight=False)


def status(config: ConfigPath, as_json: AsJson = False) -> None:
    """Show the last run of a pipeline, or the labels it last found, and what its store holds."""
    from flows.fact_tables import make_labels_table, make_table
    from pmflib.store.run_records import find_last_run, find_live, name_labelling
    from tasks.stage import open_store

    checked = load_config(config)
    store = open_store(checked)
    kinds: dict[str, int] = {}
    for entry in store.entries():
        kinds[entry.reference.kind] = kinds.get(entry.reference.kind, 0) + 1
    under_way = sorted(path.name[:12] for path in (store.root / "work").iterdir())
    last, live = find_last_run(store, checked.name), find_live(store, checked.name)
    facts: dict[str, Any] = {}
    if last is not None and live is not None:
        facts = {"outcome": last.outcome, "reason": last.reason, **last.facts}
        facts["live"] = str(store.root / live.path / "model")
    labelling = find_last_run(store, name_labelling(checked.name))
    labels: dict[str, Any] = {}
    if labelling is not None:
        labels = {**labelling.facts, "path": str(store.root / labelling.stages["labels"].path)}
    known = last or labelling
    current = known is not None and known.config == checked.digest
    if as_json:
        held = {"artefacts": kinds, "unfinished": under_way}
        print_json({**held, "run": facts, "labels": labels, "current": current})
        return
    out.print(make_table("Artefacts", ("kind", "how many"), sorted(kinds.items())))
    if under_way:
        out.print(f"Unfinished work, resumed by the same command: {', '.join(under_way)}")
    if labels:
        out.print(make_labels_table(labels))
        out.print(f"  {labels['path']}", markup=False, highlight=False)
    if facts:
        show_facts(facts, as_json=False)
    if known is None:
        out.print("No run has finished yet.")
        return
    if not current:
        out.print("The configuration has changed since that run.")
