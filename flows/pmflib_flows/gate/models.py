"""Commands about the models of a pipeline: models, promote, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pmflib.base.display.summary import DIGITS
from pmflib.base.errors import StoreError
from pmflib_flows.commands.history import find_recorded_name
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Group

    from pmflib.store.artefacts import Store
    from pmflib.store.model_history import ModelStanding
    from pmflib_tasks.config import PipelineConfig
    from pmflib_tasks.gate.gate_decision import Assessed

RunNumber = Annotated[
    int | None, typer.Argument(min=1, help="Number of a run, as shown by `pmf models`.")
]


def models(config: ConfigPath, as_json: AsJson = False) -> None:
    """List the models of a pipeline: live, previously live, rejected or held back, with reasons."""
    from pmflib.store.model_history import list_models
    from pmflib.store.run_records import list_records
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    found = list_models(list_records(store, find_recorded_name(store, checked.name)))
    if as_json:
        print_json(_describe_standings(found, store))
    elif found:
        out.print(_make_table(found))
    else:
        out.print("No run has made a model yet.")


def _describe_standings(found: Sequence[ModelStanding], store: Store) -> list[dict[str, object]]:
    """Build JSON content of the models, with the paths of those that are still in the store."""
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


def _make_table(found: Sequence[ModelStanding]) -> Group:
    """Build the table of models, the newest last."""
    from pmflib_tasks.facts import RunFacts

    gates = [RunFacts(each.record.facts).gate for each in found]
    rows = [
        (
            str(each.run),
            each.made,
            "-" if each.model is None else each.model.digest[:DIGITS],
            each.standing,
            _format_score(each.record.scores),
            _format_gain(gate.today),
            _format_gain(gate.reference),
            each.why,
        )
        for each, gate in zip(found, gates, strict=True)
    ]
    columns = ("run", "made", "model", "standing", "score", "gain then", "on reference", "why")
    return make_table("Models (score, gain: nats per hidden cell)", columns, rows)


def _format_score(scores: Mapping[str, float]) -> str:
    return f"{scores['log_prob_per_cell']:.5f}" if scores.get("hidden_cells") else "-"


def _format_gain(said: Assessed | None) -> str:
    if said is None or isinstance(said, str):
        return said or "-"
    error = said.found.known_error
    return f"{said.found.gain:+.5f}" + ("" if error is None else f" +- {error:.5f}")


def promote(config: ConfigPath, run: RunNumber = None, as_json: AsJson = False) -> None:
    """Make the model of a run live, whatever the gate decided (default: the newest model that is not live)."""
    _make_live(load_pipeline(config), "promote", run, as_json)


def rollback(config: ConfigPath, run: RunNumber = None, as_json: AsJson = False) -> None:
    """Restore a previously live model (default: the one before the current model)."""
    _make_live(load_pipeline(config), "rollback", run, as_json)


def _make_live(
    config: PipelineConfig, action: Literal["promote", "rollback"], run: int | None, as_json: bool
) -> None:
    from pmflib.store.model_history import check_published, find_candidate, find_previous
    from pmflib.store.run_records import list_records
    from pmflib_flows.recording import record_run
    from pmflib_tasks.stage import open_store

    store = open_store(config)
    name = find_recorded_name(store, config.name)
    records = list_records(store, name)
    find = find_candidate if action == "promote" else find_previous
    made = find(records, run)
    model, before = made.model, records[-1].live
    assert model is not None
    if model == before:
        raise StoreError(
            f"the model of run {made.number} is live already; `pmf models` lists the others"
        )
    check_published(store, model)
    said = made.reason or made.outcome
    with record_run(config, action, name) as draft:
        draft.live, draft.before = model, before
        draft.outcome = "done"
        draft.reason = f"the model of run {made.number}, by hand; that run said: {said}"
        replaced = None if before is None else before.digest
        draft.facts.note(run=made.number, before=replaced, gate=made.facts.get("gate", {}))
    if draft.outcome != "done":
        raise StoreError(f"{draft.reason}; `pmf models` lists what there is")
    path = store.name_artefact(model, model.kind if model.kind == "worker-model" else "model")
    answer: dict[str, object] = {"run": draft.number, "model": model.digest, "reason": draft.reason}
    if as_json:
        print_json(answer | {"live": path, "model_of_run": made.number})
        return
    if model.kind == "worker-model":
        out.print("The next `pmf crowd` labels the tasks by it")
    out.print(f"Live model {model.digest[:12]}: {draft.reason}")
    out.print(f"  {Path(path)}")
