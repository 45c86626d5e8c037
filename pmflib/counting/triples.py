"""Third-order counts of a few variables, and the fit of a model to them: the classical rival of pairs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.errors import ConvergenceWarning, MemoryPlanError, PmfError, RankError, SchemaError
from pmflib.fitting.pairwise import FitResult
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.solvers.ctd import fit_ctd
from pmflib.solvers.ctd_kl import fit_ctd_kl
from pmflib.solvers.random_start import start_random

MAX_TRIPLE_BYTES = 1 << 30
"""Largest table of triples, bytes: 512 levels in all."""

Loss = Literal["kl", "squares"]


@dataclass(frozen=True, eq=False)
class TripleCounts:
    """How often each triple of levels occurs together.

    Counts of two sets of samples add up to the counts of both, and subtract exactly.

    Parameters
    ----------
    schema
        The variables counted.
    table
        int64 of shape (n_levels, n_levels, n_levels): entry (a, b, c), a < b < c, is the number of samples that hold
        the three levels, entry (a, a, a) of those that hold the level; all else is 0.
    n_rows
        Samples counted.

    Raises
    ------
    SchemaError
        If the shape does not fit the schema.
    """

    schema: Schema
    table: IntArray
    n_rows: int

    def __post_init__(self) -> None:
        if self.table.shape != (self.schema.n_levels,) * 3:
            raise SchemaError(
                f"table has shape {self.table.shape}; the schema asks for {(self.schema.n_levels,) * 3}"
            )

    @classmethod
    def zero(cls, schema: Schema) -> TripleCounts:
        """Counts of no samples: the identity of the group.

        Raises
        ------
        MemoryPlanError
            If the table would take more than ``MAX_TRIPLE_BYTES``.
        """
        n_bytes = 8 * schema.n_levels**3
        if n_bytes > MAX_TRIPLE_BYTES:
            raise MemoryPlanError(
                f"the triples of {schema.n_levels} levels take {n_bytes} bytes, above "
                f"{MAX_TRIPLE_BYTES}; count pairs, or triples of fewer variables"
            )
        return cls(schema, np.zeros((schema.n_levels,) * 3, np.int64), 0)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.table.nbytes

    def _check_same(self, other: TripleCounts) -> None:
        if self.schema.digest != other.schema.digest:
            raise SchemaError(
                f"triples of schema {other.schema.digest[:12]} cannot join triples of schema "
                f"{self.schema.digest[:12]}; count both under one schema"
            )

    def __add__(self, other: TripleCounts) -> TripleCounts:
        """Counts of both sets of samples; SchemaError if the schemas differ."""
        self._check_same(other)
        return TripleCounts(self.schema, self.table + other.table, self.n_rows + other.n_rows)

    def __sub__(self, other: TripleCounts) -> TripleCounts:
        """Counts without the samples of ``other``.

        Raises
        ------
        SchemaError
            If the schemas differ, or samples would be taken away that were never counted.
        """
        self._check_same(other)
        table = self.table - other.table
        if table.min(initial=0) < 0 or self.n_rows < other.n_rows:
            raise SchemaError("the triples to subtract hold samples that these triples never held")
        return TripleCounts(self.schema, table, self.n_rows - other.n_rows)


@dataclass(frozen=True, eq=False)
class TripleMarginals:
    """Empirical marginals of three variables at a time.

    Parameters
    ----------
    triples
        float64 of shape (n_levels, n_levels, n_levels): block (j, k, l), j < k < l, is the joint PMF of the three
        variables where they were observed together; all else is 0.
    support
        int64 of shape (n_variables, n_variables, n_variables), j < k < l: samples that hold all three.
    singles
        float64 of shape (n_levels,): PMF of each variable, uniform where it was never observed.
    offsets
        int64 of shape (n_variables + 1,).
    """

    triples: FloatArray
    support: IntArray
    singles: FloatArray
    offsets: IntArray

    @property
    def observed(self) -> BoolArray:
        """Triples of variables j < k < l that some sample holds."""
        return self.support > 0

    @classmethod
    def from_counts(cls, counts: TripleCounts) -> TripleMarginals:
        """Normalise counts."""
        offsets = counts.schema.offsets
        sizes = np.diff(offsets)
        seen = np.einsum("aaa->a", counts.table)
        totals = np.repeat(np.add.reduceat(seen, offsets[:-1]), sizes)
        singles = np.where(totals > 0, seen / np.maximum(totals, 1), 1 / np.repeat(sizes, sizes))
        support = counts.table
        for axis in range(3):
            support = np.add.reduceat(support, offsets[:-1], axis=axis)
        owners = np.arange(sizes.size)
        rising = (owners[:, None, None] < owners[:, None]) & (owners[:, None] < owners)
        support = np.where(rising, support, 0)
        scale: FloatArray = np.where(support > 0, 1 / np.maximum(support, 1), 0.0)
        for axis in range(3):
            scale = np.repeat(scale, sizes, axis=axis)
        return cls(scale * counts.table, support, singles, offsets)


def count_triples(codes: object, cardinalities: IntArray | Sequence[int] | Schema) -> TripleCounts:
    """Count how often each triple of levels of three variables occurs together.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.
    cardinalities
        Number of levels of each variable, shape (n_variables,); or a schema.

    Raises
    ------
    SchemaError
        If a code is below -1 or not below its variable's cardinality.
    MemoryPlanError
        If the table would take more than ``MAX_TRIPLE_BYTES``.

    Notes
    -----
    Memory 8 n_levels^3 bytes, time n_rows times the observed variables cubed: for small questionnaires.

    Examples
    --------
    >>> counts = count_triples(np.array([[0, 1, 1], [0, -1, 0], [0, 1, 1]]), [2, 2, 2])
    >>> int(counts.table[0, 3, 5]), int(counts.table[0, 0, 0])
    (2, 3)
    """
    from pmflib.kernels.triples import add_triples  # numba loads on first use

    schema = (
        cardinalities
        if isinstance(cardinalities, Schema)
        else Schema.from_cardinalities(cardinalities)
    )
    encoded = schema.encode(codes)
    counts = TripleCounts.zero(schema)
    block = DenseBlock(encoded).to_sparse(schema.offsets)
    add_triples(block.indptr, block.indices, counts.table)
    return TripleCounts(schema, counts.table, len(encoded))


def fit_triples(
    counts: TripleCounts,
    rank: int,
    *,
    loss: Loss = "kl",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to triple counts from a random start, on one machine.

    Pairs are fitted faster and from far fewer samples (`pmflib.fit`); triples tell more states apart where few
    variables have few levels.

    Parameters
    ----------
    counts
        Of at least three variables.
    rank
        Number of latent states, at least 1.
    loss
        "kl": the triples' composite likelihood. "squares": least squares.
    rng
        Generator of the start, or a seed for one.

    Raises
    ------
    RankError
        If the rank is below 1.
    PmfError
        If the loss is not known, or there are fewer than three variables.

    Warns
    -----
    ConvergenceWarning
        If the solver stops at its limit of iterations.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66; Yeredor and Haardt (2019), IEEE
    Signal Processing Letters 26.
    """
    if rank < 1:
        raise RankError(f"rank is {rank}; give at least 1")
    if loss not in get_args(Loss):
        raise PmfError(f"loss is {loss!r}; give one of {get_args(Loss)}")
    if counts.schema.n_variables < 3:
        raise PmfError(
            f"there are {counts.schema.n_variables} variables, and triples need three; fit pairs instead"
        )
    marginals = TripleMarginals.from_counts(counts)
    # half a pseudo-count opens what no sample held: multiplicative updates never leave a zero
    seen = np.einsum("aaa->a", counts.table) + 0.5
    sizes = np.diff(marginals.offsets)
    opened = seen / np.repeat(np.add.reduceat(seen, marginals.offsets[:-1]), sizes)
    initial = start_random(opened, marginals.offsets, rank=rank, rng=np.random.default_rng(rng))
    if loss == "kl":
        found = fit_ctd_kl(
            marginals.triples,
            marginals.offsets,
            marginals.observed,
            marginals.singles,
            initial=initial,
            weights=marginals.support,
        )
    else:
        found = fit_ctd(
            marginals.triples,
            marginals.offsets,
            marginals.observed,
            marginals.singles,
            initial=initial,
        )
    method = f"triples-{loss}"
    if not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; go on from its "
            "model with EM",
            ConvergenceWarning,
            stacklevel=2,
        )
    model = JointPMF(found.prior, found.factors, counts.schema, {"method": method})
    return FitResult(
        model, found.loss_history, (), found.n_iter, found.converged, method, found.notes
    )
