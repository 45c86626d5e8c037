"""Guards: whether new data may be fitted to. Counts and accounts of rows in, findings out."""

from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.guards.findings import Finding

__all__ = ["FileAccount", "Finding"]
