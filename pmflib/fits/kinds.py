"""Kinds of models that `pmflib.fit_em` fits beside latent classes: the one table of them, and what each can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pmflib.base.arrays import IntArray
from pmflib.base.constraints import OneOf, check
from pmflib.base.hooks import find_offers
from pmflib.cluster.memory import MemoryPlan
from pmflib.fits.fit_result import FitResult


@dataclass(frozen=True)
class FitKind:
    """A kind of model; features offer theirs by the hook ``"kinds"``, under its name.

    Parameters
    ----------
    name
        Attribute ``kind`` of its models.
    search
        Search over numbers of states on splits of the samples, with the arguments splits, seed, on_progress and budget:
        see `pmflib.fits.ranks.kinds.KindSearch`.
    dependence
        Value of ``dependence`` that fits this kind whatever held-out samples say; None if it is compared with others
        only where the kind is left open.
    within
        What variables are within states, for a sentence on the choice.
    is_modest
        Whether models of variables with these offsets and of this rank are small enough to be tried by default.
    extend
        Fits this kind after latent classes, and returns the better result: called with an `EMFit`, its result, training
        samples, held-out samples, counts, and ``is_forced``. None if `fit` fits it instead.
    fit
        Fits this kind in place of latent classes: called with an `EMFit`, training samples and held-out samples.
    refine
        Goes on from a model of this kind: called with an `EMFit`, the model, training samples, held-out samples and
        counts. None refines its states as latent classes.
    plan
        Plans the memory of `extend` on stored samples: called with the offsets of the variables, rank, threads of a
        worker, members, and ``n_waiting`` of a pass.
    offer
        Returns the rungs of a ladder that are of this kind: called with `pmflib.fits.stack.ladder.LadderSizes` and a
        pseudo-count. None offers none.
    rung
        Makes a rung of this kind, of a given step, rank, number of members, pseudo-count and number.
    mix
        Joins models of this kind and latent classes into one mixture, as `pmflib.fits.stack.ladder.mix_models` does.
    """

    name: str
    search: Callable[..., Any]
    dependence: str | None = None
    within: str = "are independent"
    is_modest: Callable[[IntArray, int], bool] = lambda offsets, rank: True
    extend: Callable[..., FitResult] | None = None
    fit: Callable[..., FitResult] | None = None
    refine: Callable[..., FitResult] | None = None
    plan: Callable[..., MemoryPlan] | None = None
    offer: Callable[..., list[Any]] | None = None
    rung: Callable[..., Any] | None = None
    mix: Callable[..., Any] | None = None


def find_kind(name: str) -> FitKind | None:
    """Return a kind by its name; None for latent classes and for kinds that are not fitted by `pmflib.fit_em`."""
    return find_offers("kinds").get(name)


def choose_kinds(dependence: str | None) -> tuple[FitKind, ...]:
    """Return the kinds to be compared with latent classes, or the one that is to be fitted.

    Parameters
    ----------
    dependence
        "none" for latent classes alone, "auto" for all kinds that a value of ``dependence`` names, such a value for one
        of them, and None for all kinds.

    Raises
    ------
    PmfError
        If no kind has this value.
    """
    if dependence == "none":
        return ()
    kinds = tuple(find_offers("kinds").values())
    if dependence is None:
        return kinds
    named = {each.dependence: each for each in kinds if each.dependence is not None}
    if dependence == "auto":
        return tuple(named.values())
    check(OneOf(("auto", "none", *named)), dependence=dependence)
    return (named[dependence],)


def is_forced(dependence: str | None) -> bool:
    """Return whether a kind is fitted whatever held-out samples say."""
    return dependence not in (None, "auto", "none")
