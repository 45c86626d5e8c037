"""The part of the OpenLineage specification that events of pmflib use, written down as one JSON schema.

https://openlineage.io/spec/2-0-2/OpenLineage.json and the facets that it names. Stricter than the specification: what
is not listed here is not allowed, so that a name spelt wrong is seen.
"""

from typing import Any

import jsonschema  # type: ignore[import-untyped]

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
UUID: dict[str, Any] = {"type": "string", "format": "uuid", "pattern": r"^[0-9a-f-]{36}$"}
URI: dict[str, Any] = {"type": "string", "pattern": r"^[a-z]+:\S+$"}


def an_object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def a_list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def a_facet(name: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    pattern = rf"^https://openlineage\.io/spec/facets/\d-\d-\d/{name}\.json#/\$defs/{name}$"
    base = {"_producer": URI, "_schemaURL": {"type": "string", "pattern": pattern}}
    return an_object(base | required, optional)


RUN = an_object({"runId": UUID})
JOB_NAME = {"namespace": TEXT, "name": TEXT}
JOB = an_object(JOB_NAME)

RUN_FACETS = {
    "processing_engine": a_facet(
        "ProcessingEngineRunFacet",
        {"version": TEXT},
        {"name": TEXT, "openlineageAdapterVersion": TEXT},
    ),
    "parent": a_facet(
        "ParentRunFacet", {"run": RUN, "job": JOB}, {"root": an_object({"run": RUN, "job": JOB})}
    ),
    "errorMessage": a_facet(
        "ErrorMessageRunFacet",
        {"message": TEXT, "programmingLanguage": TEXT},
        {"stackTrace": TEXT},
    ),
    "tags": a_facet(
        "TagsRunFacet",
        {"tags": a_list(an_object({"key": TEXT, "value": TEXT}, {"source": TEXT}))},
    ),
}
JOB_FACETS = {
    "jobType": a_facet(
        "JobTypeJobFacet",
        {"processingType": {"enum": ["BATCH", "STREAMING", "SERVICE"]}, "integration": TEXT},
        {"jobType": TEXT},
    )
}
DATASET_FACETS = {
    "version": a_facet("DatasetVersionDatasetFacet", {"datasetVersion": TEXT}),
    "symlinks": a_facet(
        "SymlinksDatasetFacet",
        {"identifiers": a_list(an_object({"namespace": TEXT, "name": TEXT, "type": TEXT}))},
    ),
}
ASSERTION = an_object(
    {"assertion": TEXT, "success": {"type": "boolean"}},
    {
        key: TEXT
        for key in ("column", "severity", "name", "description", "expected", "actual", "content")
    },
)
INPUT_FACETS = {
    "inputStatistics": a_facet(
        "InputStatisticsInputDatasetFacet",
        {},
        {"rowCount": COUNT, "size": COUNT, "fileCount": COUNT},
    ),
    "dataQualityMetrics": a_facet(
        "DataQualityMetricsInputDatasetFacet",
        {
            "columnMetrics": {
                "type": "object",
                "additionalProperties": an_object({}, {"nullCount": COUNT}),
            }
        },
        {"rowCount": COUNT, "bytes": COUNT, "fileCount": COUNT},
    ),
    "dataQualityAssertions": a_facet(
        "DataQualityAssertionsDatasetFacet", {"assertions": a_list(ASSERTION)}
    ),
}
OUTPUT_FACETS = {
    "outputStatistics": a_facet(
        "OutputStatisticsOutputDatasetFacet",
        {},
        {"rowCount": COUNT, "size": COUNT, "fileCount": COUNT},
    )
}
DATASET = {"namespace": TEXT, "name": TEXT}
EVENT = an_object(
    {
        "eventType": {"enum": ["START", "COMPLETE", "ABORT", "FAIL"]},
        "eventTime": {
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$",
        },
        "run": an_object({"runId": UUID, "facets": an_object({}, RUN_FACETS)}),
        "job": an_object(JOB_NAME | {"facets": an_object({}, JOB_FACETS)}),
        "inputs": a_list(
            an_object(
                DATASET,
                {
                    "facets": an_object({}, DATASET_FACETS),
                    "inputFacets": an_object({}, INPUT_FACETS),
                },
            )
        ),
        "outputs": a_list(
            an_object(
                DATASET,
                {
                    "facets": an_object({}, DATASET_FACETS),
                    "outputFacets": an_object({}, OUTPUT_FACETS),
                },
            )
        ),
        "producer": URI,
        "schemaURL": {
            "const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
        },
    }
)


def check_event(event: Any) -> None:
    """Check an event against the specification."""
    jsonschema.validate(event, EVENT, jsonschema.Draft202012Validator)
