"""Stage: marginals for other programs, as a Zarr group with coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pmflib.counts.open_marginals import GROUP, MARGINALS, write_marginals
from pmflib.counts.zarr_tables import PAIRS, StoredTables
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, stage

VERSION = 1


@stage(name="marginals", makes=MARGINALS)
def publish_marginals(config: PipelineConfig, counts: Reference) -> Reference:
    """Write the shares of all counted pairs for readers of any library.

    Parameters
    ----------
    config
        The pipeline.
    counts
        Reference from `count`, or to the counts of all sites.

    Returns
    -------
    Reference to the marginals: see `pmflib.counts.open_marginals`.
    """
    store, inputs = open_store(config), {"counts": counts}
    entry = store.find(counts.identity)
    sources = {} if entry is None else entry.inputs
    options = {"code": f"pmflib {version('pmflib')}"}

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        tables = StoredTables(store.locate(counts) / PAIRS)
        made_from = {role: each.digest for role, each in (inputs | sources).items()}
        attributes = {**options, "schema": tables.schema.digest, "lineage": made_from}
        write_marginals(folder / GROUP, tables, attributes)
        schema = tables.table_schema
        return {"levels": schema.n_levels, "variables": schema.n_variables}

    made = build_artefact(
        store, MARGINALS, inputs=inputs, options=options, version=VERSION, write=write
    )
    return made.reference
