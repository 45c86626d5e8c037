"""Latent transition models: states of people in waves, the answers they give there, and the moves between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks
from pmflib.base.blocks import DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.constraints import NONNEGATIVE, Interval, check, check_entries, check_shapes
from pmflib.base.display.summary import (
    Summarised,
    Summary,
    SummaryTable,
    cut,
    format_count,
    percent,
)
from pmflib.base.errors import MissingMethodError, PmfError
from pmflib.families.panels.chains import Chain, ChainLayout
from pmflib.families.panels.waves import Waves
from pmflib.model.joint_pmf import JointPMF, find_methods
from pmflib.model.mixture import BATCH_ROWS
from pmflib.model.origin import ModelOrigin
from pmflib.model.predictor import Predictor
from pmflib.model.state_descriptions import tabulate_states
from pmflib.schema import Schema
from pmflib.store.array_groups import check_expansion, read_arrays, refuse_damage
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.zarr_arrays import write_arrays

KIND = "transition model"
"""Attribute ``kind`` of the Zarr group of a model."""
MOST_STATES = 12
"""Number of states up to which a summary has a table of their transitions."""


@dataclass(frozen=True, eq=False)
class TransitionModel(Predictor, Summarised):
    """A hidden Markov model of panel data: each person is in a latent state in every wave.

    Answers of a wave are independent given the state in that wave; the state depends on the one before. Persons may
    miss waves and answers, which are summed out exactly. With one wave the model is a latent class model.

    Parameters
    ----------
    initial
        float64 of shape (n_states,): shares of the states in the first wave.
    transitions
        float64 of shape (n_waves - 1, n_states, n_states): ``transitions[w, s, t]`` is the probability of state t in
        wave w + 1 given state s in wave w; rows sum to 1.
    emissions
        float64 of shape (n_levels, n_states): PMFs of all variables given the state in their wave, stacked.
    schema
        Variables, one for each question and wave.
    waves
        Variables of each wave.
    homogeneous
        Whether all transition matrices are equal by construction.
    invariant
        Whether a question has equal PMFs in all waves by construction.
    origin
        How the model was fitted: a `pmflib.model.origin.ModelOrigin`, or its facts by name, plain JSON types.

    Raises
    ------
    PmfError
        If shapes do not agree, or PMFs do not sum to 1.
    """

    initial: FloatArray
    transitions: FloatArray
    emissions: FloatArray
    schema: Schema
    waves: Waves
    homogeneous: bool = True
    invariant: bool = True
    origin: ModelOrigin = field(default_factory=ModelOrigin)

    kind: ClassVar[str] = "panels"
    instead: ClassVar[str] = (
        "a latent transition model, whose states change from wave to wave; model.wave(0) is the joint PMF of a wave"
    )
    """What is said where a joint PMF is needed: see `pmflib.base.arrays.check_model_type`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse what only a joint PMF has, its offered methods included."""
            is_joint = hasattr(JointPMF, name) or name in JointPMF.__dataclass_fields__
            if not name.startswith("_") and (is_joint or name in find_methods()):
                raise MissingMethodError(
                    f"only a joint PMF has {name!r}, and this is {self.instead}"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", ModelOrigin.of(self.origin))
        rank, n_waves = self.initial.size, self.waves.n_waves
        expected = ((rank,), (n_waves - 1, rank, rank), (self.schema.n_levels, rank))
        for name, values, shape in zip(Chain._fields, self.chain, expected, strict=True):
            check_shapes("", PmfError, **{name: (values, shape)})
            check_entries(NONNEGATIVE, **{name: values})
        sums = [self.initial.sum(), *self.transitions.sum(axis=2).ravel()]
        sums += [*sum_blocks(self.emissions, self.schema.offsets).ravel()]
        if np.abs(np.array(sums) - 1).max() > 1e-6:
            raise PmfError("initial, transitions or emissions do not sum to 1; normalise them")

    def __repr__(self) -> str:
        """Return the sizes of the model."""
        return f"TransitionModel({self.n_states} states, {self.n_waves} waves, {self.schema.n_variables} variables)"

    @property
    def chain(self) -> Chain:
        """Initial shares, transitions and emissions."""
        return Chain(self.initial, self.transitions, self.emissions)

    @property
    def layout(self) -> ChainLayout:
        """Tables of the model."""
        return ChainLayout.make(self.schema, self.waves, self.homogeneous, self.invariant)

    @property
    def n_states(self) -> int:
        """Number of latent states."""
        return self.initial.size

    @property
    def n_waves(self) -> int:
        """Number of waves."""
        return self.waves.n_waves

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: of the initial shares, and of every distinct transition matrix and PMF."""
        offsets = self.layout.find_offsets(self.n_states)
        return self.n_states - 1 + self.n_states * int((np.diff(offsets) - 1).sum())

    @property
    def shares(self) -> FloatArray:
        """Shares of the states in every wave: float64 of shape (n_waves, n_states)."""
        found = [self.initial]
        for moves in self.transitions:
            found.append(found[-1] @ moves)
        return np.array(found)

    def sort_states(self) -> Self:
        """Return the model with its states by their mean share over waves, the largest first."""
        order = np.argsort(-self.shares.mean(axis=0).round(9), kind="stable")
        return replace(self, **self.chain.take_states(order)._asdict())

    def wave(self, wave: int) -> JointPMF:
        """Return the joint PMF of the answers in one wave: latent classes with the shares of the states there.

        Parameters
        ----------
        wave
            Number of the wave, from 0.

        Raises
        ------
        PmfError
            If there is no such wave, or nothing was asked in it.
        """
        self._check_wave(wave, self.n_waves)
        return self._take_variables(self.waves.positions[wave], self.shares[wave])

    def _take_variables(self, positions: IntArray, prior: FloatArray) -> JointPMF:
        kept = positions[positions >= 0].tolist()
        if not kept:
            raise PmfError("the wave has no variables; take one in which something was asked")
        rows = np.concatenate([self.emissions[self.schema.rows_of(at)] for at in kept])
        own = Schema(tuple(self.schema[at] for at in kept), missing=self.schema.missing)
        return JointPMF(prior / prior.sum(), rows, own, self.origin)

    def _check_wave(self, wave: object, n_waves: int) -> None:
        wanted = Interval(0, n_waves - 1, whole=True, hint="waves are counted from 0")
        check(wanted, wave=wave)

    def log_prob(self, table: object) -> FloatArray:
        """Return the log-probability of the observed cells of each person.

        Parameters
        ----------
        table
            `Codes` of shape (n_rows, n_variables), -1 missing, or a table that the schema can encode; a row per person.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed.

        Raises
        ------
        SchemaError
            If the table does not fit the schema.
        """
        return self.layout.score(DenseBlock(self.schema.encode(table)), self.chain)

    def posterior(self, table: object) -> FloatArray:
        """Return the posteriors of the states in every wave, given the answers of all waves.

        Returns
        -------
        float64 of shape (n_rows, n_waves, n_states), sums of 1; the shares for a row with nothing observed.
        """
        block = DenseBlock(self.schema.encode(table))
        posteriors = np.empty((len(block), self.n_waves, self.n_states))
        self.layout.score(block, self.chain, posteriors)
        return posteriors

    def predict_states(self, table: object) -> IntArray:
        """Return the most probable path of states of each person, by Viterbi's algorithm.

        Returns
        -------
        int64 of shape (n_rows, n_waves). The path as a whole is the most probable one; the most probable state of each
        wave by itself is ``posterior(table).argmax(axis=2)``.

        References
        ----------
        Viterbi (1967), IEEE Transactions on Information Theory 13(2).
        """
        return self.layout.find_paths(DenseBlock(self.schema.encode(table)), self.chain)

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """Return the PMF of a variable for each person, given all other answers, before and after its wave.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1; the column of the variable itself may be absent.
        """
        position = self.schema.position(variable)
        codes = self.schema.encode(table, hidden=self.schema.names[position])
        wave = int(self.waves.find_places(self.schema)[0][position])
        factor = self.emissions[self.schema.rows_of(position)]
        return _mix(self.posterior(codes)[:, wave], factor.T)

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield the PMFs of all missing cells, given the answers of all waves: see `Predictor.predict_gaps`."""
        waves = self.waves.find_places(self.schema)[0]
        for start in range(0, len(codes), BATCH_ROWS):
            part = codes[start : start + BATCH_ROWS]
            posteriors = self.posterior(Codes(part))
            for position in np.flatnonzero((part < 0).any(axis=0)).tolist():
                rows = np.flatnonzero(part[:, position] < 0)
                factor = self.emissions[self.schema.rows_of(position)]
                yield position, start + rows, _mix(posteriors[rows, waves[position]], factor.T)

    def forecast(self, table: object, wave: int | None = None) -> dict[str, FloatArray]:
        """Return the PMFs of the answers in a wave for each person, given the answers in the waves before it.

        Parameters
        ----------
        table
            As for `log_prob`; answers in this wave and later ones are not used.
        wave
            Number of the wave, from 0; by default the wave after the last, for which the last transitions and the PMFs
            of the questions are taken to hold on.

        Returns
        -------
        float64 of shape (n_rows, cardinality) by variable of that wave; for the wave after the last, by variable of the
        first wave that has the question.

        Raises
        ------
        PmfError
            If there is no such wave, or it is the one after the last of a model with one wave, or whose transitions or
            measurement are not equal in all waves.
        """
        wave = self.n_waves if wave is None else wave
        self._check_wave(wave, self.n_waves + 1)
        codes = self.schema.encode(table).copy()
        codes[:, self.waves.find_places(self.schema)[0] >= wave] = -1
        if wave < self.n_waves:
            states, positions = self.posterior(codes)[:, wave], self.waves.positions[wave]
        else:
            if not (self.homogeneous and self.invariant) or self.n_waves == 1:
                raise PmfError(
                    f"wave is {wave}, after the last; the model has one wave, or other transitions or PMFs in each: "
                    "fit two waves or more with homogeneous=True and invariant=True"
                )
            states = _mix(self.posterior(codes)[:, -1], self.transitions[-1])
            positions = self.waves.first_positions
        kept = [self.schema[at] for at in positions[positions >= 0].tolist()]
        return {
            each.name: _mix(states, self.emissions[self.schema.rows_of(each.name)].T)
            for each in kept
        }

    def sample(self, n_rows: int, rng: np.random.Generator | int) -> Codes:
        """Draw people from the model.

        Returns
        -------
        `Codes` of the schema's dtype, shape (n_rows, n_variables), nothing missing.
        """
        check(Interval(whole=True), n_rows=n_rows)
        rng = np.random.default_rng(rng)
        codes = np.empty((n_rows, self.schema.n_variables), self.schema.code_dtype)
        states = np.zeros(n_rows, np.int64)
        for wave, positions in enumerate(self.waves.positions):
            moves = self.transitions[wave - 1] if wave else self.initial[None]
            states = _draw(moves[states], rng)
            for position in positions[positions >= 0].tolist():
                factor = self.emissions[self.schema.rows_of(position)]
                codes[:, position] = _draw(factor.T[states], rng)
        return Codes(codes)

    def summary(self) -> Summary:
        """Return the states with what distinguishes them, their shares by wave, and the transitions."""
        facts = (
            ("waves", format_count(self.n_waves)),
            ("variables", format_count(self.schema.n_variables)),
            ("latent states", format_count(self.n_states)),
            ("free parameters", format_count(self.n_parameters)),
            ("transitions", "equal between all waves" if self.homogeneous else "free"),
            ("measurement", "equal in all waves" if self.invariant else "free"),
        )
        most = slice(min(self.n_states, MOST_STATES))
        of_state = [f">state {state}" for state in range(most.stop)]
        names = [cut(next(filter(None, own), "")) for own in self.waves.names]
        rows = [
            (f"{wave} ({names[wave]})", *map(percent, own[most]))
            for wave, own in enumerate(self.shares.tolist())
        ]
        moves = [
            (
                "any" if self.homogeneous else f"{wave} to {wave + 1}",
                f"state {state}",
                *(f"{each:.3f}" for each in self.transitions[wave, state, most]),
            )
            for wave in range(self.layout.n_matrices)
            for state in range(most.stop)
        ]
        title = "Shares of the states by wave"
        tables = [SummaryTable(title, ("wave", *of_state), rows, len(rows), "model.shares")]
        title = "Transitions: probability of the state in the next wave"
        columns = ("waves", "from", *of_state)
        tables += [SummaryTable(title, columns, moves, len(moves), "model.transitions")]
        pooled = self._take_variables(self.waves.first_positions, self.shares.mean(axis=0))
        headline = f"Latent transitions of {self.n_states} states over {self.n_waves} waves"
        return Summary(headline, facts, (), (tabulate_states(pooled), *tables[: 1 + bool(moves)]))

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group that `load` can read; the folder must not exist."""
        dims = ("state",), ("step", "state", "next_state"), ("level", "state")
        arrays = dict(zip(Chain._fields, zip(self.chain, dims, strict=True), strict=True))
        attributes = {
            "kind": KIND,
            "units": "probability",
            "schema": self.schema.to_json(),
            "waves": [list(own) for own in self.waves.names],
            "homogeneous": self.homogeneous,
            "invariant": self.invariant,
            "origin": dict(self.origin),
        }
        write_arrays(Path(path), arrays, attributes)

    @classmethod
    def load(cls, path: str | Path) -> TransitionModel:
        """Read a model written by `save`, from a folder or the URL of an object store.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or not a transition model.
        """
        folder = find_local_path(path)
        check_expansion(folder)
        arrays, attributes = read_arrays(folder, list(Chain._fields), kind=KIND)
        with refuse_damage(folder):
            schema = Schema.from_json(attributes["schema"])
            waves = Waves.find(schema, attributes["waves"])
            chain = Chain(*(arrays[name] for name in Chain._fields))
            is_equal = bool(attributes["homogeneous"]), bool(attributes["invariant"])
            return cls(*chain, schema, waves, *is_equal, ModelOrigin.read(attributes["origin"]))


def _mix(states: FloatArray, pmfs: FloatArray) -> FloatArray:
    """Average PMFs (n_states, n) by shares (n_rows, n_states); not by BLAS, whose last bits depend on threads."""
    parts = (shares[:, None] * own for shares, own in zip(states.T, pmfs, strict=True))
    return np.asarray(sum(parts))


def _draw(pmfs: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a position from each row of PMFs."""
    edges = np.cumsum(pmfs, axis=1)
    return np.asarray((rng.random((len(pmfs), 1)) * edges[:, -1:] >= edges[:, :-1]).sum(axis=1))
