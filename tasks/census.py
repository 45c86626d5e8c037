"""Stage: the workers and labels of a label log."""

from __future__ import annotations

from pmflib.config import PipelineConfig
from pmflib.ingest import find_sources
from pmflib.ingest.label_census import build_census, load_census, make_label_schema
from pmflib.running.clients import check_workers_see
from pmflib.running.item_maps import map_items
from pmflib.store.artefacts import Reference
from tasks.stage import open_store, open_workers, stage
from tasks.stage_progress import report


@stage(name="census")
def census(config: PipelineConfig, address: str = "") -> dict[str, Reference]:
    """List the workers and labels of all sources, and write the schema that makes of them.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long: a sample is a task, a variable a worker, a value a label.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Census of each file, by the file's digest. A file whose census was taken before is not read again.

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
        check_workers_see(client, root)
        entries = map_items(
            client,
            build_census,
            found,
            config.source,
            root,
            on_result=lambda done: report("census", done, len(found)),
        )
    taken = load_census(store, [entry.reference for entry in entries])
    schema = make_label_schema(taken, config.source, config.crowd.classes)
    schema.save(config.resolve(config.schema_.file))
    return {entry.inputs["source"].digest: entry.reference for entry in entries}
