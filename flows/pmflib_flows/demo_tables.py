"""What a demonstration prints: facts of its run, the distance from the truth, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pmflib.crowd.pipeline.summaries import LabelSummary
from pmflib.synthetic.demo import LabelErrors, ModelErrors
from pmflib_flows.demo import DemoRun
from pmflib_flows.label_summary import describe_agreement
from pmflib_flows.run_tables import make_run_tables
from pmflib_flows.tables import make_table

QUESTIONS = {
    "ratings": "P(m0002 | m0001=5)",
    "survey": 'P(recommend | punctual="strongly disagree", commute=bus)',
}
"""A question to try, by what the demonstration is about."""


def describe_demo(about: str, demo: DemoRun) -> Iterator[Any]:
    """Tables and lines for people.

    Parameters
    ----------
    about
        "ratings", "survey" or "labels".
    demo
        As `pmflib_flows.demo.run_demo` returns it.
    """
    if not demo.facts:
        yield f"{demo.written_rows:,} rows; configuration: {demo.config}"
        return
    if isinstance(demo.truth, LabelErrors):
        for key in ("tasks", "labels", "workers", "classes"):
            yield f"{key}: {demo.facts[key]}"
        if (found := LabelSummary.find(demo.facts)) is not None:
            yield from describe_agreement(found)
        yield (
            f"Tasks with a wrong label: {demo.truth.error:.1%}; by majority vote: {demo.truth.majority_error:.1%}"
        )
        yield f"Try: pmf status {demo.config}"
        return
    yield from make_run_tables(demo.facts)
    if isinstance(demo.truth, ModelErrors):
        states = [(each.true, each.recovered, each.largest_error) for each in demo.truth.states]
        columns = ("true prior", "recovered", "largest error of a conditional probability")
        yield make_table("Latent states", columns, states)
        yield f"Factor MSE against the truth: {demo.truth.factor_mse:.3g}"
    yield f"Try: pmf query {demo.config} '{QUESTIONS[about]}'"
