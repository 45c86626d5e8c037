"""Distillation: one model of a smaller rank in place of an average."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from pmflib.argument_checks import check_model
from pmflib.counting.pair_counts import count_pairs
from pmflib.em.in_memory import SamplesInMemory
from pmflib.fitting.candidates import Options
from pmflib.fitting.em_fit import EMFit, OnPass, Passes, warn_if_stopped
from pmflib.fitting.from_pairs import FitResult
from pmflib.model import JointPMF
from pmflib.reporting.work_progress import reports_progress
from pmflib.solvers.checks import check_rank

DRAWN_SAMPLES = 100_000
"""Samples drawn from an average to distil it, where no other number is given."""


@reports_progress
def distil(
    average: JointPMF,
    rank: int,
    *,
    validation: object | None = None,
    n_samples: int = DRAWN_SAMPLES,
    pseudo_count: float | Literal["auto"] = "auto",
    max_passes: int = 200,
    tol: float = 1e-6,
    patience: int = 10,
    accelerate: bool = False,
    target: str | int | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_pass: OnPass | None = None,
) -> FitResult:
    """Fit one model by EM to samples drawn from an average, which loses little of what averaging has gained.

    Parameters
    ----------
    average
        The model that `fit_em` has made of several members.
    rank
        Number of latent states of the model to fit.
    validation
        Held-out real samples, in memory or stored: they choose the start, the pseudo-count and the number of passes.
        None chooses nothing.
    n_samples
        Number of samples to draw, at least 1.
    pseudo_count, max_passes, tol, patience, accelerate, target, checkpoint, on_pass
        As for `fit_em`.
    seed
        Seed of the samples and of the starts.

    Returns
    -------
    The model and how it was reached.

    Warns
    -----
    ConvergenceWarning
        If EM stops at ``max_passes``.

    References
    ----------
    Breiman, Shang (1996), "Born again trees"; Hinton, Vinyals, Dean (2015), "Distilling the knowledge in a neural
    network".
    """
    check_model("average", average, JointPMF)
    check_rank(rank)
    schema = average.schema
    drawn = average.sample(n_samples, seed)
    fit = EMFit(
        schema=schema,
        rank=rank,
        options=Options.make("auto", pseudo_count, 1, rank),
        seed=seed,
        passes=Passes(max_passes, tol, patience, accelerate, checkpoint, on_pass),
        target=None if target is None else schema.position(target),
    )
    training = SamplesInMemory(drawn, schema.offsets, rank)
    starts = fit.make_starts(count_pairs(drawn, schema))
    result = fit.choose(training, fit.open_held_out(validation), starts)[1]
    n_members = average.origin.get("average", 1)
    note = f"fitted to {len(drawn)} samples drawn from an average of {n_members} fits"
    warn_if_stopped(result, max_passes)
    return replace(result, notes=(note, *result.notes))
