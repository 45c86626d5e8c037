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
    dependence
        Value of ``dependence`` that fits this kind whatever held-out samples say.
    is_modest
        Whether models of variables with these offsets and of this rank are small enough to be tried by default.
    extend
        Fits this kind after latent classes, and returns the better result: called with an `EMFit`, its result, training
        samples, held-out samples, counts, and ``is_forced``.
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
    dependence: str
    is_modest: Callable[[IntArray, int], bool] = lambda offsets, rank: True
    extend: Callable[..., FitResult] | None = None
    refine: Callable[..., FitResult] | None = None
    plan: Callable[..., MemoryPlan] | None = None
    offer: Callable[..., list[Any]] | None = None
    rung: Callable[..., Any] | None = None
    mix: Callable[..., Any] | None = None


def find_kind(name: str) -> FitKind | None:
    """Return a kind by its name; None for latent classes and for kinds that are not fitted by `pmflib.fit_em`."""
    return find_offers("kinds").get(name)


def choose_kinds(dependence: str) -> tuple[FitKind, ...]:
    """Return the kinds to be compared with latent classes, or the one that is to be fitted.

    Parameters
    ----------
    dependence
        "none" for latent classes alone, "auto" for all kinds, and the value of one of them for this one.

    Raises
    ------
    PmfError
        If no kind has this value.
    """
    if dependence == "none":
        return ()
    named = {each.dependence: each for each in find_offers("kinds").values()}
    if dependence == "auto":
        return tuple(named.values())
    check(OneOf(("auto", "none", *named)), dependence=dependence)
    return (named[dependence],)


def is_forced(dependence: str) -> bool:
    """Return whether a kind is fitted whatever held-out samples say."""
    return dependence not in ("auto", "none")
