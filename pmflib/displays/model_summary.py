"""Summaries of models and fits: the states by size, how the model was reached, what was compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pmflib.displays.cells import count, cut, decimal, nats, percent
from pmflib.displays.summary import MOST_ROWS, Summary, SummaryTable
from pmflib.model.state_profiles import StateProfiles, profile_states
from pmflib.selection.comparison import Comparison, ScoredCandidate, format_setting, name_setting

if TYPE_CHECKING:
    from pmflib.fitting.from_pairs import FitResult
    from pmflib.model import JointPMF
    from pmflib.ranks.choice import RankChoice
    from pmflib.schema import Schema

SHOWN_LEVELS = 4
"""Levels of a state that are listed."""


NAMED_FACTS = {"best": "best of, models", "mean": "mean of, models", "final": "fitted to all rows"}
"""Facts on the origin of a model whose keys do not speak for themselves."""


def summarise_model(model: JointPMF) -> Summary:
    """Latent states by size with what distinguishes each, and how the model was fitted."""
    facts = [
        (
            "variables",
            f"{count(model.schema.n_variables)}, of {count(model.schema.n_levels)} levels",
        ),
        ("latent states", count(model.rank)),
        ("free parameters", count(model.n_parameters)),
    ]
    facts += [
        (cut(NAMED_FACTS.get(name, name_setting(str(name)))), cut(_format_fact(value)))
        for name, value in list(model.origin.items())[:12]
        if isinstance(value, str | int | float)
    ]
    headline = f"Joint PMF of {count(model.schema.n_variables)} variables, {count(model.rank)} latent states"
    return Summary(headline, tuple(facts), (), (tabulate_states(model),))


def _format_fact(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,.6g}"


def tabulate_states(model: JointPMF) -> SummaryTable:
    """List the states by size, each with the levels that distinguish it and how much likelier they are there."""
    profiles = profile_states(
        model.prior, model.factors, model.schema.offsets, n_shown=SHOWN_LEVELS
    )
    rows = [
        (
            str(profiles.states[row]),
            percent(float(profiles.sizes[row])),
            _describe_levels(model.schema, profiles, row),
        )
        for row in range(min(model.rank, MOST_ROWS))
    ]
    return SummaryTable(
        "Latent states by size, with the levels that are likelier there (times as likely as in all)",
        (">state", ">share", "what distinguishes it"),
        rows,
        model.rank,
        "model.prior, model.factor(name)",
    )


def _describe_levels(schema: Schema, profiles: StateProfiles, row: int) -> str:
    """Levels of a state, as in "smokes=yes 83 % (2.1 times)"."""
    parts = []
    for column, level in enumerate(profiles.levels[row].tolist()):
        if level < 0:
            break
        place = int(profiles.variables[row, column])
        variable = schema[place]
        label = variable.levels[level - int(schema.offsets[place])]
        share = percent(float(profiles.probabilities[row, column]))
        lift = decimal(float(profiles.lifts[row, column]), 2)
        parts.append(f"{cut(variable.name, 24)}={cut(label, 24)} {share} ({lift} times)")
    return ", ".join(parts) or "nothing: as all are"


def summarise_fit(result: FitResult) -> Summary:
    """Whether it converged, how good it is on held-out data, what was compared, and the states."""
    n_steps = len(result.loss_history)
    settled = "yes" if result.converged else "no"
    facts = [
        ("method", cut(result.method)),
        ("latent states", count(result.model.rank)),
        ("converged", f"{settled}, after {count(n_steps)} passes or iterations"),
    ]
    if result.loss_history:
        facts.append(
            ("loss, first and last", " and ".join(map(decimal, _take_ends(result.loss_history))))
        )
    if result.log_likelihoods:
        facts.append(
            ("log-likelihood", f"{nats(result.log_likelihoods[-1])} nats per training sample")
        )
    if result.held_out:
        facts.append(("held out", f"{nats(max(result.held_out))} nats per sample"))
    notes = list(result.notes)
    if not result.converged:
        notes.insert(0, "It stopped before it converged: allow more passes, or look at the loss")
    compared = (tabulate_comparison(each, folded=True) for each in result.comparisons)
    tables = (tabulate_states(result.model), *compared)
    headline = f"Fit of {count(result.model.schema.n_variables)} variables, {count(result.model.rank)} latent states"
    return Summary(headline, tuple(facts), tuple(notes), tables)


def _take_ends(values: Sequence[float]) -> tuple[float, ...]:
    return (values[0], values[-1]) if len(values) > 1 else (values[0],)


def summarise_rank_choice(choice: RankChoice) -> Summary:
    """The rank, why, and the scores of all that were compared."""
    facts = [
        ("latent states", count(choice.rank)),
        ("pseudo-count", decimal(choice.pseudo_count)),
        ("best score at", f"{count(choice.best)} latent states"),
    ]
    notes = (choice.reason, *choice.notes)
    tables = tuple(map(tabulate_comparison, choice.comparisons))
    return Summary(f"Choice of the rank: {count(choice.rank)}", tuple(facts), notes, tables)


def tabulate_comparison(comparison: Comparison, *, folded: bool = False) -> SummaryTable:
    """List candidates with their held-out scores; the chosen one is marked."""
    names = comparison.varied
    rows = [
        (
            *(cut(format_setting(point.settings[name])) for name in names),
            nats(point.score),
            _describe_difference(point),
            "chosen" if point == comparison.chosen else "",
        )
        for point in comparison.points[:MOST_ROWS]
    ]
    return SummaryTable(
        f"Compared: {' and '.join(map(name_setting, names))}, by held-out nats per {comparison.unit}",
        (*(f">{name_setting(name)}" for name in names), ">score", ">below the best", ""),
        rows,
        len(comparison.points),
        "comparison.points",
        folded,
    )


def _describe_difference(point: ScoredCandidate) -> str:
    if not point.below_best:
        return "best"
    if point.error is None:
        return decimal(point.below_best, 3)
    return f"{decimal(point.below_best, 3)} ± {decimal(point.error, 2)}"
