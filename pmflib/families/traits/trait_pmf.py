"""The joint PMF of continuous traits, discretised to states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.display.summary import SummaryTable
from pmflib.base.errors import PmfError
from pmflib.families.traits.discriminations import Discriminations, name_contrast, tabulate_items
from pmflib.families.traits.quadrature import ItemDesign
from pmflib.families.traits.trait_model import TraitModel, TraitScores
from pmflib.model.conditions import Conditions
from pmflib.model.joint_pmf import KIND, JointPMF
from pmflib.model.mixture import Arrays, ParameterRow
from pmflib.model.origin import ModelOrigin
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays


@dataclass(frozen=True, eq=False, repr=False)
class TraitPMF(JointPMF, mark="n_traits"):
    """The joint distribution of all variables given a few continuous traits, as a mixture over points of the traits.

    Unless the states are quadrature points, methods that predict cells of a row (`predict_proba`, `predict`,
    `expected_value`, `complete`, held-out scores) fold the row in, that is, use the posterior of its traits: a hundred
    ratings determine the traits of a person more precisely than the nearest state does. Methods for whole rows or
    arbitrary events (`log_prob`, `posterior`, `marginal`, `condition`, `sample`, questions) use the states: they define
    a joint distribution, so all answers are consistent and sum to 1, unlike approximate integrals over traits.

    Parameters
    ----------
    prior, factors, schema, origin
        As for `JointPMF`.
    trait_model
        Model of the traits that the states discretise: see `pmflib.families.fit_traits`.

    Raises
    ------
    PmfError
        If shapes do not agree, a value is not a probability, or the traits belong to other variables.
    """

    kind: ClassVar[str] = "traits"

    trait_model: TraitModel = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trait_model.schema != self.schema:
            raise PmfError("trait_model has another schema; pass the one that the states are of")

    @classmethod
    def read_parts(
        cls, folder: Path, schema: Schema, origin: ModelOrigin, attributes: Mapping[str, Any]
    ) -> TraitPMF:
        """Read states and traits: see `JointPMF.read_parts`."""
        arrays, _ = read_arrays(folder, ["prior", "factors"], kind=KIND)
        traits = TraitModel.load(folder, schema, bool(attributes.get("is_quadrature")))
        return cls(arrays["prior"], arrays["factors"], schema, origin, trait_model=traits)

    def list_parts(self) -> tuple[Arrays, dict[str, object]]:
        """Return the arrays and the number of traits: see `JointPMF.list_parts`."""
        attributes: dict[str, object] = {"n_traits": self.trait_model.n_traits}
        if self.is_mixture:
            attributes["is_quadrature"] = True
        return self.trait_model.to_arrays(), attributes

    @property
    def is_mixture(self) -> bool:
        """Whether the states are quadrature points, so that rows are not folded in."""
        return self.trait_model.is_quadrature

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Operations that models with traits do not support, and why: see `JointPMF.unsupported`."""
        if self.is_mixture:
            return {}
        return {
            "criteria": (
                "has continuous traits, whose states are not parameters; compare it with others by held-out samples, "
                "as method 'compare' does"
            )
        }

    def count_free(self, level_counts: IntArray | None = None) -> int:
        """Count the intercepts and slopes, minus the rotations of the traits."""
        return ItemDesign(self.schema, self.trait_model.n_traits).n_parameters

    def list_parameters(self) -> tuple[dict[str, FloatArray], Iterator[ParameterRow]]:
        """Return the parameters of item responses: see `JointPMF.list_parameters`."""
        if not self.is_mixture:
            return super().list_parameters()
        items, traits = Discriminations.find(self.trait_model), self.trait_model
        arrays = {"discriminations": items.values}
        if items.thresholds.size:
            arrays["thresholds"] = items.thresholds
        return arrays | {"base": traits.base, "slopes": traits.slopes}, self._iterate_items(items)

    def _iterate_items(self, items: Discriminations) -> Iterator[ParameterRow]:
        schema, traits = self.schema, self.trait_model
        for position, f in np.ndindex(items.values.shape):
            item = name_contrast(schema, items.levels[position, f])
            value = float(items.values[position, f])
            yield "discriminations", (position, f), ("discrimination", f, *item, value)
        for at, levels in enumerate(items.steps):
            named = "threshold", 0, *name_contrast(schema, levels), float(items.thresholds[at])
            yield "thresholds", (at,), named
        for position, variable in enumerate(schema):
            for code, level in enumerate(variable.levels):
                row = int(schema.offsets[position]) + code
                item = variable.name, str(level)
                yield "base", (row,), ("intercept", "", *item, float(traits.base[row]))
                for f in range(traits.n_traits):
                    slope = float(traits.slopes[row, f])
                    yield "slopes", (row, f), ("slope", f, *item, slope)

    def tabulate_states(self) -> SummaryTable:
        """List the variables with their trait parameters if the states are quadrature points: see `JointPMF`."""
        return tabulate_items(self.trait_model) if self.is_mixture else super().tabulate_states()

    def describe_rank(self) -> str:
        """Return the number of states, and of how many traits they are points: see `JointPMF.describe_rank`."""
        of = f", which are points of {self.trait_model.n_traits} traits" if self.is_mixture else ""
        return super().describe_rank() + of

    def sort_states(self) -> Self:
        """Return the model as it is: its states are points of the traits, and keep their order."""
        return self

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """Return the PMF of a variable in each row, given the observed others: see `JointPMF.predict_proba`."""
        if self.is_mixture:
            return super().predict_proba(table, variable)
        position = self.schema.position(variable)
        return self.trait_model.predict_proba(self.encode(table, position), position)

    def predict_codes(
        self, shown: IntArray, samples: IntArray, variables: IntArray, codes: IntArray
    ) -> FloatArray:
        """Return the probabilities of given codes of some cells: see `JointPMF.predict_codes`."""
        if self.is_mixture:
            return super().predict_codes(shown, samples, variables, codes)
        folded = self.trait_model.predict_cells(DenseBlock(shown), samples, variables)
        return np.asarray(folded[np.arange(samples.size), codes])

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield the PMFs of all missing cells, given the observed cells of each row: see `JointPMF.predict_gaps`."""
        if self.is_mixture:
            yield from super().predict_gaps(codes)
            return
        for rows, block in self._iterate_blocks(codes):
            predict = self.make_predictor(block.codes, gaps := block.codes < 0)
            for position in np.flatnonzero(gaps.any(axis=0)).tolist():
                mine = np.flatnonzero(gaps[:, position])
                yield position, rows.start + mine, predict(position, mine)

    def make_predictor(
        self, shown: IntArray, hidden: BoolArray
    ) -> Callable[[int, IntArray], FloatArray]:
        """Return a function that predicts a variable in rows where it is hidden: see `JointPMF.make_predictor`."""
        if self.is_mixture:
            return super().make_predictor(shown, hidden)
        rows, variables = np.nonzero(hidden)
        block = DenseBlock(self.schema.check_codes(shown))
        chances = self.trait_model.predict_cells(block, rows, variables)
        sizes = self.schema.cardinalities
        return lambda position, _: chances[variables == position, : sizes[position]]

    def _condition(self, conditions: Conditions) -> tuple[Any, float]:
        """Condition the states, which are then classes: traits given levels are no longer normal."""
        return JointPMF(self.prior, self.factors, self.schema, self.origin)._condition(conditions)


def score_traits(model: JointPMF, table: object) -> TraitScores:
    """Return the scores of each row on the continuous traits of the model, with standard errors.

    Parameters
    ----------
    model
        A model with traits.
    table
        As for `JointPMF.log_prob`; new rows, and rows with nothing observed, are allowed.

    Returns
    -------
    Scores and errors, (n_rows, n_traits) each; the first trait explains the most variance.

    Raises
    ------
    PmfError
        If the model has no traits.
    """
    if not isinstance(model, TraitPMF):
        raise PmfError(
            "the model has latent states and no traits; fit one that has: pmflib.families.fit_traits(table).model"
        )
    return model.trait_model.score_traits(model.schema.encode(table))
