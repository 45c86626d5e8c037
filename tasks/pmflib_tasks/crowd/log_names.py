"""Stage: the workers and labels of a label log."""

from __future__ import annotations

from pmflib.apps.crowd.stored.log_names import build_log_names, load_log_names, make_label_schema
from pmflib.base.display.progress import report_progress
from pmflib.cluster.clients import check_workers
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.sources import find_sources
from pmflib.store.artefacts import Reference
from pmflib.store.objects.addresses import StoreAccess
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.stage import open_store, open_workers, stage


# run records and artefacts use this name
@stage(name="census")
def list_log_names(config: PipelineConfig, address: str = "") -> dict[str, Reference]:
    """List the workers and labels of all sources, and write their schema.

    Parameters
    ----------
    config
        The pipeline, with a long layout: samples are tasks, variables workers, values labels.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Names in each file, by the digest of the file. Files whose names are known are not read again.

    Raises
    ------
    SchemaError, SourceError
        If a file cannot be read, or has no labels.
    """
    store = open_store(config)
    root = store.address
    found = find_sources(
        config.source_paths,
        config.source.suffixes,
        skip_empty=config.source.on_empty_file == "skip",
    )
    with open_workers(config, address) as (client, _):
        check_workers(client, StoreAccess(root))
        entries = map_items(
            client,
            build_log_names,
            found,
            config.source,
            root,
            on_result=lambda done: report_progress("census", done, len(found)),
        )
    counted = load_log_names(store, [entry.reference for entry in entries])
    schema = make_label_schema(counted, config.source, config.section(CrowdConfig).classes)
    schema.save(config.resolve(config.schema_.file))
    return {entry.inputs["source"].digest: entry.reference for entry in entries}
