"""The models that a stack is a mixture of, as its origin has them, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.base.display.summary import SummaryTable, decimal, format_count
from pmflib.base.json_records import JsonRecord

READING = "a mixture of models for answers, whose states are not to be read; for classes to read, fit a number of them"
"""Note on a stack of several models."""


@dataclass(frozen=True)
class RungFit(JsonRecord):
    """A rung of the ladder of a stack.

    Parameters
    ----------
    name, kind
        Name in tables, and kind of its models.
    states, members
        Number of latent states of each model, and number of models.
    passes
        Number of passes over the samples.
    held_out
        Held-out log-likelihood per sample of the rung alone, nats.
    weight
        Weight in the mixture.
    number
        Number among the models of the same kind and number of states, from 0.
    """

    name: str
    kind: str
    states: int
    members: int
    passes: int
    held_out: float
    weight: float
    number: int = 0


def tabulate_ladder(
    ladder: Sequence[RungFit], title: str = "Models of the mixture"
) -> SummaryTable:
    """Return the table of the rungs of a stack."""
    rows = [
        (
            each.name,
            decimal(each.weight, 2),
            decimal(each.held_out, 6),
            format_count(each.passes),
        )
        for each in ladder
    ]
    columns = ("rung", ">weight", ">held out, nats per row", ">passes")
    return SummaryTable(title, columns, rows, len(rows))
