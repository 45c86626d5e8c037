"""Models of a pipeline according to its records: live, past, rejected, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pmflib.base.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import digest_tree, fetch_all
from pmflib.store.run_records import RUNS, Action, RunRecord

Standing = Literal["live", "past", "rejected", "held back", "undecided"]
"""Status of a model. Past: it was live once. Rejected: by the gate. Held back: by a quality guard, usually before
a model was fitted. Undecided: its run ended before the gate."""


@dataclass(frozen=True)
class ModelStanding:
    """One model of a pipeline.

    Parameters
    ----------
    run
        Number of the first run that fitted it.
    made
        Start of that run, UTC, ISO 8601.
    model
        The model; None if the run was held back before fitting one.
    standing
        Status of the model.
    why
        Reason given by the last record about it.
    record
        Record of that run, with the scores of the model and the decision of the gate.
    """

    run: int
    made: str
    model: Reference | None
    standing: Standing
    why: str
    record: RunRecord


def list_models(records: Sequence[RunRecord]) -> list[ModelStanding]:
    """List the models of a pipeline and the runs that were held back, in order of runs.

    Parameters
    ----------
    records
        All records of the pipeline, in order.
    """
    live = records[-1].live if records else None
    once_live = {record.live for record in records}
    first: dict[Reference, RunRecord] = {}
    last: dict[Reference, RunRecord] = {}
    held_back = []
    for record in records:
        model = _find_subject(record)
        if model is not None:
            if record.action in RUNS:
                first.setdefault(model, record)
            if record.outcome != "unchanged" or model not in last:
                last[model] = record
        elif record.outcome == "held back":
            held_back.append(record)
    found = [_make_standing(record, None, "held back", record.reason) for record in held_back]
    for model, record in first.items():
        standing: Standing = "live" if model == live else "past"
        if model not in once_live:
            outcome = last[model].outcome
            if outcome == "unchanged":
                # its parameters equal those of a listed model
                continue
            standing = "rejected" if outcome == "kept" else "undecided"
            standing = "held back" if outcome == "held back" else standing
        found.append(_make_standing(record, model, standing, last[model].reason))
    return sorted(found, key=lambda each: each.run)


def find_candidate(records: Sequence[RunRecord], number: int | None) -> RunRecord:
    """Run whose model `pmf promote` makes live.

    Parameters
    ----------
    records
        All records of the pipeline, in order.
    number
        Number of the run; None selects the newest run with a model that is not live.

    Raises
    ------
    StoreError
        If there is no such run, or it made no model.
    """
    live = records[-1].live if records else None
    for record in reversed(records):
        model = record.model if record.action in RUNS else None
        if number is None:
            decided = record.outcome in ("promoted", "kept")
            if model is not None and model != live and decided:
                return record
        elif record.number == number:
            if model is None:
                raise StoreError(
                    f"run {number} made no model ({record.action}, {record.outcome}: {record.reason}); `pmf models` "
                    "lists those that did"
                )
            return record
    if number is None:
        raise StoreError("no run has a model that is not live; see `pmf models`")
    raise StoreError(
        f"run {number} is not in the history; `pmf models` lists the runs with a model"
    )


def find_previous(records: Sequence[RunRecord], number: int | None) -> RunRecord:
    """Run whose model `pmf rollback` makes live again.

    Parameters
    ----------
    records
        All records of the pipeline, in order.
    number
        Number of the run; None selects the model that was live before the current one.

    Raises
    ------
    StoreError
        If there is no such run, or its model was never live.
    """
    live = records[-1].live if records else None
    if number is not None:
        found = find_candidate(records, number)
        if all(record.live != found.model for record in records):
            raise StoreError(
                f"the model of run {number} was never live; `pmf promote {number}` makes it live"
            )
        return found
    earlier = [record.live for record in records if record.live not in (None, live)]
    for record in reversed(records):
        if earlier and record.action in RUNS and record.model == earlier[-1]:
            return record
    raise StoreError("no model was live before the current one; see `pmf models`")


@dataclass(frozen=True)
class LiveModel:
    """The live model, since when it is live, and why.

    Parameters
    ----------
    model
        Digest of the model.
    since
        Time when it became live, UTC, ISO 8601.
    run, action, why
        Number, action and reason of the record that made it live.
    """

    model: str
    since: str
    run: int
    action: Action
    why: str


def describe_live(records: Sequence[RunRecord]) -> LiveModel | None:
    """Describe the live model; None if there is none.

    Parameters
    ----------
    records
        All records of the pipeline, in order.
    """
    live = records[-1].live if records else None
    if live is None:
        return None
    since = records[-1]
    for record in reversed(records):
        if record.live != live:
            break
        since = record
    return LiveModel(live.digest, since.ended, since.number, since.action, since.reason)


def explain_withdrawal(records: Sequence[RunRecord], model: Reference) -> str:
    """Reason why a model must not be promoted automatically (it was rolled back); "" if there is none."""
    why = ""
    for record in records:
        if record.action == "rollback" and record.before == model.digest:
            why = f"model {model.digest[:12]} was rolled back by hand in run {record.number}"
        elif record.live == model:
            # it was made live again
            why = ""
    return why


def check_published(store: Store, model: Reference) -> None:
    """Check that a model is in the store and unchanged.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """
    if (
        store.find(model.identity) is None
        or digest_tree(fetch_all(store.locate(model))) != model.digest
    ):
        raise StoreError(
            f"model {model.digest[:12]} has changed since it was published, or its manifest entry is gone; "
            "`pmf verify` lists the damage, and running the pipeline again rebuilds it"
        )


def _find_subject(record: RunRecord) -> Reference | None:
    """Model that a record is about."""
    if record.action in ("promote", "rollback"):
        return record.live
    return record.model


def _make_standing(
    record: RunRecord, model: Reference | None, standing: Standing, why: str
) -> ModelStanding:
    return ModelStanding(record.number, record.started, model, standing, why, record)
