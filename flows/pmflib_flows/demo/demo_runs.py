"""The demonstrations: generate data, draft, run, compare with the truth, and show the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pmflib.apps.demo.demo import OPINION_SHARES as SHARES
from pmflib.apps.demo.demo import (
    RANK,
    STATEMENTS,
    LabelErrors,
    ModelErrors,
    compare_with_truth,
    measure_errors,
    write_demo_labels,
    write_demo_log,
    write_demo_survey,
)
from pmflib.base.display.progress import report_progress
from pmflib.base.errors import PmfError
from pmflib.ingest.options import SourceOptions, make_source
from pmflib.ingest.sources import find_sources
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.run_records import find_live
from pmflib.surveys.drafting.schema_draft import draft_schema
from pmflib_flows.etl import etl
from pmflib_flows.run_tables import draw_sections
from pmflib_flows.tables import make_table
from pmflib_tasks.config import load_config
from pmflib_tasks.config.loading import draft_config
from pmflib_tasks.config.pipeline import draft_name
from pmflib_tasks.features import list_offers
from pmflib_tasks.sections import list_sections
from pmflib_tasks.stage import open_store

QUESTIONS = {
    "ratings": "P(m0002 | m0001=5)",
    "survey": 'P(recommend | punctual="strongly disagree", commute=bus)',
}
"""A question to try, by the subject of the demonstration."""


@dataclass(frozen=True)
class DemoRun:
    """Result of a demonstration.

    Parameters
    ----------
    written_rows
        Number of generated rows.
    config
        Path of the configuration.
    facts
        Facts of the run, as `etl` returns them, or a run of labels; empty if nothing was run.
    truth
        Errors of the recovered model of ratings, or of the labels, against the truth; None for a survey.
    """

    written_rows: int
    config: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    truth: ModelErrors | LabelErrors | None = None

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types, with the facts of the run at the top level."""
        content = {"written_rows": self.written_rows, "config": self.config, **self.facts}
        return content if self.truth is None else {**content, "truth": asdict(self.truth)}


def run_demo(
    about: str, folder: Path, size: int | None, seed: int, *, data_only: bool = False
) -> DemoRun:
    """Generate data with a known truth, run the pipeline on it, and compare.

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
        Whether to write the data and the drafts only.
    """
    if about == "ratings":
        return _run_ratings(folder, size or 40_000, seed, data_only=data_only)
    if about == "survey":
        return _run_survey(folder, size or 2_000, seed, data_only=data_only)
    return _run_labels(folder, size or 500, seed, data_only=data_only)


def _run_ratings(folder: Path, n_users: int, seed: int, *, data_only: bool) -> DemoRun:
    report_progress("generate", 0, 1)
    written, truth = write_demo_log(folder / "log", n_users=n_users, seed=seed)
    report_progress("generate", 1, 1, f"{written.n_rows:,} rows")
    columns = {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    source = make_source({"path": "log/*.csv", "layout": "long", **columns})
    # the schema of this log is known; `pmf infer` would treat damaged values as levels, which a user would delete
    truth.schema.save(folder / "schema.json")
    config = _draft(folder, source)
    demo = DemoRun(written.n_rows, str(config))
    if data_only:
        return demo
    facts = etl(str(config))
    store = open_store(load_config(config))
    live = find_live(store, load_config(config).name)
    assert live is not None
    model = JointPMF.load(store.locate(live) / "model")
    return replace(demo, facts=facts, truth=compare_with_truth(model, truth))


def _run_survey(folder: Path, n_people: int, seed: int, *, data_only: bool) -> DemoRun:
    n_rows = write_demo_survey(folder / "survey.csv", n_people=n_people, seed=seed)
    report_progress("generate", 1, 1, f"{n_rows:,} rows")
    source = make_source({"path": "survey.csv", "layout": "wide", "sample": "id"})
    schema = draft_schema(find_sources(str(folder / "survey.csv")), source).schema
    # a correction that a person would make: a remark among the answers hides that they form a scale
    scale = schema[STATEMENTS[0]]
    agreed = [replace(scale, name=v.name) if v.name in STATEMENTS else v for v in schema.variables]
    Schema(tuple(agreed), missing=schema.missing).save(folder / "schema.json")
    config = _draft(folder, source, rank=SHARES.size)
    demo = DemoRun(n_rows, str(config))
    return demo if data_only else replace(demo, facts=etl(str(config)))


def _run_labels(folder: Path, n_tasks: int, seed: int, *, data_only: bool) -> DemoRun:
    run = next(list_offers("run_labels"), None)
    if run is None:
        raise PmfError(
            "this installation of pmflib learns no labels; add the feature that does to "
            "pmflib_tasks.features.FEATURES, or run pmf demo ratings, or pmf demo survey"
        )
    crowd = write_demo_labels(folder, n_tasks=n_tasks, seed=seed)
    report_progress("generate", 1, 1, f"{crowd.task.size:,} rows")
    columns = {"sample": "task", "variable": "worker", "value": "label"}
    source = make_source({"path": "labels.csv", "layout": "long", **columns})
    config = folder / "pipeline.toml"
    facts = run(source, config, data_only)
    demo = DemoRun(int(crowd.task.size), str(config))
    if data_only:
        return demo
    errors = measure_errors(Path(facts["path"]) / "labels", crowd)
    return replace(demo, facts=facts, truth=errors)


def _draft(folder: Path, source: SourceOptions, rank: int = RANK) -> Path:
    config = folder / "pipeline.toml"
    config.write_text(draft_config(source, rank=rank, name=draft_name(folder)), "utf-8")
    return config


def describe_demo(about: str, demo: DemoRun) -> Iterator[Any]:
    """Yield tables and lines for display: facts of the run, errors against the truth, and suggestions.

    Parameters
    ----------
    about
        "ratings", "survey" or "labels".
    demo
        The result of `run_demo`.
    """
    if not demo.facts:
        yield f"{demo.written_rows:,} rows; configuration: {demo.config}"
        return
    yield from draw_sections(list_sections(demo.facts))
    if isinstance(demo.truth, LabelErrors):
        yield (
            f"Tasks with a wrong label: {demo.truth.error:.1%}; by majority vote: {demo.truth.majority_error:.1%}"
        )
        yield f"Try: pmf status {demo.config}"
        return
    if isinstance(demo.truth, ModelErrors):
        states = [(each.true, each.recovered, each.largest_error) for each in demo.truth.states]
        columns = ("true prior", "recovered", "largest error of a conditional probability")
        yield make_table("Latent states", columns, states)
        yield f"Factor MSE against the truth: {demo.truth.factor_mse:.3g}"
    yield f"Try: pmf query {demo.config} '{QUESTIONS[about]}'"
