"""How often recommended items are those that were held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import SchemaError
from pmflib.schema.tables import as_arrow


def measure_recommendations(
    recommended: object, held_out: object, n_items: int
) -> dict[str, float]:
    """Measure recommendations by answers that were held out.

    Parameters
    ----------
    recommended
        Table with the columns row, rank and item, as `recommend` returns, or with sample in place of row.
    held_out
        Table with the same column of samples, and item: the answers to find, each once.
    n_items
        Number of items that could be recommended.

    Returns
    -------
    Means over the samples with a held-out answer: hit_rate, share with at least one of them among the recommended
    items; recall, share of a sample's held-out answers among them; ndcg, normalised discounted cumulative gain with a
    gain of 1 for each. And coverage, share of all items that are recommended to any sample; samples, their number. A
    sample without recommendations counts as 0.

    Raises
    ------
    SchemaError
        If a column is absent, or nothing is held out.

    References
    ----------
    Järvelin and Kekäläinen (2002), Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4).
    """
    found, truth = as_arrow(recommended), as_arrow(held_out)
    key = "sample" if "sample" in truth.column_names else "row"
    for argument, table, names in (
        ("recommended", found, (key, "rank", "item")),
        ("held_out", truth, (key, "item")),
    ):
        for name in names:
            check(OneOf(table.column_names), SchemaError, **{f"column of {argument}": name})
    if not truth.num_rows:
        raise SchemaError("held_out has no rows; hold out some answers")
    wanted: dict[Any, set[str]] = {}
    for sample, item in zip(truth[key].to_pylist(), truth["item"].to_pylist(), strict=True):
        wanted.setdefault(sample, set()).add(str(item))
    ranks = found["rank"].to_numpy()
    gains = 1 / np.log2(1 + np.arange(1, 1 + max(1, int(ranks.max(initial=1)))))
    hits, gain = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0.0)
    shown = found["item"].to_pylist()
    for sample, item, rank in zip(found[key].to_pylist(), shown, ranks.tolist(), strict=True):
        if str(item) in wanted.get(sample, ()):
            hits[sample] += 1
            gain[sample] += gains[rank - 1]
    n_wanted = np.array([len(each) for each in wanted.values()])
    n_hits, best = np.array([*hits.values()]), np.concatenate([[0.0], np.cumsum(gains)])
    return {
        "hit_rate": float((n_hits > 0).mean()),
        "recall": float((n_hits / n_wanted).mean()),
        "ndcg": float((np.array([*gain.values()]) / best[np.minimum(n_wanted, gains.size)]).mean()),
        "coverage": len({*shown}) / n_items,
        "samples": len(wanted),
    }
