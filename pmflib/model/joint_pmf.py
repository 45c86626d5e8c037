"""The fitted joint PMF: predictions, questions, figures, saving and loading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.display.summary import Summary
from pmflib.base.errors import PmfError, StoreError
from pmflib.base.methods import load_name
from pmflib.base.variance import Variance
from pmflib.model.mixture import Arrays, Mixture
from pmflib.schema import Schema
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.zarr_arrays import check_expansion, read_arrays, refuse_damage, write_arrays

if TYPE_CHECKING:
    import pyarrow as pa

    from pmflib.answering.answers import Answer, Source
    from pmflib.base.display.drawing import Axes
    from pmflib.families.traits.trait_model import TraitScores
    from pmflib.model.row_scores import ReferenceScores
    from pmflib.surveys.margins.margins import MarginTables

KIND = "joint PMF"
"""Attribute ``kind`` of the Zarr group of a model."""
CLASSES: dict[str, type[JointPMF] | str] = {"tree": "pmflib.families.forests.tree_pmf:TreePMF"}
"""Model classes by the attribute ``dependence`` of their Zarr groups; a class given as ``"module:class"`` is imported
when such a model is first read, and subclasses register themselves on definition."""


@dataclass(frozen=True, eq=False)
class JointPMF(Mixture):
    """The joint distribution of all variables, as a mixture over latent states.

    ``Pr(i_1, ..., i_N) = sum_f prior[f] * prod_n factor(n)[i_n, f]``; the full tensor is never formed.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities that sum to 1.
    factors
        float64 of shape (n_levels, rank): conditional PMFs, stacked; the rows of each variable sum to 1 per column.
    schema
        Variables and their levels.
    origin
        How the model was fitted, as plain JSON types.
    trait_model
        Model of continuous traits that the states discretise: see `pmflib.fit_traits`. Unless the states are quadrature
        points, methods that predict cells of a row (`predict_proba`, `predict`, `expected_value`, `complete`, held-out
        scores) fold the row in, that is, use the posterior of its traits: a hundred ratings determine the traits of a
        person more precisely than the nearest state does. Methods for whole rows or arbitrary events (`log_prob`,
        `posterior`, `marginal`, `condition`, `sample`, questions) use the states: they define a joint distribution, so
        all answers are consistent and sum to 1, unlike approximate integrals over traits. None for a model without
        traits.

    Raises
    ------
    PmfError
        If shapes do not agree, a value is not a probability, or the traits belong to other variables.
    """

    def __init_subclass__(cls, *, dependence: str, **options: Any) -> None:
        """Register a model class by the attribute ``dependence`` of its Zarr groups."""
        super().__init_subclass__(**options)
        CLASSES[dependence] = cls

    def __repr__(self) -> str:
        """Return the sizes of the model and its fitting method."""
        method = f", method {self.origin['method']!r}" if "method" in self.origin else ""
        return f"JointPMF(rank {self.rank}, {self.schema.n_variables} variables, {self.schema.n_levels} levels{method})"

    def summary(self) -> Summary:
        """Return the latent states by size with their distinguishing levels: text in a terminal, HTML in a notebook."""
        from pmflib.model.state_descriptions import summarise_model

        return summarise_model(self)

    def sort_states(self) -> Self:
        """Return the model with its latent states in order of size, the largest first.

        States whose sizes agree to nine decimals are in the descending order of their PMFs, variables by name. The
        states of a model with traits are points of the traits, and keep their order.
        """
        if self.trait_model is not None:
            return self
        names, factors = self.schema.names, self.factors.round(9)
        by_name = sorted(range(len(names)), key=names.__getitem__)
        rows = np.concatenate(
            [np.arange(len(factors))[self.schema.rows_of(each)] for each in by_name]
        )
        order = np.lexsort((*-factors[rows[::-1]], -self.prior.round(9)))
        return self._take_states(order)

    def _take_states(self, order: IntArray) -> Self:
        factors = np.ascontiguousarray(self.factors[:, order])
        return replace(self, prior=self.prior[order], factors=factors)

    def predict(self, table: object, variable: str | int) -> IntArray:
        """Return the most probable code of a variable in each row (MAP) given the others; the first one if tied.

        Returns
        -------
        int64 of shape (n_rows,), in [0, cardinality); `Schema` holds the labels.
        """
        codes: IntArray = self.predict_proba(table, variable).argmax(axis=1)
        return codes

    def rake(self, margins: MarginTables) -> JointPMF:
        """Return the model raked to known margins of the population: the nearest joint PMF that has them.

        Parameters
        ----------
        margins
            Number of each level of some variables, or CSV files: `pmflib.surveys.margins.margins.read_margins`.

        Returns
        -------
        A model with the same states. Each PMF of a variable with a margin is multiplied by one factor for each level,
        and the prior by the sums, so that the joint PMF is the given one times a product of factors of the levels.
        Samples that are asked with it need a design of raked weights: `pmflib.rake`.

        Raises
        ------
        SchemaError
            If a variable or level is unknown, or the model gives a level probability 0 and the margins do not.
        PmfError
            If the model has forests, a margin is of two variables, or the margins cannot be reached.

        References
        ----------
        Csiszár (1975), Annals of Probability 3(1): iterative proportional fitting as a projection.
        """
        from pmflib.surveys.margins.model import rake_factors

        if self.edges():
            raise PmfError(
                "the model has forests, which cannot be raked to margins; rake the samples with pmflib.rake, and fit "
                "with the raked weights"
            )
        raked = rake_factors(self.prior, self.factors, self.schema, margins)
        return JointPMF(*raked, self.schema, {**self.origin, "raked": True})

    def expected_value(self, table: object, variable: str | int) -> FloatArray:
        """Return the expected value of an ordinal variable in each row given the others (MMSE).

        Returns
        -------
        float64 of shape (n_rows,), in the units of the variable's values.

        Raises
        ------
        SchemaError
            If the variable has no values.
        """
        values = self.schema[variable].numeric_values()
        expected: FloatArray = self.predict_proba(table, variable) @ values
        return expected

    def complete(self, table: object) -> IntArray:
        """Fill every missing cell with its most probable code given the observed cells of the row, each separately.

        Returns
        -------
        The schema's dtype, shape (n_rows, n_variables), no -1 left; observed cells keep their code.
        """
        filled: IntArray = self.schema.encode(table).copy()
        # a copy, because filled cells must not count as observed
        for position, rows, chances in self.predict_gaps(filled.copy()):
            filled[rows, position] = chances.argmax(axis=1)
        return filled

    def traits(self, table: object) -> TraitScores:
        """Return the scores of each row on the continuous traits of the model, with standard errors.

        Parameters
        ----------
        table
            As for `log_prob`; new rows, and rows with nothing observed, are allowed.

        Returns
        -------
        Scores and errors, (n_rows, n_traits) each; the first trait explains the most variance.

        Raises
        ------
        PmfError
            If the model has no traits.
        """
        if self.trait_model is None:
            raise PmfError(
                "the model has latent states and no traits; fit one that has: pmflib.fit_traits(table).model"
            )
        return self.trait_model.score_traits(self.schema.encode(table))

    def edges(self) -> list[tuple[str, str, float]]:
        """Return the pairs of variables that are dependent within states; empty unless the model has forests."""
        return []

    def summarise_dependence(self) -> dict[str, object]:
        """Return the dependence within states for the summary of a fit, JSON types; empty unless it has forests."""
        return {}

    def score(
        self,
        table: object,
        targets: Sequence[str] = (),
        *,
        reference: ReferenceScores | None = None,
        probabilities: bool = False,
    ) -> pa.Table:
        """Score rows: log-probability, anomaly score, the least expected cell, and predictions of target variables.

        Parameters
        ----------
        table
            As for `log_prob`.
        targets
            Names of variables to predict from the others.
        reference
            Reference scores for the percentiles, as loaded by `pmflib.model.row_scores.ReferenceScores`; by default
            those of samples drawn from the model.
        probabilities
            Whether to return the probability of every level of a target as well.

        Returns
        -------
        Arrow table with the columns of `pmflib.apps.scoring.score_tables.TableScorer.score`, one row per input row.

        Raises
        ------
        SchemaError
            If the table does not fit the schema, or a target is not a variable.
        """
        from pmflib.apps.scoring.score_tables import TableScorer
        from pmflib.model.row_scores import ReferenceScores
        from pmflib.model.table_makers import ScoreOptions

        codes = self._encode(table)
        reference = ReferenceScores.draw(self) if reference is None else reference
        return TableScorer(self, reference, ScoreOptions(tuple(targets), probabilities)).score(
            codes
        )[0]

    def ask(
        self,
        question: str,
        data: object = None,
        *,
        top: int = 5,
        source: Source = "both",
        level: float = 0.95,
        design: Variance | None = None,
        shift: float | None = None,
    ) -> Answer:
        """Answer a question given as text, such as ``P(label=e | odor=f)``: see `pmflib.answering.ask`."""
        from pmflib.answering.answering import ask

        return ask(
            self, question, data, top=top, source=source, level=level, design=design, shift=shift
        )

    def plot_states(self, **options: Any) -> Axes:
        """Draw the distinguishing levels of the states: see `pmflib.model.figures.plot_states`."""
        from pmflib.model.figures import plot_states

        return plot_states(self, **options)

    def plot_profiles(self, **options: Any) -> Axes:
        """Draw the level probabilities of each state, with intervals: see `pmflib.model.figures.plot_profiles`."""
        from pmflib.model.figures import plot_profiles

        return plot_profiles(self, **options)

    def plot_traits(self, table: object, **options: Any) -> Axes:
        """Draw people's scores on a trait: see `pmflib.model.figures.plot_traits`."""
        from pmflib.model.figures import plot_traits

        found = self.traits(table)
        codes = self.schema.encode(table)
        return plot_traits(self.schema, codes, found.scores, found.errors, **options)

    def plot_associations(self, **options: Any) -> Axes:
        """Draw the most strongly associated pairs: see `pmflib.model.figures.plot_associations`."""
        from pmflib.model.figures import plot_associations

        return plot_associations(self, **options)

    def plot_marginal(self, variable: str | int, **options: Any) -> Axes:
        """Draw the PMF of a variable: see `pmflib.model.figures.plot_marginal`."""
        from pmflib.model.figures import plot_marginal

        return plot_marginal(self, variable, **options)

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group that `load` can read; the folder must not exist."""
        own: Arrays = {
            "prior": (self.prior, ("state",)),
            "factors": (self.factors, ("level", "state")),
            "offsets": (self.schema.offsets, ("variable_edge",)),
        }
        metadata = {
            "kind": KIND,
            "units": "probability",
            "schema": self.schema.to_json(),
            "origin": dict(self.origin),
        }
        arrays, attributes = self.list_parts()
        write_arrays(Path(path), own | arrays, metadata | attributes)

    @classmethod
    def load(cls, path: str | Path) -> JointPMF:
        """Read a model written by `save`, with or without forests, from a folder or the URL of an object store.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or not a model.
        """
        folder = find_local_path(path)
        check_expansion(folder)
        _, attributes = read_arrays(folder, [], kind=KIND)
        with refuse_damage(folder):
            dependence = attributes.get("dependence")
            found = JointPMF if dependence is None else CLASSES.get(dependence)
            if found is None:
                raise StoreError(
                    f"{str(path)!r} holds a model of dependence {dependence!r}, which is not known here; read it with "
                    "the version that wrote it"
                )
            kind: type[JointPMF] = load_name(found) if isinstance(found, str) else found
            schema, origin = Schema.from_json(attributes["schema"]), dict(attributes["origin"])
            return kind.read_parts(folder, schema, origin, attributes)

    @classmethod
    def read_parts(
        cls, folder: Path, schema: Schema, origin: dict[str, Any], attributes: Mapping[str, Any]
    ) -> JointPMF:
        """Read the parts that `list_parts` describes from a folder, and return a model of this class."""
        arrays, _ = read_arrays(folder, ["prior", "factors"], kind=KIND)
        traits = None
        if "n_traits" in attributes:
            from pmflib.families.traits.trait_model import TraitModel

            traits = TraitModel.load(folder, schema, bool(attributes.get("is_quadrature")))
        return JointPMF(arrays["prior"], arrays["factors"], schema, origin, traits)
