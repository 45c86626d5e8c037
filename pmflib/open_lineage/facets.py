"""Facets of OpenLineage events, as plain JSON types: what is said of a run, a job or a dataset beyond its name.

Every facet names its own schema: https://openlineage.io/docs/spec/facets.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from pmflib.errors import PmfError
from pmflib.ingest.source_urls import mask_secrets

Facet = dict[str, Any]

PRODUCER = f"urn:pmflib:{version('pmflib')}"
"""URI of what makes the events."""


def _make(facet: str, revision: str, /, **content: Any) -> Facet:
    schema = f"https://openlineage.io/spec/facets/{revision}/{facet}.json#/$defs/{facet}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def describe_parent(run_id: str, namespace: str, name: str) -> Facet:
    """Facet of the run that a stage is part of."""
    run, job = {"runId": run_id}, {"namespace": namespace, "name": name}
    return _make("ParentRunFacet", "1-1-0", run=run, job=job, root={"run": run, "job": job})


@cache
def describe_engine(package: str) -> Facet:
    """Facet of what runs the stages: the package prefect, or pmflib alone."""
    return _make(
        "ProcessingEngineRunFacet",
        "1-1-1",
        name={"prefect": "Prefect"}.get(package, package),
        version=version(package),
        openlineageAdapterVersion=version("pmflib"),
    )


def describe_error(error: BaseException) -> Facet:
    """Facet of an error: its message; its place in the code, too, unless it is something for a person to correct."""
    content = {"message": mask_secrets(f"{type(error).__name__}: {error}")}
    if not isinstance(error, PmfError):
        content["stackTrace"] = mask_secrets("".join(traceback.format_exception(error)))
    return _make("ErrorMessageRunFacet", "1-0-1", programmingLanguage="Python", **content)


def describe_tags(tags: Mapping[str, object]) -> Facet:
    """Facet of what no facet of the specification is for: pairs of name and text."""
    pairs = [{"key": k, "value": str(v), "source": "pmflib"} for k, v in tags.items()]
    return _make("TagsRunFacet", "1-0-0", tags=pairs)


def describe_job(kind: str) -> Facet:
    """Facet of a job: a "PIPELINE" or a "STAGE"."""
    return _make(
        "JobTypeJobFacet", "2-0-3", processingType="BATCH", integration="PMFLIB", jobType=kind
    )


def describe_version(digest: str) -> Facet:
    """Facet of the version of a dataset: the digest of its content."""
    return _make("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=digest)


def describe_place(path: str) -> Facet:
    """Facet of the folder that holds a version of a dataset."""
    place = {"namespace": "file", "name": path, "type": "LOCATION"}
    return _make("SymlinksDatasetFacet", "1-0-1", identifiers=[place])


def describe_size(n_bytes: int) -> Facet:
    """Facet of the size of an input, bytes."""
    return _make("InputStatisticsInputDatasetFacet", "1-0-0", size=n_bytes)


def describe_output(n_rows: int) -> Facet:
    """Facet of the number of rows written."""
    return _make("OutputStatisticsOutputDatasetFacet", "1-0-2", rowCount=n_rows)


def describe_rows(n_rows: int, made_missing: Mapping[str, int]) -> Facet:
    """Facet of the rows of a dataset, and of the values of each variable that are no level and count as missing."""
    columns = {name: {"nullCount": n} for name, n in made_missing.items()}
    return _make(
        "DataQualityMetricsInputDatasetFacet", "1-0-2", rowCount=n_rows, columnMetrics=columns
    )


def describe_findings(findings: Sequence[Mapping[str, Any]]) -> Facet:
    """Facet of what guards of quality found, also what passed.

    Parameters
    ----------
    findings
        Each with guard, subject, measured, limit, action, passed and sentence, as a run records them.
    """
    assertions = []
    for finding in findings:
        assertion = {"assertion": str(finding["guard"]), "success": bool(finding["passed"])}
        described = {
            "name": finding.get("subject"),
            "description": finding.get("sentence"),
            "expected": finding.get("limit"),
            "actual": finding.get("measured"),
        }
        assertion |= {k: mask_secrets(str(v)) for k, v in described.items() if v is not None}
        assertion["severity"] = "error" if finding.get("action") == "stop" else "warn"
        assertions.append(assertion)
    return _make("DataQualityAssertionsDatasetFacet", "1-1-0", assertions=assertions)
