"""What a run has to say on the terminal: its sections, and where its results are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group
from rich.text import Text

from pmflib.base.display.summary import DIGITS
from pmflib_flows.console import out, print_json
from pmflib_flows.tables import draw_table
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.sections import Section, list_sections


def draw_sections(sections: Iterable[Section]) -> Iterator[Group | Text]:
    """Draw the table of each section, and its sentences."""
    for section in sections:
        if section.table is not None:
            yield draw_table(section.table)
        yield from map(Text, section.sentences)


def show_run(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print the facts of a run: tables, or JSON."""
    if as_json:
        print_json(facts)
        return
    for part in draw_sections(list_sections(facts)):
        out.print(part)
    out.print()
    out.print(f"Run {facts['run']}: {facts['reason']}")
    if where := facts.get("where"):
        out.print(f"Stages ran in {where}")
    if path := facts.get("marginals"):
        out.print("Marginals for xarray and others:")
        out.print(f"  {path}")
    out.print(f"Live model {facts['live_model'][:DIGITS]}:")
    out.print(f"  {facts['live']}")
    show_quarantine(facts)


def show_quarantine(facts: Mapping[str, Any]) -> None:
    """Print how to read the rejected rows, if a run has any."""
    account = RunFacts(facts).account
    if account is not None and account.reasons:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in account.reasons.items())
        out.print(
            f"Quarantined rows: {account.rows_quarantined:,} ({reasons}); "
            "`pmf quarantine` writes them to a Parquet file"
        )
