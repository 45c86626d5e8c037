"""Stage: raw files to partitions of sample blocks."""

from __future__ import annotations

from collections.abc import Mapping

from pmflib.config import PipelineConfig
from pmflib.ingest.dataset_building import build_dataset
from pmflib.store.artefacts import Entry, Reference
from tasks.stage import load_schema, open_store, open_workers_late, publish_entry, stage
from tasks.stage_progress import report


@stage(name="ingest")
def ingest(
    config: PipelineConfig,
    address: str = "",
    censuses: Mapping[str, Reference] | None = None,
    base: Reference | None = None,
    rehash: bool = False,
) -> Reference:
    """Encode all sources, quarantine what does not fit, and cut samples into partitions.

    Parameters
    ----------
    config
        The pipeline.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    censuses
        For label logs, the census of each file, as `tasks.census.census` gives them.
    base
        Dataset of an earlier run, to build upon: only samples whose rows have changed are assembled again.
    rehash
        Whether to read the bytes of all sources, also of those that seem not to have changed.

    Returns
    -------
    Reference to the dataset; the entry's summary is the account of rows.

    Raises
    ------
    SourceError
        If a file is missing, empty, cut short or of another format.
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
                config,
                schema,
                censuses=censuses,
                base=base,
                rehash=rehash,
                on_step=_report_rows,
            )

    return publish_entry(build).reference


def _report_rows(step: str, done: int, total: int, n_rows: int) -> None:
    report(step, done, total, f"{n_rows:,} rows" if n_rows or done == total else "")
