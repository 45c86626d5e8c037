"""The trait model: people's positions on a few continuous traits, and the PMF of every variable given the traits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, list_owners
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.constraints import FINITE, check_entries, check_shapes, check_type
from pmflib.base.errors import PmfError
from pmflib.schema import Schema
from pmflib.schema.variable import MISSING
from pmflib.store.array_groups import read_arrays

BATCH_CELLS = 1 << 20
"""Approximate number of covariance entries in memory at a time; it determines the number of rows folded in together."""
MOST_STEPS, TOLERANCE = 40, 1e-6
"""Maximum number of Newton steps of a fold-in, and its tolerance: step size in standard deviations of a trait."""

ARRAYS = {
    "trait_base": ("level",),
    "trait_slopes": ("level", "trait"),
    "trait_mean": ("trait",),
    "trait_covariance": ("trait", "other_trait"),
}
"""Arrays of a model's Zarr group, with their dimensions; the field is the part after the underscore."""


@dataclass(frozen=True, eq=False)
class TraitScores:
    """Trait scores of some rows.

    Parameters
    ----------
    scores
        float64 of shape (n_rows, n_traits): most probable traits given the observed cells; the prior mean if nothing is
        observed. For models from `pmflib.families.fit_traits`, in standard deviations of the people in the training
        samples.
    errors
        float64 of shape (n_rows, n_traits): standard errors, in the same unit; those of the prior if nothing is
        observed.
    """

    scores: FloatArray
    errors: FloatArray


@dataclass(frozen=True, eq=False)
class FoldedRows:
    """Posteriors of the traits of some rows, approximated as normal by Laplace's method.

    Parameters
    ----------
    modes
        float64 of shape (n_rows, n_traits).
    covariances
        float64 of shape (n_rows, n_traits, n_traits).
    log_probs
        float64 of shape (n_rows,): log-probability of the observed cells by Laplace's method, nats.
    """

    modes: FloatArray
    covariances: FloatArray
    log_probs: FloatArray


@dataclass(frozen=True, eq=False)
class TraitModel:
    """A multidimensional item response model of all variables.

    Level r of variable i has probability ``softmax_r(base[r] + slopes[r] . y)`` for a person with traits y, which are
    distributed as ``Normal(mean, covariance)``. Ordered levels follow the partial credit model: their slope is the
    standardised value of the level times a vector of the variable, plus its extremeness times another vector. Nominal
    levels have one vector each.

    Parameters
    ----------
    schema
        Variables and their levels.
    base
        float64 of shape (n_levels,): logits, stacked, at traits of 0.
    slopes
        float64 of shape (n_levels, n_traits): change of the logits per unit of a trait.
    mean
        float64 of shape (n_traits,): prior mean of the traits.
    covariance
        float64 of shape (n_traits, n_traits), positive definite: prior covariance.
    is_quadrature
        Whether the states of the joint PMF are quadrature points with the prior's weights; predictions from them are
        then exact, and rows are not folded in. Otherwise the states are people.

    Raises
    ------
    PmfError
        If shapes do not agree, a value is not finite, or the covariance is not positive definite.

    References
    ----------
    Masters (1982), Psychometrika 47(2), for partial credit; Kaban and Girolami (2001), IEEE PAMI 23(8), for latent
    trait models; Tierney and Kadane (1986), JASA 81(393), for Laplace's method.
    """

    schema: Schema
    base: FloatArray
    slopes: FloatArray
    mean: FloatArray
    covariance: FloatArray
    is_quadrature: bool = False

    def __post_init__(self) -> None:
        check_type(Schema, "pass a pmflib.Schema", schema=self.schema)
        n_levels, n_traits = self.schema.n_levels, self.mean.size
        expected = {
            "base": (n_levels,),
            "slopes": (n_levels, n_traits),
            "mean": (n_traits,),
            "covariance": (n_traits, n_traits),
        }
        for name, shape in expected.items():
            values = getattr(self, name)
            check_shapes("as levels and traits need", PmfError, **{name: (values, shape)})
            check_entries(FINITE, **{name: values})
        if n_traits and np.linalg.eigvalsh(self.covariance)[0] <= 0:
            raise PmfError(
                "covariance is not positive definite: an eigenvalue is "
                f"{np.linalg.eigvalsh(self.covariance)[0]:.3g}; take out the traits that do not vary"
            )

    def __repr__(self) -> str:
        """Return the sizes of the model."""
        return f"TraitModel({self.n_traits} traits, {self.schema.n_variables} variables)"

    @property
    def n_traits(self) -> int:
        """Number of traits, including response biases."""
        return self.mean.size

    def score_traits(self, codes: IntArray) -> TraitScores:
        """Fold in rows: compute their most probable traits, and the standard errors.

        Parameters
        ----------
        codes
            Integers of shape (n_rows, n_variables), -1 missing.

        Raises
        ------
        SchemaError
            If the codes do not fit the schema.
        """
        scores, errors = np.empty((2, len(codes), self.n_traits))
        for rows, folded in self.fold_in(DenseBlock(self.schema.check_codes(codes))):
            scores[rows] = folded.modes
            errors[rows] = np.sqrt(np.einsum("rff->rf", folded.covariances))
        return TraitScores(scores, errors)

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Return the log-probability of the observed cells of each row; Laplace's method integrates over the traits.

        The approximation is accurate for rows with many observed cells, and off by some hundredths of a nat for few:
        the probabilities of all possible rows sum to nearly 1, those of the discretised states exactly.

        Parameters
        ----------
        codes
            As for `score_traits`.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed.
        """
        log_probs = np.empty(len(codes))
        for rows, folded in self.fold_in(DenseBlock(self.schema.check_codes(codes))):
            log_probs[rows] = folded.log_probs
        return log_probs

    def predict_proba(self, codes: IntArray, variable: str | int) -> FloatArray:
        """Return the PMF of a variable in each row, given the other observed variables.

        Parameters
        ----------
        codes
            As for `score_traits`; the column of the variable itself is ignored.
        variable
            Name or position.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1.
        """
        position = self.schema.position(variable)
        hidden = self.schema.check_codes(codes).copy()
        hidden[:, position] = MISSING
        rows = np.arange(len(codes))
        chances = self.predict_cells(DenseBlock(hidden), rows, np.full(len(codes), position))
        return chances[:, : self.schema[position].cardinality]

    def predict_cells(self, block: Block, rows: IntArray, variables: IntArray) -> FloatArray:
        """Return the PMFs of some cells, given all observed cells of their rows.

        Parameters
        ----------
        block
            Valid samples.
        rows, variables
            int64 of shape (n_cells,): rows of the block, in increasing order, and positions.

        Returns
        -------
        float64 of shape (n_cells, largest cardinality), padded with 0 beyond the levels of the variable.
        """
        from pmflib.families.traits.kernels.trait_folds import NODES, predict_cells

        offsets, most = self.schema.offsets, int(self.schema.cardinalities.max())
        out = np.zeros((rows.size, most))
        size = max(most, self.n_traits)
        work = np.empty((4, size)), np.empty((2, most, most))
        for part, folded in self.fold_in(block):
            first, last = np.searchsorted(rows, [part.start, part.stop])
            predict_cells(
                np.asarray(rows[first:last] - part.start, np.int64),
                np.asarray(variables[first:last], np.int64),
                *(offsets, self.base, self.slopes, folded.modes, folded.covariances),
                *(NODES, out[first:last], work),
            )
        return out

    def fold_in(self, block: Block) -> Iterator[tuple[slice, FoldedRows]]:
        """Find the posterior of the traits of rows, including new people, one batch at a time.

        Newton's method from the prior mean converges to the posterior mode, because the log-posterior is concave.

        Parameters
        ----------
        block
            Valid samples.
        """
        from pmflib.families.traits.kernels.trait_folds import fold_rows

        n_traits = self.n_traits
        n_batch = max(1, BATCH_CELLS // max(1, n_traits) ** 2)
        most = int(self.schema.cardinalities.max())
        work = np.empty((3, n_traits)), np.empty((n_traits, n_traits)), np.empty(most)
        for start in range(0, block.n_rows, n_batch):
            part = block.cut(start, min(start + n_batch, block.n_rows)).to_sparse(
                self.schema.offsets
            )
            folded = FoldedRows(
                np.tile(self.mean, (part.n_rows, 1)),
                np.empty((part.n_rows, n_traits, n_traits)),
                np.empty(part.n_rows),
            )
            fold_rows(
                np.asarray(part.indptr, np.int64),
                np.asarray(part.indices, np.int32),
                self._arrays,
                (MOST_STEPS, TOLERANCE),
                *(folded.modes, folded.covariances, folded.log_probs, work),
            )
            yield slice(start, start + part.n_rows), folded

    def find_factors(self, points: FloatArray) -> FloatArray:
        """Compute the conditional PMFs of all variables at some points.

        Parameters
        ----------
        points
            float64 of shape (n_points, n_traits).

        Returns
        -------
        float64 of shape (n_levels, n_points): factors of a `JointPMF` whose states are the points.
        """
        logits = np.repeat(self.base[:, None], len(points), axis=1)
        # one trait at a time: the last bits of BLAS products depend on the number of threads
        for f in range(self.n_traits):
            logits += self.slopes[:, f, None] * points[:, f]
        begins = self.schema.offsets[:-1]
        logits -= np.repeat(np.maximum.reduceat(logits, begins), self.schema.cardinalities, axis=0)
        np.exp(logits, out=logits)
        logits /= np.repeat(np.add.reduceat(logits, begins), self.schema.cardinalities, axis=0)
        return logits

    def to_arrays(self) -> dict[str, tuple[FloatArray, tuple[str, ...]]]:
        """Return the parameters by name, with the names of their dimensions, for the Zarr group of a model."""
        return {name: (getattr(self, name[6:]), dims) for name, dims in ARRAYS.items()}

    @classmethod
    def load(cls, path: Path, schema: Schema, is_quadrature: bool) -> TraitModel:
        """Read the parameters from the Zarr group of a model."""
        arrays, _ = read_arrays(path, list(ARRAYS))
        fields = {name[6:]: values for name, values in arrays.items()}
        return cls(schema, **fields, is_quadrature=is_quadrature)

    @cached_property
    def _arrays(self) -> tuple[Any, ...]:
        """Arguments of the kernels: see `pmflib.families.traits.kernels.trait_folds.fold_rows`."""
        if self.n_traits:
            precision = np.linalg.inv(self.covariance)
            log_precision = float(np.linalg.slogdet(precision)[1])
        else:
            precision, log_precision = np.zeros((0, 0)), 0.0
        offsets = self.schema.offsets
        return (
            *(list_owners(offsets), offsets, self.base, np.ascontiguousarray(self.slopes)),
            *(self.mean, precision, log_precision),
        )
