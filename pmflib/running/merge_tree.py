"""The tree in which results are merged: its shape depends on the number of leaves alone, not on who works on which.

Level 0 has a node for every leaf; a node of a higher level merges ``fan_in`` neighbours of the level below, the last
one what is left of them. Whoever works on a run of consecutive leaves merges all nodes of this tree that lie inside,
as in a segment tree, and gives the largest of them; whoever has those of neighbouring runs goes on from there. Sums in
floating point have the same bits whatever the runs are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")

FAN_IN = 8
"""Neighbours that a node merges."""


class Node(NamedTuple, Generic[R]):
    """A node of the tree, and its value.

    Parameters
    ----------
    level
        0 for a leaf.
    place
        Number of nodes of the same level before it.
    value
        Merged result of its leaves.
    """

    level: int
    place: int
    value: R


def find_top(n_leaves: int, fan_in: int = FAN_IN) -> int:
    """Level of the node that merges all leaves: 0 for a single leaf."""
    level = 0
    while count_nodes(n_leaves, level, fan_in) > 1:
        level += 1
    return level


def count_nodes(n_leaves: int, level: int, fan_in: int = FAN_IN) -> int:
    """Number of nodes of a level."""
    return int(-(-n_leaves // fan_in**level))


def merge_nodes(
    nodes: Iterable[Node[R]],
    n_leaves: int,
    merge: Callable[[Sequence[R]], R],
    *,
    top: int | None = None,
    fan_in: int = FAN_IN,
) -> list[Node[R]]:
    """Merge nodes as far as they go.

    Parameters
    ----------
    nodes
        Nodes that follow each other, of any levels; taken one at a time.
    n_leaves
        Number of leaves of the whole tree.
    merge
        Joins the values of neighbours, in order.
    top
        Level up to which nodes are merged; None is that of the whole tree.
    fan_in
        Neighbours that a node merges, at least 2.

    Returns
    -------
    The largest nodes of the tree that hold the same leaves, in order. While it runs, no more values are held than
    these, and ``fan_in - 1`` for each level.
    """
    limit = find_top(n_leaves, fan_in) if top is None else top
    held: list[Node[R]] = []
    for node in nodes:
        held.append(node)
        while (last := held[-1]).level < limit:
            level, place = last.level, last.place
            is_last = place + 1 == count_nodes(n_leaves, level, fan_in)
            if not (is_last or (place + 1) % fan_in == 0):
                break
            first = place - place % fan_in
            children = held[first - place - 1 :]
            if len(children) != place - first + 1 or children[0][:2] != (level, first):
                # the first of them are elsewhere
                break
            del held[first - place - 1 :]
            merged = merge([child.value for child in children])
            held.append(Node(level + 1, first // fan_in, merged))
    return held
