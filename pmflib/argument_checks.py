"""Checks of arguments that are of another type than the one that is asked for: what was given, and what to do."""

from __future__ import annotations

import numpy as np

from pmflib.errors import PmfError


def name_type(value: object) -> str:
    """Name a type for a message: "a Series", "an ndarray"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' or name == 'ndarray' else 'a'} {name}"


def check_counts(counts: object, kind: type) -> None:
    """Refuse what is no counts of pairs, or of triples.

    Parameters
    ----------
    counts
        What was given.
    kind
        Class of the counts that are asked for.

    Raises
    ------
    PmfError
        If they are none.
    """
    if isinstance(counts, kind):
        return
    maker = {"PairCounts": "count_pairs", "TripleCounts": "count_triples"}[kind.__name__]
    raise PmfError(
        f"counts is {name_type(counts)}; give {kind.__name__}, which pmflib.{maker}(samples, schema) counts "
        "(pmflib.fit_em takes the samples themselves)"
    )


def check_model(name: str, model: object, kind: type) -> None:
    """Refuse what is no joint PMF.

    Parameters
    ----------
    name
        Name of the argument.
    model
        What was given.
    kind
        Class of the model, `JointPMF`.

    Raises
    ------
    PmfError
        If it is none.
    """
    if isinstance(model, kind):
        return
    if isinstance(getattr(model, "model", None), kind):
        remedy = f"give its model: {name}=result.model"
    elif isinstance(model, int | np.integer):
        remedy = f"give a {kind.__name__}; a number of latent states is rank={model}"
    else:
        remedy = f"give a {kind.__name__}, such as the model of a result"
    raise PmfError(f"{name} is {name_type(model)}; {remedy}")


def check_whole(name: str, number: object) -> None:
    """Refuse what is no whole number.

    Raises
    ------
    PmfError
        If it is none.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise PmfError(f"{name} is {number!r}, {name_type(number)}; give a whole number")
