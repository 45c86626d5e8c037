"""Raw files to sample blocks: read, encode by schema, quarantine what does not fit, partition by sample."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pmflib.ingest.accounts import combine_accounts
    from pmflib.ingest.assembly import assemble_buckets
    from pmflib.ingest.buckets import choose_buckets, estimate_csv_bytes
    from pmflib.ingest.dataset_building import build_dataset
    from pmflib.ingest.long import spill_long
    from pmflib.ingest.quarantine import QUARANTINE_SCHEMA, REASONS
    from pmflib.ingest.raw_rows import RawRows
    from pmflib.ingest.readers import read_columns, read_rows
    from pmflib.ingest.rejected_rows import export_quarantine
    from pmflib.ingest.schema_draft import draft_schema, number_columns
    from pmflib.ingest.sources import Source, digest_source, find_sources
    from pmflib.ingest.wide import encode_wide, spill_wide

__all__ = [
    "QUARANTINE_SCHEMA",
    "REASONS",
    "RawRows",
    "Source",
    "assemble_buckets",
    "build_dataset",
    "choose_buckets",
    "combine_accounts",
    "digest_source",
    "draft_schema",
    "encode_wide",
    "estimate_csv_bytes",
    "export_quarantine",
    "find_sources",
    "number_columns",
    "read_columns",
    "read_rows",
    "spill_long",
    "spill_wide",
]

_HOMES = {
    "QUARANTINE_SCHEMA": "pmflib.ingest.quarantine",
    "REASONS": "pmflib.ingest.quarantine",
    "RawRows": "pmflib.ingest.raw_rows",
    "Source": "pmflib.ingest.sources",
    "assemble_buckets": "pmflib.ingest.assembly",
    "build_dataset": "pmflib.ingest.dataset_building",
    "choose_buckets": "pmflib.ingest.buckets",
    "combine_accounts": "pmflib.ingest.accounts",
    "digest_source": "pmflib.ingest.sources",
    "draft_schema": "pmflib.ingest.schema_draft",
    "encode_wide": "pmflib.ingest.wide",
    "estimate_csv_bytes": "pmflib.ingest.buckets",
    "export_quarantine": "pmflib.ingest.rejected_rows",
    "find_sources": "pmflib.ingest.sources",
    "number_columns": "pmflib.ingest.schema_draft",
    "read_columns": "pmflib.ingest.readers",
    "read_rows": "pmflib.ingest.readers",
    "spill_long": "pmflib.ingest.long",
    "spill_wide": "pmflib.ingest.wide",
}
"""Module of each name. All of them load Arrow, Zarr and file systems, which few users of a part need."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
