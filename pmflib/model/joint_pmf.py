"""The fitted joint PMF: marginals, conditions, questions, samples, pictures, and itself on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pmflib.argument_checks import check_whole
from pmflib.arrays import FloatArray, IntArray
from pmflib.displays.summary import Summary
from pmflib.model.marginal_tables import MAX_MARGINAL_CELLS, mix_factors, place_marginal
from pmflib.model.row_predictions import RowPredictions
from pmflib.model.state_conditions import condition_states, find_able_states
from pmflib.model.stored_model import Arrays, read_model, write_model

if TYPE_CHECKING:
    import pyarrow as pa

    from pmflib.counting.pair_counts import PairCounts
    from pmflib.model.reference_scores import ReferenceScores
    from pmflib.plots.drawing import Axes
    from pmflib.questions.answers import Answer
    from pmflib.questions.conditions import Conditions, Given
    from pmflib.questions.evidence import Evidence

Unsupported: TypeAlias = Literal["search", "refits", "jackknife"]
"""What not every model does: the search for the most likely combinations of more variables than can be listed, fits
again without each fold that answers have their standard errors from, and those that are asked for."""


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

    def condition_codes(self, conditions: Conditions) -> tuple[JointPMF, float]:
        """Condition on codes that somebody can have, as `can_meet` says; see `pmflib.questions.conditions.condition`.

        Returns
        -------
        The model given the conditions, and their log-probability, nats.
        """
        prior, factors, log_probability = condition_states(
            self.prior, self.factors, self.schema.offsets, conditions
        )
        return JointPMF(prior, factors, self.schema, self.origin), log_probability

    def can_meet(self, conditions: Conditions) -> bool:
        """Whether anybody can meet some conditions together: their probability is above 0."""
        able = find_able_states(self.prior, self.factors, self.schema.offsets, conditions)
        return bool(able.any())

    def weigh_combinations(self, places: Sequence[int], combinations: IntArray) -> FloatArray:
        """Probabilities of some combinations of codes.

        Parameters
        ----------
        places
            Places of the variables, distinct, at least one.
        combinations
            Codes of shape (n_combinations, n_places).

        Returns
        -------
        float64 of shape (n_combinations,).
        """
        with np.errstate(divide="ignore"):
            logs = np.log(self.prior)[None, :] + sum(
                np.log(self.factor(place))[combinations[:, n]] for n, place in enumerate(places)
            )
        return np.asarray(np.exp(logs).sum(axis=1))

    def iterate_pairs(self, levels: IntArray, offsets: IntArray) -> Iterator[FloatArray]:
        """Joint PMFs of each of some variables with all those after it, a variable at a time.

        Parameters
        ----------
        levels
            int64: places of all levels of these variables, stacked.
        offsets
            int64 of shape (n + 1,): where the levels of each variable begin and end among them.

        Yields
        ------
        For each variable but the last, float64 of shape (cardinality, n_levels of those after it).
        """
        factors = self.factors[levels]
        for begin, end in pairwise(offsets[:-1].tolist()):
            yield (factors[begin:end] * self.prior) @ factors[end:].T

    def edges(self) -> list[tuple[str, str, float]]:
        """Pairs of variables that hang together within states: none, but for a `pmflib.trees.tree_pmf.TreePMF`."""
        return []

    @property
    def unsupported(self) -> Mapping[Unsupported, str]:
        """What the model does not do, with the words of the message that refuses it: nothing, but for forests."""
        return {}

    def summarise_dependence(self) -> dict[str, Any]:
        """What the summary of a fit says of dependence within states, plain JSON types: nothing, but for forests."""
        return {}

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
        check_whole("n_rows", n_rows)
        model = self.condition(given) if given else self
        return model._draw(n_rows, np.random.default_rng(rng))

    def _draw(self, n_rows: int, rng: np.random.Generator) -> IntArray:
        from pmflib.model.sampling import sample_codes

        return sample_codes(self.prior, self.factors, self.schema.offsets, n_rows, rng)

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
        write_model(Path(path), self, *self.list_parts())

    def list_parts(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and attributes of the model's Zarr group, beside those that every model has.

        The arrays are of int32 or float64: what the digest of a model is made of, beside prior, factors and schema.
        """
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
