"""What a fitted model says of its parameters, by its kind: scores of samples, errors, steps, constraints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError
from pmflib.em.block_source import BlockSource
from pmflib.information.parameter_errors import ParameterErrors
from pmflib.information.scores import StateRows


class ModelInformation(ABC):
    """Information of samples on the parameters of one model.

    Latent classes have `pmflib.information.latent_classes.ClassInformation`; families offer a class for their kind of
    model under the hook ``"information"``, which is called with the model. Workers get a copy of the object.

    Parameters
    ----------
    model
        A fitted model.
    """

    has_free_factors: ClassVar[bool] = False
    """Whether prior and factors are the parameters: those of other models follow from tables, or from traits."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def n_states(self) -> int:
        """Number of states of a row, or of points of its traits."""
        return int(self.model.rank)

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """Number of parameters, free or not, that have scores."""

    @abstractmethod
    def find_errors(self, source: BlockSource) -> tuple[ParameterErrors, tuple[str, ...]]:
        """Find standard errors of the parameters, and the notes of which to warn.

        Parameters
        ----------
        source
            The samples that the model was fitted to.

        Raises
        ------
        MemoryPlanError
            If the model has too many parameters.
        PmfError
            If nothing is observed.
        """

    def check_fit(self) -> None:
        """Refuse a model whose parameters do not maximise one likelihood.

        Raises
        ------
        PmfError
            If it is an average of fits.
        """
        if self.model.origin.final:
            raise PmfError(
                f"model is an average of {self.model.origin.average} fits, whose states are no parameters of one "
                "likelihood; pass a fit of one member, or distil it and refine that by fit_em"
            )

    def check_design(self) -> None:
        """Refuse a model whose errors do not allow for a sampling design.

        Raises
        ------
        PmfError
            If prior and factors are not its parameters, or it is an average of fits.
        """
        if not self.has_free_factors or self.model.origin.final:
            raise PmfError(
                "samples have a design or weights, and model is an average of fits, or has forests or traits; a design "
                "gives errors of latent classes of one fit"
            )

    def iterate_rows(
        self, blocks: Iterable[DenseBlock], free: list[IntArray]
    ) -> Iterator[StateRows]:
        """Return the rows of blocks in batches that bound the memory of their scores.

        Parameters
        ----------
        blocks
            Valid samples.
        free
            Free levels of each variable, whose probabilities are returned.
        """
        raise PmfError(
            f"residuals of pairs are not offered for a model of kind {self.model.kind!r}"
        )

    def find_steps(self, outer: FloatArray, mass: FloatArray) -> FloatArray:
        """Compute steps of the parameters that constraints allow: float64 of shape (n_entries, n_steps).

        Parameters
        ----------
        outer
            float64 of shape (n_entries, n_entries): sum of the products of scores.
        mass
            float64 of shape (n_entries,): sum of the masses of `iterate_rows`.
        """
        raise PmfError(
            f"residuals of pairs are not offered for a model of kind {self.model.kind!r}"
        )
