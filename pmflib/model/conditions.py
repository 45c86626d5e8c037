"""Conditions of a question: whether anybody can meet them, and whether anybody in the data did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from pmflib.arrays import IntArray
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.schema import Schema


def find_impossible(model: JointPMF, codes: Mapping[int, int]) -> tuple[int, ...]:
    """Find conditions that nobody can meet together: probability 0 under the model.

    Parameters
    ----------
    model
        The model.
    codes
        Code of each variable that is given, by place.

    Returns
    -------
    Places of one variable, or two, or all that are given: the fewest that are impossible; empty where all are possible.
    """
    possible = {
        place: (model.factors[int(model.schema.offsets[place]) + code] > FLOOR)
        & (model.prior > FLOOR)
        for place, code in codes.items()
    }
    for places in (*_list_few(codes), tuple(codes)):
        states = model.prior > FLOOR
        for place in places:
            states = states & possible[place]
        if not states.any():
            return places
    return ()


def find_unseen(table: IntArray, schema: Schema, codes: Mapping[int, int]) -> tuple[int, ...]:
    """Find conditions that no row of the data meets together, by counts of pairs.

    Parameters
    ----------
    table
        int64 of shape (n_levels, n_levels), upper triangle: co-occurrence counts of all levels, each level with itself
        on the diagonal.
    schema
        Schema of the counts.
    codes
        As for `find_impossible`.

    Returns
    -------
    Places of one variable or two; empty where each pair was seen, which says nothing of three.
    """
    for places in _list_few(codes):
        levels = sorted(int(schema.offsets[place]) + codes[place] for place in places)
        if not table[levels[0], levels[-1]]:
            return places
    return ()


def _list_few(codes: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    """List each place, and then each pair of them."""
    yield from ((place,) for place in codes)
    yield from combinations(codes, 2)
