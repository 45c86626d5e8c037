"""Guards: whether new data may be fitted to. Counts and accounts of rows in, findings out."""

from pmflib.quality.findings import Finding
from pmflib.quality.row_guards import FileAccount

__all__ = ["FileAccount", "Finding"]
