"""Stage: raw files to partitions of sample blocks."""

from __future__ import annotations

from pmflib.base.display.progress import report_progress
from pmflib.ingest.dataset.build_steps import FileSchemas
from pmflib.ingest.dataset.building import build_dataset
from pmflib.store.artefacts import Entry, Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import load_schema, open_store, open_workers_late, publish_entry, stage


@stage(name="ingest", makes="dataset")
def ingest(
    config: PipelineConfig,
    address: str = "",
    file_schemas: FileSchemas | None = None,
    base: Reference | None = None,
    rehash: bool = False,
) -> Reference:
    """Encode all sources, quarantine what does not fit, and split samples into partitions.

    Parameters
    ----------
    config
        The pipeline.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    file_schemas
        Schemas of single files, such as those of label logs.
    base
        Dataset of an earlier run to build upon: only samples whose rows changed are assembled again.
    rehash
        Whether to read the bytes of all sources, even of those that seem unchanged.

    Returns
    -------
    Reference to the dataset; the summary of the entry is the account of rows.

    Raises
    ------
    SourceError
        If a file is missing, empty, truncated or of another format.
    SchemaError
        If the data do not fit the schema, and the policy is to stop.
    """
    store, schema = open_store(config), load_schema(config)
    store.drop_leftovers()

    def build() -> Entry:
        with open_workers_late(config, address) as client:
            return build_dataset(
                client,
                store,
                config.dataset_options,
                schema,
                file_schemas=file_schemas,
                base=base,
                rehash=rehash,
                on_step=_report_rows,
            )

    return publish_entry(build).reference


def _report_rows(step: str, done: int, total: int, n_rows: int) -> None:
    report_progress(step, done, total, f"{n_rows:,} rows" if n_rows or done == total else "")
