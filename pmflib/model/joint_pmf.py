"""The fitted joint PMF: marginals, conditions, questions, samples, pictures, and itself on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.argument_checks import check_whole
from pmflib.arrays import FloatArray, IntArray
from pmflib.displays.summary import Summary
from pmflib.model.marginal_tables import MAX_MARGINAL_CELLS, mix_factors, place_marginal
from pmflib.model.row_predictions import RowPredictions
from pmflib.model.stored_model import Arrays, read_model, write_model

if TYPE_CHECKING:
    import pyarrow as pa

    from pmflib.counting.pair_counts import PairCounts
    from pmflib.model.reference_scores import ReferenceScores
    from pmflib.plots.drawing import Axes
    from pmflib.questions.answers import Answer
    from pmflib.questions.conditions import Given
    from pmflib.questions.evidence import Evidence


@dataclass(frozen=True, eq=False)
class JointPMF(RowPredictions):
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
        Facts on how the model was fitted, plain JSON types.
    trait_model
        Model of continuous traits whose states these are: see `pmflib.fit_traits`. What predicts cells of a row
        (`predict_proba`, `predict`, `expected_value`, `complete`, held-out scores) then folds the row in, which is
        exact where the states are a grid: the traits of a person with a hundred ratings are known better than to the
        nearest state. What asks about all rows or about any event (`log_prob`, `posterior`, `marginal`, `condition`,
        `sample`, questions) takes the states: they are a joint distribution, so that all answers agree with each other
        and sum to 1, which approximate integrals over traits would not. None where the model has no traits.

    Raises
    ------
    PmfError
        If shapes do not agree, something is no probability, or the traits are those of other variables.
    """

    def __repr__(self) -> str:
        """Sizes, and the method that fitted it."""
        method = f", method {self.origin['method']!r}" if "method" in self.origin else ""
        return f"JointPMF(rank {self.rank}, {self.schema.n_variables} variables, {self.schema.n_levels} levels{method})"

    def summary(self) -> Summary:
        """Latent states by size with what distinguishes each: text in a terminal, HTML in a notebook."""
        from pmflib.displays.model_summary import summarise_model

        return summarise_model(self)

    def score(
        self,
        table: object,
        targets: Sequence[str] = (),
        *,
        reference: ReferenceScores | None = None,
        probabilities: bool = False,
    ) -> pa.Table:
        """Score rows: how probable, how unusual, which cell is least expected, what the others say of some variables.

        Parameters
        ----------
        table
            As for `log_prob`.
        targets
            Names of variables to predict from the others.
        reference
            Scores that percentiles refer to, as `pmflib.model.reference_scores.ReferenceScores` reads them; by default
            those of samples drawn from the model.
        probabilities
            Whether the probability of every level of a target is wanted, too.

        Returns
        -------
        Arrow table with the columns of `pmflib.model.score_tables.TableScorer.score`, a row per row.

        Raises
        ------
        SchemaError
            If the table does not fit the schema, or a target is no variable.
        """
        from pmflib.model.reference_scores import ReferenceScores
        from pmflib.model.score_tables import TableScorer, Wanted

        codes = self._encode(table)
        reference = ReferenceScores.draw(self) if reference is None else reference
        return TableScorer(self, reference, Wanted(tuple(targets), probabilities)).score(codes)[0]

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Joint PMF of some variables, possibly given levels of others.

        Parameters
        ----------
        variables
            Names or places, distinct, at least one.
        given
            Level of other variables: a label, a code, or a collection of these, of which a row has one.

        Returns
        -------
        float64 with one axis per variable, of its cardinality, in the order of ``variables``; sums to 1.

        Raises
        ------
        SchemaError
            If a variable or level is unknown, or occurs twice.
        PmfError
            If what is given has probability 0.
        MemoryPlanError
            If the table would have more than ``MAX_MARGINAL_CELLS`` cells.
        """
        places = place_marginal(self.schema, variables, given, MAX_MARGINAL_CELLS)
        prior = self.condition(given).prior if given else self.prior
        return mix_factors(prior, [self.factor(place) for place in places])

    def condition(self, given: Given) -> JointPMF:
        """Model of those who have some levels: again a joint PMF of all variables.

        Parameters
        ----------
        given
            As for `marginal`.

        Returns
        -------
        The model, of the same states and schema; the variables that are given have the given levels alone.

        Raises
        ------
        SchemaError
            If a variable or level is unknown.
        PmfError
            If nobody can have these levels: they have probability 0.
        """
        from pmflib.questions.conditions import condition, encode_conditions

        return condition(self, encode_conditions(self.schema, given))[0]

    def ask(
        self, question: str, counts: PairCounts | Evidence | None = None, *, top: int = 5
    ) -> Answer:
        """Answer a question in words, such as ``P(label=e | odor=f)``: see `pmflib.questions.ask`."""
        from pmflib.questions.answering import ask

        return ask(self, question, counts, top=top)

    def sample(
        self, n_rows: int, rng: np.random.Generator | int, *, given: Given | None = None
    ) -> IntArray:
        """Draw samples.

        Parameters
        ----------
        n_rows
            Number of samples, at least 0.
        rng
            Generator, or a seed for one.
        given
            Levels that all of them have, as for `marginal`; None is no condition.

        Returns
        -------
        The schema's dtype, shape (n_rows, n_variables), nothing missing; `Schema.decode` gives labels.

        Raises
        ------
        SchemaError, PmfError
            As `condition` does.
        """
        from pmflib.model.sampling import sample_codes

        check_whole("n_rows", n_rows)
        model = self.condition(given) if given else self
        generator = np.random.default_rng(rng)
        return sample_codes(model.prior, model.factors, self.schema.offsets, n_rows, generator)

    def plot_states(self, **options: Any) -> Axes:
        """Draw what distinguishes the states: see `pmflib.plots.model_plots.plot_states`."""
        from pmflib.plots.model_plots import plot_states

        return plot_states(self, **options)

    def plot_traits(self, table: object, **options: Any) -> Axes:
        """Draw people's scores on a trait: see `pmflib.plots.trait_plots.plot_traits`."""
        from pmflib.plots.trait_plots import plot_traits

        return plot_traits(self, table, **options)

    def plot_associations(self, **options: Any) -> Axes:
        """Draw the pairs that go together most: see `pmflib.plots.model_plots.plot_associations`."""
        from pmflib.plots.model_plots import plot_associations

        return plot_associations(self, **options)

    def plot_marginal(self, variable: str | int, **options: Any) -> Axes:
        """Draw the PMF of a variable: see `pmflib.plots.model_plots.plot_marginal`."""
        from pmflib.plots.model_plots import plot_marginal

        return plot_marginal(self, variable, **options)

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group, which `load` reads; the folder must not exist."""
        write_model(Path(path), self, *self._list_parts())

    def _list_parts(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and attributes of the model's Zarr group, beside those that every model has."""
        if self.trait_model is None:
            return {}, {}
        return self.trait_model.to_arrays(), {"n_traits": self.trait_model.n_traits}

    @classmethod
    def load(cls, path: str | Path) -> JointPMF:
        """Read a model that `save` wrote, with or without forests, from a folder or a store in a bucket by its URL.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        return read_model(path)
