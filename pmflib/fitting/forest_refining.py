"""A model with forests refined by more passes, over samples in memory or stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.pair_counts import PairCounts, count_pairs
from pmflib.em.checkpoint import is_of_fit
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.em_fit import EMFit, digest_model
from pmflib.fitting.forest_search import find_limits, report_forests
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.starts import StoredCounts
from pmflib.running.clients import find_memory
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.taken_samples import take_samples
from pmflib.trees.memory import plan_trees
from pmflib.trees.passed_samples import Samples
from pmflib.trees.stored_tree_samples import StoredTreeSamples
from pmflib.trees.tree_checkpoint import load_tree_state, save_tree_state
from pmflib.trees.tree_em import TreeOptions, TreeRun, TreeState, run_tree_em
from pmflib.trees.tree_fit import Limits
from pmflib.trees.tree_pmf import TreePMF
from pmflib.trees.tree_samples import TreeSamples


class Judge(NamedTuple):
    """Held-out samples: their number, all of them to judge by, so many of them in memory, and their digest."""

    n_rows: int
    samples: Samples
    take: Callable[[int], IntArray]
    digest: str

    @classmethod
    def open(cls, fit: EMFit, validation: object | None) -> Judge | None:
        """Held-out samples as `pmflib.fit_em` takes them; None if there are none."""
        if validation is None:
            return None
        if isinstance(validation, StoredSamples):
            if not validation.n_rows:
                return None
            stored = validation.with_target(fit.target)
            samples = StoredTreeSamples(stored)
            return cls(stored.n_rows, samples, partial(take_stored, stored), stored.digest())
        codes = fit.schema.encode(validation)
        rank = fit.rank * fit.options.members
        loaded = TreeSamples(codes, fit.schema.offsets, rank, fit.target)
        return cls(len(codes), loaded, partial(_take_codes, codes), _digest_codes(codes))


def refine_forests(
    fit: EMFit,
    model: TreePMF,
    samples: StoredSamples | IntArray,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> FitResult:
    """Make passes from a model with forests, which are found anew as they go, with the options that it was fitted with.

    Parameters
    ----------
    fit
        When passes end, and the pseudo-count if one is given; else it is the model's.
    model
        Where to begin; no average.
    samples
        Training samples: stored, or codes of shape (n_rows, n_variables), -1 missing.
    validation
        Held-out samples, whose likelihood ends the passes; None passes until that of the training samples converges.
    counts
        Co-occurrence counts of stored samples; None for those in memory.

    Returns
    -------
    The result, whose model may be the one that was given, where held-out samples say so.

    Raises
    ------
    MemoryPlanError
        If stored samples would take more memory than there is.
    """
    known = {name: model.origin[name] for name in TreeOptions._fields if name in model.origin}
    options = TreeOptions(**known)
    if len(fit.options.pseudo_counts) == 1:
        options = options._replace(pseudo_count=fit.options.pseudo_counts[0])
    opened: Samples
    if isinstance(samples, StoredSamples):
        assert counts is not None
        find_memory(samples.client).check(partial(plan_forests, samples, fit.rank, 1))
        opened, digest = StoredTreeSamples(samples), samples.digest()
        singles = fit.estimate_singles(counts)
    else:
        opened, digest = TreeSamples(samples, fit.schema.offsets, fit.rank), _digest_codes(samples)
        singles = estimate_singles(count_pairs(samples, fit.schema, n_folds=1))
    judge = Judge.open(fit, validation)
    parts = fit.digest_options(), digest, judge.digest if judge else "", digest_forests(model)
    saved = Saved.make(fit, "given", *parts)
    first = TreeRun.begin(model.parameters, options)
    run = run_saved(fit, "forests", opened, singles, first, judge, find_limits(fit), saved)
    n_before, n_after = model.forest.n_edges, run.parameters.forest.n_edges
    note = f"forests of the model that was given, found anew: {n_after} edges, {n_before} before"
    return report_forests(fit, [run], [run.parameters], (note,), (), method="given+em")


class Saved(NamedTuple):
    """File of a checkpoint; None saves nothing. And whether it is there already, of the same fit."""

    path: Path | None
    is_there: bool

    @classmethod
    def make(cls, fit: EMFit, name: str, *parts: str) -> Saved:
        """Checkpoint of a fit that depends on some parts.

        Raises
        ------
        PmfError
            If it is there, and of another fit.
        """
        if fit.passes.checkpoint is None:
            return cls(None, False)
        path = fit.passes.checkpoint / f"forests-{name}.npz"
        return cls(path, is_of_fit(hashlib.sha256("\n".join(parts).encode()).hexdigest(), path))


def run_saved(
    fit: EMFit,
    name: str,
    samples: Samples,
    singles: FloatArray,
    first: TreeRun,
    judge: Judge | None,
    limits: Limits,
    saved: Saved,
) -> TreeRun:
    """Make the passes of a run from its model, or from its checkpoint, and save and report each of them."""
    path, report = saved.path, fit.on_pass
    state = None
    if path is not None and saved.is_there:
        state = load_tree_state(path, fit.schema.offsets)

    def save_and_report(state: TreeState) -> None:
        if path is not None:
            save_tree_state(path, state)
        if report is not None:
            report(name, state)

    return run_tree_em(
        samples,
        first.parameters,
        first.options,
        singles,
        held_out=judge.samples if judge else None,
        state=state,
        on_pass=save_and_report,
        **limits._asdict(),
    )


def plan_forests(training: StoredSamples, rank: int, members: int, n_threads: int) -> MemoryPlan:
    """Plan the memory that passes with forests need on a worker of stored samples, and here."""
    n_held = training.plan_pass(rank).tasks.n_held
    return plan_trees(training.schema.offsets, rank, n_threads, members, n_held=n_held)


def digest_forests(model: TreePMF) -> str:
    """SHA-256 of a model with forests, in hexadecimal."""
    total = hashlib.sha256(digest_model((model.prior, model.tables)).encode())
    total.update(model.forest.parents.tobytes())
    return total.hexdigest()


def take_stored(samples: StoredSamples, number: int) -> IntArray:
    """Codes of so many stored samples, or of all."""
    if number >= samples.n_rows:
        return samples.read_codes()
    # as many blocks as hold them, were blocks equal, and as many again
    n_blocks = 2 * number * len(samples.blocks) // samples.n_rows
    return take_samples(samples.blocks, samples.schema, number, n_blocks)


def _take_codes(codes: IntArray, number: int) -> IntArray:
    """So many rows, from all over."""
    return codes[np.linspace(0, len(codes) - 1, min(number, len(codes))).astype(np.int64)]


def _digest_codes(codes: IntArray) -> str:
    return hashlib.sha256(f"{codes.shape} {codes.dtype}".encode() + codes.tobytes()).hexdigest()
