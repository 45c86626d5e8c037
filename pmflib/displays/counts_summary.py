"""Summaries of pair counts: how much data there is, and where there is least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import IntArray
from pmflib.displays.cells import count, cut, percent
from pmflib.displays.summary import MOST_ROWS, Summary, SummaryTable
from pmflib.level_blocks import sum_blocks, sum_pairs

if TYPE_CHECKING:
    from pmflib.counting.pair_counts import PairCounts

LISTED_PAIRS = 100
"""Pairs that are listed at most, those with the least support."""


def summarise_counts(counts: PairCounts) -> Summary:
    """Rows, folds, support of the pairs with the least supported ones, and how often each variable was observed."""
    schema, n_rows = counts.schema, int(counts.n_rows.sum())
    places = np.triu_indices(schema.n_variables, 1)
    # fold by fold: the sum of all tables would be one more of them in memory
    support = sum(sum_pairs(table, schema.offsets)[places] for table in counts.tables)
    supports: IntArray = np.asarray(support, np.int64)
    seen: IntArray = sum_blocks(counts.count_levels(), schema.offsets)
    facts = [("rows", count(n_rows)), ("folds", _describe_folds(counts.n_rows))]
    notes = []
    if supports.size:
        n_observed = np.count_nonzero(supports)
        facts.append(("pairs observed", f"{count(n_observed)} of {count(supports.size)}"))
        quantiles = np.quantile(supports, [0, 0.5, 1], method="lower")
        facts.append(
            (
                "rows with both, of a pair",
                "least {}, median {}, most {}".format(*map(count, quantiles)),
            )
        )
        if n_observed < supports.size:
            notes.append(
                f"{count(supports.size - n_observed)} pairs of variables were never observed together: what a model "
                "says of them rests on other pairs alone"
            )
    if n_never := int(np.count_nonzero(seen == 0)):
        notes.append(f"{count(n_never)} variables were never observed")
    order = np.argsort(supports, kind="stable")[:LISTED_PAIRS]
    rows = [
        (
            cut(schema.names[places[0][pair]]),
            cut(schema.names[places[1][pair]]),
            count(supports[pair]),
            percent(supports[pair] / max(n_rows, 1)),
        )
        for pair in order
    ]
    observed = [
        (cut(schema.names[place]), count(seen[place]), percent(1 - seen[place] / max(n_rows, 1)))
        for place in np.argsort(seen, kind="stable")[:MOST_ROWS]
    ]
    tables = [
        SummaryTable(
            "Pairs with the least support",
            ("variable", "variable", ">rows with both", ">of all rows"),
            rows,
            supports.size,
            "pmf.Marginals.from_counts(counts).support",
        ),
        SummaryTable(
            "Variables by how often they were observed, the least first",
            ("variable", ">rows with it", ">missing"),
            observed,
            schema.n_variables,
            "counts.count_levels()",
            folded=True,
        ),
    ]
    headline = f"Pair counts: {count(n_rows)} rows of {count(schema.n_variables)} variables"
    return Summary(headline, tuple(facts), tuple(notes), tuple(t for t in tables if t.rows))


def _describe_folds(n_rows: IntArray) -> str:
    if n_rows.size == 1:
        return "1: nothing can be held out"
    return f"{count(n_rows.size)}, of {count(n_rows.min())} to {count(n_rows.max())} rows"
