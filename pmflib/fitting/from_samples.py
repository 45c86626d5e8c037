"""From samples in memory to a model: EM, with what it takes chosen on held-out samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from pmflib.arrays import IntArray, Parameters
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.pair_counts import count_pairs
from pmflib.em.in_memory import Samples
from pmflib.em.loop import EMState
from pmflib.em.members import Runs
from pmflib.errors import ConvergenceWarning, PmfError, SchemaError
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.recipes import (
    Options,
    Recipe,
    find_recipe,
    follow_recipe,
    is_plenty,
)
from pmflib.fitting.starts import Starts
from pmflib.hashing import assign_folds
from pmflib.methods import MEMBER_START_METHODS
from pmflib.model import JointPMF
from pmflib.schema import Schema

N_FOLDS = 5
"""Folds that samples are dealt to where a choice is to be made and no other samples are given; one is held out."""

MIN_SAMPLES = 50
"""Samples below which none are held out by default."""


def fit_em(
    codes: object,
    model: JointPMF | None = None,
    *,
    rank: int | None = None,
    schema: Schema | None = None,
    validation: object | None = None,
    start: str = "auto",
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    max_passes: int = 200,
    tol: float = 1e-6,
    patience: int = 10,
    accelerate: bool = False,
    target: str | int | None = None,
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Refine a model by EM on samples in memory, or fit one of a given rank.

    Of a rank, what is left to "auto", and with members the number of passes, is chosen on held-out samples: those
    given, or else a fifth of the samples, after which all of them are fitted in the way that was best. The notes say
    what was compared.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.
    model
        Start; or give a rank. Without held-out samples it is refined until the objective has converged.
    rank
        Number of latent states, where no model is given.
    schema
        Variables, where no model is given; by default read off the samples.
    validation
        Held-out samples: their log-likelihood chooses the number of passes, and what is left to "auto".
    start
        Where no model is given: a method of `fit`; "auto" compares its methods "auto" and "random" or, for members,
        "pairs" and "random". In small fits it runs several of these until they have converged, and compares the mean of
        their parameters with the best of them.
    pseudo_count
        Mean pseudo-count per level and latent state, in proportion to the marginals; "auto" compares
        ``PSEUDO_COUNTS`` where it can, and else is ``DEFAULT_PSEUDO_COUNT``. Small fits, which do not stop early, take
        the largest that is within one standard error of the best. A state itself gets as many as it has, on average,
        for a variable.
    members
        Number of fits from independent starts to average: their probabilities, which are better than those of any
        single fit. The result is one model of ``members * rank`` states, and final: EM would take it apart. To distil
        it to a smaller one, fit a model to samples drawn from it, with real samples held out.
    max_passes, tol, patience, accelerate
        As in `run_em`.
    target
        Variable, by name or place, that the model is to predict: held-out samples judge by its log-likelihood given
        their other variables, in place of that of all. None is a model of all variables alike.
    rng
        Generator, or a seed for one; only starts use it.

    Returns
    -------
    The model and how it was reached.

    Raises
    ------
    PmfError
        If neither or both of model and rank are given, the model is an average, there are no samples, or an option is
        out of range.
    SchemaError
        If samples do not fit the schema, or it has no such target.

    Warns
    -----
    ConvergenceWarning
        If the loop stops at ``max_passes``.
    """
    _check_options(model, rank, start, members)
    if model is not None:
        schema = model.schema
    elif schema is None:
        schema = _read_off(codes)
    encoded = schema.encode(codes)
    if not len(encoded):
        raise PmfError("codes has no rows; EM needs at least one sample")
    held_out = None if validation is None else schema.encode(validation)
    if held_out is not None and not len(held_out):
        raise PmfError("validation has no rows; leave it out, or hold out at least one sample")
    task = _Task(
        schema=schema,
        rank=model.rank if model is not None else rank or 0,
        options=Options.make("given" if model else start, pseudo_count, members, rank or 1),
        made={} if model is None else {"given": (model.prior, model.factors)},
        seed=int(np.random.default_rng(rng).integers(2**63)),
        limits=_Limits(max_passes, tol, patience, accelerate),
        target=None if target is None else schema.position(target),
    )
    result = _fit_all(task, encoded) if held_out is None else _find(task, encoded, held_out)[1]
    if not result.converged and max_passes > 0:
        warnings.warn(
            f"EM stopped at max_passes={max_passes} before it converged; raise max_passes or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return result


class _Limits(NamedTuple):
    """When the loop stops, and how it steps; as in `run_em`."""

    max_passes: int
    tol: float
    patience: int
    accelerate: bool


@dataclass(frozen=True, eq=False)
class _Task:
    """What was asked for."""

    schema: Schema
    rank: int
    options: Options
    made: Mapping[str, Parameters]
    seed: int
    limits: _Limits
    target: int | None = None

    def prepare(self, codes: IntArray, held_out: IntArray | None = None) -> tuple[Runs, Starts]:
        """Runs on some samples, and starts from their counts."""
        offsets = self.schema.offsets
        counts = count_pairs(codes, self.schema)
        starts = Starts(
            lambda: counts, estimate_singles(counts), offsets, self.rank, self.seed, self.made
        )
        evaluate = Samples(codes, offsets, self.rank).evaluate_each
        judge = None
        if held_out is not None:
            rank = self.rank * self.options.members
            judge = Samples(held_out, offsets, rank, self.target)
        return Runs(evaluate, judge, offsets, starts.singles, *self.limits), starts


def _find(task: _Task, codes: IntArray, held_out: IntArray) -> tuple[Recipe, FitResult]:
    """Fit samples in the way that is best on held-out ones."""
    runs, starts = task.prepare(codes, held_out)
    options = task.options.fit_to(_count_observed(codes), task.rank)
    recipe, model, state = find_recipe(runs, starts, options)
    recipe = replace(recipe, notes=tell_target(task.schema, task.target) + recipe.notes)
    return recipe, report_em(task.schema, recipe, model, state, starts, starts.notes)


def _fit_all(task: _Task, codes: IntArray) -> FitResult:
    """Fit all samples in the way that was best when a fold of them was held out."""
    n_observed = _count_observed(codes)
    recipe, tried = task.options.settle(), None
    if task.options.is_open and not task.made and task.limits.max_passes > 0:
        if len(codes) < MIN_SAMPLES:
            notes: tuple[str, ...] = (f"nothing was held out: {len(codes)} samples are too few",)
        elif is_plenty(n_observed, task.schema.n_levels, task.rank):
            notes = (f"nothing was held out: {n_observed} answers leave nothing to choose",)
        else:
            held = assign_folds(np.arange(len(codes)), N_FOLDS) == 0
            recipe, tried = _find(task, codes[~held], codes[held])
            notes = recipe.notes
        recipe = replace(recipe, notes=notes)
    runs, starts = task.prepare(codes)
    model, state = follow_recipe(recipe, runs, starts)
    result = report_em(task.schema, recipe, model, state, starts, starts.notes)
    return result if tried is None else replace(result, held_out=tried.held_out)


def report_em(
    schema: Schema,
    recipe: Recipe,
    model: Parameters,
    state: EMState,
    starts: Starts,
    notes: tuple[str, ...] = (),
) -> FitResult:
    """Turn the end of an EM loop into a result.

    Parameters
    ----------
    schema
        Variables of the model.
    recipe
        How it was fitted.
    model
        Prior and factors.
    state
        End of the loop.
    starts
        Where it began.
    notes
        Kept in the result, before those of the recipe.
    """
    method = f"{starts.name_methods(method for method, _ in recipe.starts)}+em"
    origin: dict[str, object] = {
        "method": method,
        "passes": state.best_pass,
        "pseudo_count": recipe.pseudo_count,
    }
    if recipe.n_models > 1:
        origin |= {recipe.combination: recipe.n_models}
    if recipe.is_final:
        origin["final"] = True
    return FitResult(
        JointPMF(*model, schema, origin),
        state.loss_history,
        state.held_out or (() if recipe.score is None else (recipe.score,)),
        state.best_pass,
        state.converged or recipe.passes is not None,
        method,
        (*notes, *recipe.notes),
        state.passes_saved,
        recipe.comparisons,
    )


def tell_target(schema: Schema, target: int | None) -> tuple[str, ...]:
    """A note on what held-out samples judge by, where that is a single variable."""
    if target is None:
        return ()
    return (f"held out: log-likelihood of {schema.names[target]!r} given the other variables",)


def check_can_start(model: JointPMF) -> None:
    """Refuse an average as a start of EM.

    Raises
    ------
    PmfError
        If the model is final.
    """
    if model.origin.get("final"):
        raise PmfError(
            f"model is final, an average of {model.origin['average']} fits, which EM would take apart; give a rank, "
            "or fit a model to samples drawn from it"
        )


def _check_options(model: JointPMF | None, rank: int | None, start: str, members: int) -> None:
    if (model is None) == (rank is None):
        raise PmfError(
            f"model is {'absent' if model is None else 'given'} and rank is {rank}; give one of the two"
        )
    if members < 1:
        raise PmfError(f"members is {members}; give at least 1")
    if model is not None:
        check_can_start(model)
        if members > 1:
            raise PmfError(f"members is {members} and a model is given; give a rank instead")
    if members > 1 and start not in ("auto", *MEMBER_START_METHODS):
        raise PmfError(
            f"members is {members} and start is {start!r}, which gives equal starts; use one of "
            f"{('auto', *MEMBER_START_METHODS)}"
        )


def _count_observed(codes: IntArray) -> int:
    return int(np.count_nonzero(codes >= 0))


def _read_off(codes: object) -> Schema:
    if not isinstance(codes, np.ndarray):
        return Schema.infer(codes)
    if codes.ndim != 2 or not codes.size or not np.issubdtype(codes.dtype, np.integer):
        raise SchemaError(
            f"codes is an array of {codes.dtype} of shape {codes.shape}; codes are integers of shape "
            "(n_rows, n_variables), at least one row, -1 where missing"
        )
    # in 64 bits, for 127 + 1 is -128 in 8
    return Schema.from_cardinalities(np.maximum(codes.max(axis=0).astype(np.int64) + 1, 1))
