"""The demonstrations: generate, draft, run, compare with the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.crowd import crowd_flow
from flows.etl import etl
from pmflib.config import SourceConfig, load_config, make_crowd, make_source
from pmflib.config.draft import draft_config
from pmflib.ingest import draft_schema, find_sources
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.run_records import find_live
from pmflib.synthetic.demo import RANK, compare_with_truth, write_demo_log
from pmflib.synthetic.demo_labels import measure_errors, write_demo_labels
from pmflib.synthetic.demo_survey import SHARES, STATEMENTS, write_demo_survey
from tasks.stage import open_store
from tasks.stage_progress import report


def run_demo(
    about: str, folder: Path, size: int | None, seed: int, *, data_only: bool = False
) -> dict[str, Any]:
    """Generate data of a known truth, run the pipeline on it, and compare.

    Parameters
    ----------
    about
        "ratings", "survey" or "labels".
    folder
        Empty folder for the data, the configuration and the store.
    size
        Users, people or tasks to generate; by default 40,000, 2,000 or 500.
    seed
        Seed of the generator.
    data_only
        Whether to stop before the run: the folder then has the data, and the drafts.

    Returns
    -------
    Facts of the run, "written_rows", "config": path of the configuration. For ratings "truth" compares the recovered
    model with the true one, for labels the labels with the true ones.
    """
    if about == "ratings":
        return _run_ratings(folder, size or 40_000, seed, data_only=data_only)
    if about == "survey":
        return _run_survey(folder, size or 2_000, seed, data_only=data_only)
    return _run_labels(folder, size or 500, seed, data_only=data_only)


def _run_ratings(folder: Path, n_users: int, seed: int, *, data_only: bool) -> dict[str, Any]:
    report("generate", 0, 1)
    written, truth = write_demo_log(folder / "log", n_users=n_users, seed=seed)
    report("generate", 1, 1, f"{written.n_rows:,} rows")
    columns = {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    source = make_source({"path": "log/*.csv", "layout": "long", **columns})
    # the schema of this log is known; `pmf infer` would take damaged rows for levels, and a user would delete these
    truth.schema.save(folder / "schema.json")
    config = _draft(folder, source)
    facts: dict[str, Any] = {"written_rows": written.n_rows, "config": str(config)}
    if data_only:
        return facts
    facts |= etl(str(config))
    store = open_store(load_config(config))
    live = find_live(store, load_config(config).name)
    assert live is not None
    model = JointPMF.load(store.locate(live) / "model")
    return {**facts, "truth": compare_with_truth(model, truth)}


def _run_survey(folder: Path, n_people: int, seed: int, *, data_only: bool) -> dict[str, Any]:
    n_rows = write_demo_survey(folder / "survey.csv", n_people=n_people, seed=seed)
    report("generate", 1, 1, f"{n_rows:,} rows")
    source = make_source({"path": "survey.csv", "layout": "wide", "sample": "id"})
    schema = draft_schema(find_sources(str(folder / "survey.csv")), source).schema
    # what a person would correct of this draft: a remark among the answers hides that they are a scale
    scale = schema[STATEMENTS[0]]
    agreed = [replace(scale, name=v.name) if v.name in STATEMENTS else v for v in schema.variables]
    Schema(tuple(agreed), missing=schema.missing).save(folder / "schema.json")
    config = _draft(folder, source, rank=SHARES.size)
    facts: dict[str, Any] = {"written_rows": n_rows, "config": str(config)}
    return facts if data_only else {**facts, **etl(str(config))}


def _run_labels(folder: Path, n_tasks: int, seed: int, *, data_only: bool) -> dict[str, Any]:
    crowd = write_demo_labels(folder, n_tasks=n_tasks, seed=seed)
    report("generate", 1, 1, f"{crowd.task.size:,} rows")
    columns = {"sample": "task", "variable": "worker", "value": "label"}
    source = make_source({"path": "labels.csv", "layout": "long", **columns})
    config = folder / "pipeline.toml"
    config.write_text(draft_config(source, rank=1, crowd=make_crowd({})), "utf-8")
    facts: dict[str, Any] = {"written_rows": int(crowd.task.size), "config": str(config)}
    if data_only:
        return facts
    facts |= crowd_flow(str(config))
    return {**facts, "truth": measure_errors(Path(facts["path"]) / "labels", crowd)}


def _draft(folder: Path, source: SourceConfig, rank: int = RANK) -> Path:
    config = folder / "pipeline.toml"
    config.write_text(draft_config(source, rank=rank), "utf-8")
    return config
