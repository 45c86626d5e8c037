"""Stage: the workers and labels of a label log."""

from __future__ import annotations

from pmflib.cluster.clients import check_workers
from pmflib.cluster.item_maps import map_items
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import build_log_names, load_log_names, make_label_schema
from pmflib.ingest.sources import find_sources
from pmflib.store.artefacts import Reference
from pmflib.store.objects.addresses import StoreAccess
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import open_store, open_workers, stage


# run records have its time under this name, as the store has its artefacts
@stage(name="census")
def list_log_names(config: PipelineConfig, address: str = "") -> dict[str, Reference]:
    """List the workers and labels of all sources, and write the schema that makes of them.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long: a sample is a task, a variable a worker, a value a label.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Names in each file, by the digest of the file. A file whose names are known is not read again.

    Raises
    ------
    SchemaError, SourceError
        If a file cannot be read, or holds no labels.
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
    schema = make_label_schema(counted, config.source, config.crowd.classes)
    schema.save(config.resolve(config.schema_.file))
    return {entry.inputs["source"].digest: entry.reference for entry in entries}
