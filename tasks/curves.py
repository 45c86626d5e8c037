"""Curves of ranks as tables that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("rank", "pseudo-count", "score", "below best", "error", "")
"""Of the tables: held-out score, how far below the best, its standard error; last a bar, or a mark at the choice."""

_BAR = 10


def tabulate_curves(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Curves by pairs and, where they were looked at, by samples.

    Parameters
    ----------
    choice
        `RankChoice` as "pairs", and `RowChoice` or None as "rows", in plain JSON types.

    Returns
    -------
    For each curve its title, the reason of the choice, and a row of `COLUMNS` for every rank that was compared.
    """
    tables = []
    for name, unit, pseudo_count in (
        ("pairs", "pair", "pseudo_count"),
        ("rows", "sample", "pseudo_count"),
    ):
        part = choice[name]
        if part is None:
            continue
        points = part["curve"]
        most = max(point["below_best"] for point in points) or 1.0
        rows = []
        for point in points:
            bar = "█" * round(_BAR * point["below_best"] / most)
            mark = " chosen" if _is_choice(point, part, name) else ""
            numbers = [
                float(f"{point[key]:.{digits}g}")
                for key, digits in (
                    (pseudo_count, 6),
                    ("score", 6),
                    ("below_best", 2),
                    ("error", 2),
                )
            ]
            rows.append([point["rank"], *numbers, (bar + mark).strip()])
        title = f"Held-out log-likelihood by rank, nats per {unit}"
        tables.append({"title": title, "reason": part["reason"], "rows": rows})
    return tables


def draw_curves(tables: Sequence[Mapping[str, Any]]) -> str:
    """The same tables as Markdown."""
    parts = []
    for table in tables:
        lines = [f"## {table['title']}", "", table["reason"], "", f"| {' | '.join(COLUMNS)} |"]
        lines.append("| ---: | ---: | ---: | ---: | ---: | :--- |")
        for rank, *numbers, bar in table["rows"]:
            lines.append(f"| {rank} | {' | '.join(f'{n:.6g}' for n in numbers)} | {bar} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _is_choice(point: Mapping[str, Any], part: Mapping[str, Any], name: str) -> bool:
    # all ranks of the pairs' curve stand under one pseudo-count, maybe not the chosen one
    same = name == "pairs" or point["pseudo_count"] == part["pseudo_count"]
    return bool(point["rank"] == part["rank"] and same)
