"""From counts to a model, and from samples in memory to a refined one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.choosing import MAX_GROUPS, fit_chosen
from pmflib.counts import PairCounts, count_pairs
from pmflib.duplicates import merge_duplicates
from pmflib.em import EMStatistics, Smoothing, em_statistics, take_logs
from pmflib.em_loop import EMState, Evaluate, open_start, run_em
from pmflib.errors import ConvergenceWarning, PmfError, RankError, SchemaError
from pmflib.marginals import Marginals, estimate_singles
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.solvers.composite import fit_composite
from pmflib.solvers.mirror import fit_mirror
from pmflib.solvers.random_start import start_random
from pmflib.solvers.result import SolverResult
from pmflib.solvers.spa import fit_spa
from pmflib.solvers.symnmf import fit_symnmf

Method = Literal["auto", "spa", "opt", "mirror", "symnmf", "random"]

AUTO_SMOOTHING = 1.0
"""Mean pseudo-count per level and latent state when none is asked for."""


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model and how it was reached.

    Parameters
    ----------
    model
        The fitted joint PMF.
    loss_history
        What the method lowers, per iteration or pass; never rises. For a fit of counts the mean KL divergence over
        the observed pairs, nats, with the pseudo-counts' share (auto), or the root mean square error of the pairs
        (symnmf); for EM minus the penalised log-likelihood per sample, nats.
    held_out
        Held-out log-likelihood per sample, nats, after each pass; empty without held-out samples.
    best_pass
        Pass after which the model stood (EM), or the number of iterations.
    converged
        Whether the method met its tolerance.
    method
        What made the model.
    notes
        What a careful user should know.
    passes_saved
        Passes that acceleration has saved, by the estimate of `pmflib.squarem`; 0 without it.
    """

    model: JointPMF
    loss_history: tuple[float, ...]
    held_out: tuple[float, ...]
    best_pass: int
    converged: bool
    method: str
    notes: tuple[str, ...] = ()
    passes_saved: float = 0.0


def fit(
    counts: PairCounts,
    rank: int,
    *,
    method: Method = "auto",
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit a model to pairwise co-occurrence counts; the cost does not depend on the number of samples.

    Parameters
    ----------
    counts
        Co-occurrence counts; "auto" holds folds out to choose, the other methods add them up.
    rank
        Number of latent states, at least 1.
    method
        "auto": several starts and pseudo-counts, judged on held-out folds, then the pairwise composite likelihood;
        the notes say what was chosen and why. "spa": CNMF-SPA. "opt": CNMF-OPT from spa, by closed-form updates.
        "mirror": CNMF-OPT as published, slow. "symnmf": symmetric NMF. "random": the marginals, shaken, as a start
        for EM. Where the counts cannot carry the rank, opt and mirror start at random.
    rng
        Generator, or a seed for one; spa does not use it.

    Returns
    -------
    The model and how it was reached. With pseudo-counts the loss holds their share too.

    Raises
    ------
    RankError
        If the rank is below 1, or (spa, symnmf) above what the variables and their counts can carry.
    PmfError
        If the method is not known, or there is a single variable and the method is neither auto nor random.

    Warns
    -----
    ConvergenceWarning
        If opt, mirror or symnmf stop at their limit of iterations; auto only says so in its result.

    References
    ----------
    Ibrahim, Fu (2021), "Recovering joint probability of discrete random variables from pairwise marginals".
    """
    if rank < 1:
        raise RankError(f"rank is {rank}; give at least 1")
    if method not in get_args(Method):
        raise PmfError(f"method is {method!r}; give one of {get_args(Method)}")
    generator = np.random.default_rng(rng)
    if method == "random":
        return _start_at_random(counts, rank, generator, ())
    if counts.schema.n_variables == 1:
        if method != "auto":
            raise PmfError(
                f"method is {method!r}, and a single variable has no pairs; use 'random'"
            )
        lone = "random start: a single variable has no pairs"
        return _start_at_random(counts, rank, generator, (lone,))
    if method == "auto" and rank > 1:
        found, choice = fit_chosen(counts, rank, generator)
        return _report(found, counts, f"{choice.start}+opt", choice.notes)
    # one state is the single marginals, whatever the method
    found, notes = _fit_pairs(Marginals.from_counts(counts), counts, rank, method, generator)
    if not found.converged:
        warnings.warn(
            f"{method} stopped after {found.n_iter} iterations before it converged; use 'auto', or go "
            "on from its model with EM",
            ConvergenceWarning,
            stacklevel=2,
        )
    return _report(found, counts, "spa" if method == "auto" else method, notes)


def _fit_pairs(
    marginals: Marginals, counts: PairCounts, rank: int, method: str, rng: np.random.Generator
) -> tuple[SolverResult, tuple[str, ...]]:
    """Run one pairwise solver."""
    data = marginals.pairs, marginals.offsets, marginals.observed
    if method == "symnmf":
        found = fit_symnmf(*data, rank=rank, rng=rng)
        return found, found.notes
    notes: tuple[str, ...] = ()
    try:
        begun = fit_spa(*data, rank=rank)
        initial, notes = (begun.prior, begun.factors), begun.notes
    except RankError as error:
        if method in ("spa", "auto"):
            raise
        singles = estimate_singles(counts)
        initial = start_random(singles, marginals.offsets, rank=rank, rng=rng)
        notes = (f"random start, because spa cannot: {error}",)
    else:
        if method in ("spa", "auto"):
            return begun, notes
    if method == "mirror":
        # as released: the prior of the synthetic experiments is uniform, and so is its start
        found = fit_mirror(*data, initial=(np.full(rank, 1 / rank), initial[1]))
    else:
        found = fit_composite(*data, initial=initial, max_iter=2000)
    return found, (*notes, *found.notes)


def _start_at_random(
    counts: PairCounts, rank: int, rng: np.random.Generator, notes: tuple[str, ...]
) -> FitResult:
    singles = estimate_singles(counts)
    prior, factors = start_random(singles, counts.schema.offsets, rank=rank, rng=rng)
    return _report(SolverResult(prior, factors, (), 0, True), counts, "random", notes)


def _report(
    found: SolverResult, counts: PairCounts, method: str, notes: tuple[str, ...]
) -> FitResult:
    model = JointPMF(found.prior, found.factors, counts.schema, {"method": method})
    return FitResult(model, found.loss_history, (), found.n_iter, found.converged, method, notes)


def choose_smoothing(strength: float | Literal["auto"]) -> float:
    """Pseudo-count per level that "auto" stands for, or the number given."""
    return AUTO_SMOOTHING if strength == "auto" else strength


def finish_em(
    state: EMState, schema: Schema, *, start: str, max_passes: int, notes: tuple[str, ...] = ()
) -> FitResult:
    """Turn the end of the EM loop into a result; warn if it stopped at its limit of passes.

    Parameters
    ----------
    state
        End of `run_em`.
    schema
        Variables of the model.
    start
        Method that made the start.
    max_passes
        Limit that the loop ran under.
    notes
        Kept in the result.
    """
    if not state.converged and max_passes > 0:
        warnings.warn(
            f"EM stopped at max_passes={max_passes} before it converged; raise max_passes or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    prior = state.prior if state.best_prior is None else state.best_prior
    factors = state.factors if state.best_factors is None else state.best_factors
    method = f"{start}+em"
    model = JointPMF(prior, factors, schema, {"method": method, "passes": state.best_pass})
    return FitResult(
        model,
        state.loss_history,
        state.held_out,
        state.best_pass,
        state.converged,
        method,
        notes,
        state.passes_saved,
    )


def fit_em(
    codes: object,
    model: JointPMF | None = None,
    *,
    rank: int | None = None,
    schema: Schema | None = None,
    validation: object | None = None,
    smoothing: float | Literal["auto"] = "auto",
    max_passes: int = 200,
    tol: float = 1e-6,
    patience: int = 10,
    accelerate: bool = False,
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Refine a model by EM on samples in memory, or fit one of a given rank.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.
    model
        Start; or give a rank, and the start comes from the samples' own counts (`fit`, method "auto").
    rank
        Number of latent states, where no model is given.
    schema
        Variables, where no model is given; by default read off the samples.
    validation
        Held-out samples: their log-likelihood chooses the number of passes.
    smoothing
        Mean pseudo-count per level and latent state, shaped by the marginals; "auto" is ``AUTO_SMOOTHING``. A state
        itself gets as many as it has, on average, for a variable.
    max_passes, tol, patience, accelerate
        As in `run_em`.
    rng
        Generator, or a seed for one; only a start from counts uses it.

    Returns
    -------
    The model and how it was reached.

    Raises
    ------
    PmfError
        If neither or both of model and rank are given, there are no samples, or an option is out of range.
    SchemaError
        If samples do not fit the schema.

    Warns
    -----
    ConvergenceWarning
        If the loop stops at ``max_passes``.
    """
    if (model is None) == (rank is None):
        raise PmfError(
            f"model is {'absent' if model is None else 'given'} and rank is {rank}; give one of the two"
        )
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
    counts = count_pairs(encoded, schema, n_folds=MAX_GROUPS)
    notes: tuple[str, ...] = ()
    start = "given"
    singles = estimate_singles(counts)
    if model is not None:
        state = EMState(model.prior, model.factors)
    else:
        assert rank is not None
        begun = fit(counts, rank, rng=rng)
        notes, start = begun.notes, begun.method
        state = open_start(begun.model.prior, begun.model.factors, singles)
    shape = Smoothing.shaped_by(singles, schema.offsets, choose_smoothing(smoothing))
    state = run_em(
        _evaluate_in_memory(encoded, schema.offsets),
        state,
        schema.offsets,
        smoothing=shape,
        max_passes=max_passes,
        tol=tol,
        validate=None if held_out is None else _evaluate_in_memory(held_out, schema.offsets),
        patience=patience,
        accelerate=accelerate,
    )
    return finish_em(state, schema, start=start, max_passes=max_passes, notes=notes)


def _evaluate_in_memory(codes: IntArray, offsets: IntArray) -> Evaluate:
    block = merge_duplicates(DenseBlock(codes))

    def evaluate(prior: FloatArray, factors: FloatArray) -> EMStatistics:
        return em_statistics(block, offsets, *take_logs(prior, factors))

    return evaluate


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
