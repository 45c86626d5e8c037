"""Flow runs of Prefect and the artifacts of their stages; Prefect is never imported outside of its runs."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pmflib.store.artefacts import Entry


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


def find_task_parameters() -> dict[str, Any] | None:
    """Return the parameters of the current task run of Prefect; None outside of one."""
    if "prefect" not in sys.modules:
        return None
    from prefect.context import TaskRunContext

    context = TaskRunContext.get()
    return None if context is None else dict(context.parameters)


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
    slug = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-")
    if slug != pipeline:
        mark = hashlib.sha256(pipeline.encode()).hexdigest()[:6]
        slug = f"{slug}-{mark}" if slug else mark
    return f"pmf-{slug}-{what}"


def show_entry(entry: Entry, seconds: float) -> None:
    """Publish the digest, time, summary and inputs of an artefact as a table in Prefect."""
    pipeline = _find_pipeline()
    if pipeline is None:
        return
    facts: dict[str, object] = {"digest": entry.reference.digest[:24], "seconds": round(seconds, 2)}
    rows = [
        {"what": key, "value": _abridge(value)} for key, value in (facts | entry.summary).items()
    ]
    rows += [
        {"what": f"input {role}", "value": reference.digest[:24]}
        for role, reference in list(entry.inputs.items())[:20]
    ]
    kind = entry.reference.kind
    # an unreachable server must not fail the stage, whose artefact is in the store
    with suppress(Exception):
        from prefect.artifacts import create_table_artifact

        create_table_artifact(key=make_artifact_key(pipeline, kind), table=rows, description=kind)


def show_markdown(what: str, markdown: str) -> None:
    """Publish a text in Markdown in Prefect."""
    pipeline = _find_pipeline()
    if pipeline is not None:
        with suppress(Exception):
            from prefect.artifacts import create_markdown_artifact

            create_markdown_artifact(
                key=make_artifact_key(pipeline, what), markdown=markdown, description=what
            )


def _find_pipeline() -> str | None:
    """Return the name of the pipeline of the current stage; None outside of a task of Prefect."""
    parameters = find_task_parameters()
    return None if parameters is None else str(parameters["config"].name)


def _abridge(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_abridge(item)}" for key, item in list(value.items())[:12])
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:200]
