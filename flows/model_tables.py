"""Table and JSON of the models of a pipeline: what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from flows.fact_tables import DIGITS
from flows.tables import make_table
from pmflib.store.artefacts import Store
from pmflib.store.model_history import ModelStanding


def describe_standings(found: Sequence[ModelStanding], store: Store) -> list[dict[str, Any]]:
    """Models in plain JSON types; the path of each that is still in the store."""
    return [
        {
            "run": each.run,
            "made": each.made,
            "model": None if each.model is None else each.model.digest,
            "path": None
            if each.model is None or store.find(each.model.identity) is None
            else store.name_artefact(each.model, "model"),
            "standing": each.standing,
            "why": each.why,
            "scores": each.scores,
            "gate": each.gate,
        }
        for each in found
    ]


def make_models_table(found: Sequence[ModelStanding]) -> Group:
    """Table of models, the newest last."""
    rows = [
        (
            str(each.run),
            each.made,
            "-" if each.model is None else each.model.digest[:DIGITS],
            each.standing,
            _format_score(each.scores),
            _format_gain(each.gate.get("today")),
            _format_gain(each.gate.get("reference")),
            each.why,
        )
        for each in found
    ]
    columns = ("run", "made", "model", "standing", "score", "gain then", "on reference", "why")
    return make_table("Models (score, gain: nats per hidden cell)", columns, rows)


def _format_score(scores: Mapping[str, Any]) -> str:
    return f"{scores['log_prob_per_cell']:.5f}" if scores.get("hidden_cells") else "-"


def _format_gain(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "obstacle" in found:
        return str(found["obstacle"])
    error = found["standard_error"]
    return f"{found['gain']:+.5f}" + ("" if error is None else f" +- {error:.5f}")
