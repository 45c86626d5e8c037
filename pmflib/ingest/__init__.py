"""Raw files to sample blocks: read, encode by schema, quarantine what does not fit, partition by sample."""

from pmflib.ingest.accounts import combine_accounts
from pmflib.ingest.assembly import assemble_bucket
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
    "assemble_bucket",
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
