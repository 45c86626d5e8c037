"""Summaries of a model in tables: its states and what distinguishes them, or its traits and what they move."""

from __future__ import annotations

from pmflib.core.comparison import name_setting
from pmflib.core.texts import show_text
from pmflib.display.summary import (
    MOST_ROWS,
    Summary,
    SummaryTable,
    cut,
    decimal,
    format_count,
    percent,
)
from pmflib.model.mixture import Mixture
from pmflib.model.state_descriptions import StateProfiles, profile_states
from pmflib.model.traits.trait_model import TraitModel
from pmflib.schema import Schema

SHOWN_LEVELS = 4
"""Levels of a state that are listed."""
NAMED_FACTS = {"best": "best of, models", "mean": "mean of, models", "final": "fitted to all rows"}
"""Facts on the origin of a model whose keys do not speak for themselves."""


def summarise_model(model: Mixture) -> Summary:
    """Latent states by size with what distinguishes each, and how the model was fitted."""
    facts = [
        (
            "variables",
            f"{format_count(model.schema.n_variables)}, of {format_count(model.schema.n_levels)} levels",
        ),
        ("latent states", format_count(model.rank)),
        ("free parameters", format_count(model.n_parameters)),
    ]
    facts += [
        (cut(NAMED_FACTS.get(name, name_setting(str(name)))), cut(_format_fact(value)))
        for name, value in list(model.origin.items())[:12]
        if isinstance(value, str | int | float)
    ]
    n_variables, rank = format_count(model.schema.n_variables), format_count(model.rank)
    headline = f"Joint PMF of {n_variables} variables, {rank} latent states"
    return Summary(headline, tuple(facts), (), (tabulate_states(model),))


def _format_fact(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,.6g}"


def tabulate_states(model: Mixture) -> SummaryTable:
    """List the states by size, each with the levels that distinguish it and how much likelier they are there.

    Of states that are points of traits the variables are listed, with what the traits move.
    """
    if model.trait_model is not None and model.folding is None:
        return _tabulate_traits(model.trait_model)
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


def _tabulate_traits(traits: TraitModel) -> SummaryTable:
    """List the variables, each with the two levels that a trait moves apart most, and by how many logits."""
    rows = []
    for position, variable in enumerate(traits.schema):
        slopes, cells = traits.slopes[traits.schema.rows_of(position)], [variable.name]
        for own in slopes.T:
            high, low = int(own.argmax()), int(own.argmin())
            names = f"{show_text(variable.levels[high])} over {show_text(variable.levels[low])}"
            cells.append(f"{own[high] - own[low]:.2f} ({names})")
        rows.append(tuple(cells))
    return SummaryTable(
        "Logits between two levels that a standard deviation of a trait adds",
        ("variable", *(f"trait {f}" for f in range(traits.n_traits))),
        rows,
        len(rows),
        "model.trait_model.slopes",
    )


def _describe_levels(schema: Schema, profiles: StateProfiles, row: int) -> str:
    """Levels of a state, as in "smokes=yes 83 % (2.1 times)"."""
    parts = []
    for column, level in enumerate(profiles.levels[row].tolist()):
        if level < 0:
            break
        position = int(profiles.variables[row, column])
        variable = schema[position]
        label = variable.levels[level - int(schema.offsets[position])]
        share = percent(float(profiles.probabilities[row, column]))
        lift = decimal(float(profiles.lifts[row, column]), 2)
        parts.append(f"{cut(variable.name, 24)}={cut(label, 24)} {share} ({lift} times)")
    return ", ".join(parts) or "nothing: as all are"
