"""Stage: the decision which model goes live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.counts.open_marginals import GROUP, MARGINALS
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import Outcome, find_live
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import list_offers
from pmflib_tasks.gate.compare import pass_gate
from pmflib_tasks.gate.comparison import have_same_parameters
from pmflib_tasks.stage import open_store, stage
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.order import find_counts


@dataclass(frozen=True)
class Decision:
    """Decision which model is live after a run.

    Parameters
    ----------
    outcome, reason
        As in the record of the run.
    live
        The live model.
    before
        Model that was live at the time of the decision.
    facts
        Sections of the record of the run: rows, model, scores of the new and of the live model, results of the gate,
        warnings, and the choice of the rank.
    """

    outcome: Outcome
    reason: str
    live: Reference
    before: Reference | None
    facts: RunFacts


@stage(name="publish")
def publish(config: PipelineConfig, stages: Mapping[str, Reference], address: str = "") -> Decision:
    """Decide whether the new model goes live, which requires passing the gate.

    Parameters
    ----------
    config
        The pipeline.
    stages
        References by stage: dataset, counts, start, model, scores; rank if it was selected; pooled with sites.
    address
        Dask scheduler of the run, for scoring the live model.

    Returns
    -------
    The decision, for the flow to record. It compares with the model that is live now, not at the start of the run.
    """
    store = open_store(config)
    report_progress("publish", 0, 1)
    new, live = stages["model"], find_live(store, config.name)
    read = {"rows": "dataset", "model": "model", "scores": "scores"}
    facts = RunFacts({name: _summary(store, stages[each]) for name, each in read.items()})
    gate: dict[str, object] = {"new": new.digest, "live": None if live is None else live.digest}
    facts.note(gate=gate)
    start = stages.get("start")
    diagnosis = {} if start is None else _summary(store, start).get("diagnosis", {})
    rank = _summary(store, stages["rank"]) if "rank" in stages else {}
    # held-out samples have answered what pairs can only suggest
    settled = diagnosis.get("rank_warnings", []) if rank.get("judged_by_samples") else []
    warnings = [each for each in diagnosis.get("warnings", []) if each not in settled]
    if (agreement := facts.agreement) is not None:
        warnings += agreement.warnings
    facts.note(warnings=warnings, **({"rank": rank} if rank else {}))
    outcome: Outcome = "promoted"
    chosen, reason = new, "first model of this pipeline"
    if live is not None and (withdrawn := find_withdrawal(config, live)):
        # no comparison may keep data that were withdrawn
        reason = f"promoted, because {withdrawn}"
    elif live is not None and have_same_parameters(store, new, live):
        # its reference stays as well, because new data alone do not change the comparison of the next model
        outcome, chosen, reason = "unchanged", live, "the live model, unchanged"
    elif live is not None:
        dataset, counts = stages["dataset"], find_counts(stages)
        decision = pass_gate(config, dataset, new, live, address)
        facts.note(gate=gate | decision.numbers.to_json())
        if decision.is_comparable:
            # the other predictors of a target would be fitted again to the same rows
            scores = evaluate.fn(config, dataset, counts, live, address, with_target=False)
            facts.note(live_scores=_summary(store, scores))
        reason = decision.reason
        if not decision.promoted:
            outcome, chosen = "kept", live
    report_progress("publish", 1, 1, reason)
    return Decision(outcome, reason, chosen, live, facts)


def find_withdrawal(config: PipelineConfig, live: Reference) -> str:
    """Explain in a clause why data that the live model was fitted to may not be used any more; empty if they may."""
    return next(filter(None, (find(config, live) for find in list_offers("find_withdrawal"))), "")


def locate_for_people(
    store: Store, live: Reference, stages: Mapping[str, Reference]
) -> dict[str, str]:
    """Return the live model and paths of it and of the marginals, which no record holds, as a store may move."""
    paths = {"live_model": live.digest, "live": store.name_artefact(live, "model")}
    if (made := stages.get(MARGINALS)) is not None:
        paths["marginals"] = store.name_artefact(made, GROUP)
    return paths


def _summary(store: Store, reference: Reference) -> Mapping[str, Any]:
    entry = store.find(reference.identity)
    return {} if entry is None else entry.summary
