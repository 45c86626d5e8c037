"""Table and JSON of the models of a pipeline: what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group

from pmflib.store.artefacts import Store
from pmflib.store.model_history import ModelStanding
from pmflib_flows.run_tables import DIGITS
from pmflib_flows.tables import make_table
from pmflib_tasks.gate_decision import Assessed, GateNumbers


def describe_standings(found: Sequence[ModelStanding], store: Store) -> list[dict[str, object]]:
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
            "scores": each.record.facts.get("scores", {}),
            "gate": each.record.facts.get("gate", {}),
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
            _format_score(each.record.scores),
            *_format_gains(GateNumbers.find(each.record.facts)),
            each.why,
        )
        for each in found
    ]
    columns = ("run", "made", "model", "standing", "score", "gain then", "on reference", "why")
    return make_table("Models (score, gain: nats per hidden cell)", columns, rows)


def _format_score(scores: Mapping[str, float]) -> str:
    return f"{scores['log_prob_per_cell']:.5f}" if scores.get("hidden_cells") else "-"


def _format_gains(numbers: GateNumbers) -> tuple[str, str]:
    """What today's cells say, and those of the reference."""
    return _format_gain(numbers.today), _format_gain(numbers.reference)


def _format_gain(said: Assessed | None) -> str:
    if said is None or isinstance(said, str):
        return said or "-"
    error = said.found.known_error
    return f"{said.found.gain:+.5f}" + ("" if error is None else f" +- {error:.5f}")
