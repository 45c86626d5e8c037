"""What makes tables of rows, such as scores by a model: options, interface, and the digest of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.json_records import JsonRecord
from pmflib.model.measures import TargetSums
from pmflib.model.mixture import Mixture
from pmflib.schema import Schema


@dataclass(frozen=True)
class ScoreOptions(JsonRecord):
    """Optional columns of a score table.

    Parameters
    ----------
    targets
        Names of variables to predict from the others.
    probabilities
        Whether to include the probability of every level of a target.
    keep
        Names of variables whose levels are copied to the output.
    """

    targets: tuple[str, ...] = ()
    probabilities: bool = False
    keep: tuple[str, ...] = ()


class TableMaker(Protocol):
    """Interface for making tables from batches of rows: scores, rows with missing cells imputed, recommendations."""

    @property
    def schema(self) -> Schema:
        """The variables of the rows."""

    @property
    def options(self) -> ScoreOptions:
        """The optional columns to compute."""

    @property
    def facts(self) -> Mapping[str, object]:
        """Additional facts for the report on all rows, plain JSON types."""

    def score(
        self, codes: IntArray, origins: Mapping[str, pa.Array] | None = None
    ) -> tuple[pa.Table, list[TargetSums]]:
        """Return the table of some rows and the evaluation of target predictions: see `TableScorer.score`."""


def digest_model(model: Mixture) -> str:
    """Return the SHA-256 digest of a model's schema and parameters, in hexadecimal; equal models have equal digests."""
    digest = hashlib.sha256(model.schema.digest.encode())
    own, _ = model.list_parts()
    for values in (model.prior, model.factors, *(values for values, _ in own.values())):
        dtype = "<i4" if values.dtype.kind == "i" else "<f8"
        digest.update(np.ascontiguousarray(values, dtype).tobytes())
    return digest.hexdigest()
