"""Stage: raking of a dataset's weights to known margins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.file_accounts import find_summary
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.surveys.margins.margins import Margin, read_margins
from pmflib.surveys.margins.stored import rake_dataset
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.guards.findings import refuse_empty
from pmflib_tasks.health import Check, HealthLine
from pmflib_tasks.margins.section import MarginsConfig
from pmflib_tasks.planned_stages import PlannedStage, RunSizes
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage
from pmflib_tasks.steps import Step, Walk

VERSION = 1


def compare_margins(store: Store, one: Reference, other: Reference) -> str:
    """Explain in a clause that two datasets were raked to different margins; empty if not, or one of them is gone."""
    entries = store.find(one.identity), store.find(other.identity)
    found = [each.options.get("margins") for each in entries if each is not None]
    return "" if len(found) < 2 or found[0] == found[1] else "the margins have changed"


def read_given(config: PipelineConfig, schema: Schema) -> tuple[Margin, ...]:
    """Read the margins of the configuration and of its files, by the variables of a schema.

    Raises
    ------
    SourceError
        If a file of margins cannot be read.
    SchemaError, PmfError
        As `pmflib.surveys.rake` does.
    """
    given = config.section(MarginsConfig)
    tables: list[Any] = [given.tables] if given.tables else []
    tables += map(config.resolve, given.files)
    return read_margins(tables, schema)[1]


def list_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield the check that the margins can be read, and fit the schema; none without margins."""

    def check() -> HealthLine:
        names = ", ".join(
            " x ".join(each.names) for each in read_given(config, load_schema(config))
        )
        return HealthLine("ok", "margins", f"of {names}")

    if config.section(MarginsConfig).are_known:
        yield Check("margins", "source", "correct section margins, or its files", check)


@stage(name="rake", makes="dataset")
def rake(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Rake the weights of a dataset, and its replicates, to the margins of the configuration.

    Parameters
    ----------
    config, dataset
        The pipeline, and the reference from `ingest`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to a dataset of the same samples with raked weights; the margins are among its options.

    Raises
    ------
    SourceError
        If a file of margins cannot be read.
    SchemaError, PmfError
        As `pmflib.surveys.rake` does.
    """
    store, schema = open_store(config), load_schema(config)
    bounds = config.section(MarginsConfig).bounds
    margins = read_given(config, schema)
    known = [
        {"variables": each.names, "shares": each.shares.tolist(), "total": each.total}
        for each in margins
    ]
    encoded = store.find(dataset.identity)
    # the samples stay in the partitions of the encoded dataset
    parts = {} if encoded is None else encoded.inputs
    kept = {role: each for role, each in parts.items() if each.kind != "dataset"}

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, _):
            return rake_dataset(client, store, dataset, schema, margins, bounds, folder)

    entry = build_artefact(
        store,
        "dataset",
        inputs={"encoded": dataset, **kept},
        options={"schema": schema.digest, "margins": known, "bounds": bounds},
        version=VERSION,
        write=write,
    )
    return entry.reference


def run_rake(walk: Walk) -> Reference:
    """Rake the dataset of a run.

    Raises
    ------
    SourceError
        If it holds no answer.
    """
    dataset = walk.stages["dataset"]
    refuse_empty(DatasetAccount.from_json(find_summary(open_store(walk.config), dataset)))
    walk.stages["encoded"] = dataset
    return rake(walk.config, dataset, walk.address)


def plan_stages(sizes: RunSizes) -> Iterator[PlannedStage]:
    """Plan raking, which follows the encoding of the rows."""
    yield PlannedStage("rake", "ingest", sizes.config.section(MarginsConfig).are_known)


STEPS = (
    Step(
        "dataset",
        run_rake,
        applies=lambda walk: walk.config.section(MarginsConfig).are_known,
        original="encoded",
    ),
)
"""Raked weights take the place of those of the dataset."""
