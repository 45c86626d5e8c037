"""What a demonstration prints: facts of its run, the distance from the truth, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.fact_tables import make_facts_tables
from flows.label_summary import describe_agreement
from flows.tables import make_table

QUESTIONS = {
    "ratings": "P(m0002 | m0001=5)",
    "survey": 'P(recommend | punctual="strongly disagree", commute=bus)',
}
"""A question to try, by what the demonstration is about."""


def describe_demo(about: str, facts: Mapping[str, Any], *, data_only: bool) -> Iterator[Any]:
    """Tables and lines for people.

    Parameters
    ----------
    about
        "ratings", "survey" or "labels".
    facts
        As `flows.demo.run_demo` returns them.
    data_only
        Whether nothing was run.
    """
    config = facts["config"]
    if data_only:
        yield f"{facts['written_rows']:,} rows; configuration: {config}"
        return
    if about == "labels":
        for key in ("tasks", "labels", "workers", "classes"):
            yield f"{key}: {facts[key]}"
        yield from describe_agreement(facts)
        truth = facts["truth"]
        yield (
            f"Tasks with a wrong label: {truth['error']:.1%}; by majority vote: {truth['majority_error']:.1%}"
        )
        yield f"Try: pmf status {config}"
        return
    yield from make_facts_tables(facts)
    if about == "ratings":
        states = [(s["true"], s["recovered"], s["largest_error"]) for s in facts["truth"]["states"]]
        columns = ("true prior", "recovered", "largest error of a conditional probability")
        yield make_table("Latent states", columns, states)
        yield f"Factor MSE against the truth: {facts['truth']['factor_mse']:.3g}"
    yield f"Try: pmf query {config} '{QUESTIONS[about]}'"
