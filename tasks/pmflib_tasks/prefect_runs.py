"""Flow runs of Prefect, and stages as their tasks, with assets and artifacts. Only its runs import Prefect."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from pmflib.store.artefacts import Entry, Reference

R = TypeVar("R")


def is_flow_run() -> bool:
    """Return whether this context is within a Prefect flow run."""
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


def find_flow_run_id() -> str | None:
    """Return the id of the current flow run of Prefect; None outside of one."""
    if not is_flow_run():
        return None
    from prefect.runtime import flow_run

    return str(flow_run.id)


_pipeline: ContextVar[str | None] = ContextVar("_pipeline", default=None)
"""Name of the pipeline of the current task of Prefect."""
MOST_FACTS, MOST_CHARACTERS = 40, 1000
"""Rows of a table in Prefect, and characters of a cell: names and levels of data may have any length."""
_before: dict[str, frozenset[str]] = {}
"""Identities of the artefacts that the result of a stage was made from, directly or not, by its own identity."""


def run_task(
    name: str,
    work: Callable[[], R],
    *,
    pipeline: str,
    makes: str,
    given: Sequence[Reference],
    waits: Sequence[float],
    is_worth_a_retry: Callable[[BaseException], bool],
) -> R:
    """Run a stage as a Prefect task.

    Parameters
    ----------
    name, work
        Name and work of the stage.
    pipeline
        Name of the pipeline.
    makes
        Kind of artefact that the stage makes, which is an asset of the pipeline in Prefect; empty if it makes none.
    given
        Artefacts that it uses: dependencies of the asset.
    waits
        Seconds before each retry.
    is_worth_a_retry
        Whether the stage may succeed after an error when it runs again.

    Notes
    -----
    Prefect draws an edge from each task whose result a task is given, once for every input of the former: a stage after
    six others would have dozens. So the task has no parameters, and waits for the stages before it only: those whose
    results are not contained in another that it is given.
    """
    from prefect import Task, task
    from prefect.assets import materialize
    from prefect.cache_policies import NO_CACHE
    from prefect.client.schemas.objects import State, TaskRun

    def can_retry(_: Task[[], R], run: TaskRun, state: State[R]) -> bool:
        return is_worth_a_retry(cast(BaseException, state.data))

    def run() -> R:
        token = _pipeline.set(pipeline)
        try:
            return work()
        finally:
            _pipeline.reset(token)

    contained = frozenset[str]().union(*(_before.get(each.identity, ()) for each in given))
    nearest = [each for each in given if each.identity not in contained]
    kinds = {each.kind for each in given}
    options: dict[str, Any] = {
        "name": name,
        # the store's manifest decides which artefacts exist; a second cache could contradict it
        **{"cache_policy": NO_CACHE, "persist_result": False},
        "retries": len(waits),
        "retry_delay_seconds": list(waits),
        "retry_condition_fn": can_retry,
        # the artefact of an earlier run, which this one goes on from, is the same asset
        "asset_deps": [make_asset_key(pipeline, kind) for kind in sorted(kinds - {makes})],
    }
    decorate = materialize(make_asset_key(pipeline, makes), **options) if makes else task(**options)
    result = decorate(run)(wait_for=nearest)
    if isinstance(result, Reference):
        _before[result.identity] = contained | {each.identity for each in given}
    return result


def make_asset_key(pipeline: str, kind: str) -> str:
    """Make the key of a Prefect asset: a kind of artefact of a pipeline.

    Examples
    --------
    >>> make_asset_key("nightly", "model")
    'pmf://nightly/model'
    """
    return f"pmf://{_make_slug(pipeline)}/{kind}"


def make_artifact_key(pipeline: str, what: str) -> str:
    """Make the key of a Prefect artifact, from a-z, 0-9 and dashes.

    Parameters
    ----------
    pipeline
        Name of the pipeline; if characters of it are replaced, a short hash keeps keys distinct.
    what
        Kind of artefact, or another content.

    Examples
    --------
    >>> make_artifact_key("nightly", "model")
    'pmf-nightly-model'
    >>> make_artifact_key("Nightly 2", "model")
    'pmf-nightly-2-8bb0fa-model'
    """
    return f"pmf-{_make_slug(pipeline)}-{what}"


def _make_slug(pipeline: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")
    if slug == pipeline:
        return slug
    mark = hashlib.sha256(pipeline.encode()).hexdigest()[:6]
    return f"{slug}-{mark}" if slug else mark


def show_entry(entry: Entry, seconds: float) -> None:
    """Publish the digest, time, summary and inputs of an artefact as a table in Prefect."""
    pipeline = _pipeline.get()
    if pipeline is None:
        return
    facts: dict[str, object] = {"digest": entry.reference.digest[:24], "seconds": round(seconds, 2)}
    rows = [
        {"what": key[:MOST_CHARACTERS], "value": _abridge(value)[:MOST_CHARACTERS]}
        for key, value in list((facts | entry.summary).items())[:MOST_FACTS]
    ]
    rows += [
        {"what": f"input {role}", "value": reference.digest[:24]}
        for role, reference in list(entry.inputs.items())[:MOST_FACTS]
    ]
    kind = entry.reference.kind
    # an unreachable server must not fail the stage, whose artefact is in the store
    with suppress(Exception):
        from prefect.artifacts import create_table_artifact
        from prefect.assets import add_asset_metadata

        create_table_artifact(key=make_artifact_key(pipeline, kind), table=rows, description=kind)
        # refused for a kind that the stage did not announce
        add_asset_metadata(
            make_asset_key(pipeline, kind), {row["what"]: row["value"] for row in rows}
        )


def show_markdown(what: str, markdown: str) -> None:
    """Publish a text in Markdown in Prefect."""
    pipeline = _pipeline.get()
    if pipeline is not None:
        with suppress(Exception):
            from prefect.artifacts import create_markdown_artifact

            create_markdown_artifact(
                key=make_artifact_key(pipeline, what), markdown=markdown, description=what
            )


def _abridge(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_abridge(item)}" for key, item in list(value.items())[:12])
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:200]
