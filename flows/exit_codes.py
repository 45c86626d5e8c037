"""Exit codes of the command, by what has failed."""

from __future__ import annotations

from pmflib.errors import (
    ClusterError,
    ConfigError,
    MemoryPlanError,
    PmfError,
    QualityError,
    RankError,
    SchemaError,
    SourceError,
    StoreError,
)

EXIT_CODES: dict[type[PmfError], int] = {
    ConfigError: 2,
    ClusterError: 7,
    RankError: 2,
    SourceError: 3,
    SchemaError: 3,
    StoreError: 4,
    MemoryPlanError: 5,
    QualityError: 6,
}
"""Exit code of the command by the class of the error."""
