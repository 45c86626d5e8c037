"""Names of datasets as OpenLineage has them: raw files by their place, artefacts by pipeline and kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmflib.ingest.source_urls import mask_secrets
from pmflib.open_lineage.facets import describe_place, describe_size, describe_version
from pmflib.store.artefacts import Reference, Store

Dataset = dict[str, Any]


def name_file(path: str) -> tuple[str, str]:
    """Namespace and name of a raw file, without secrets.

    Examples
    --------
    >>> name_file("/data/a.csv")
    ('file', '/data/a.csv')
    >>> name_file("s3://key:secret@bucket/2026/a.csv")
    ('s3://***@bucket', '2026/a.csv')
    >>> name_file("zip://a.csv::https://host/all.zip?token=t")
    ('https://host', 'zip://a.csv::https://host/all.zip?token=***')
    """
    shown = mask_secrets(path)
    # of an address in parts the last says where the file is
    place = shown.rpartition("::")[2]
    scheme, is_url, rest = place.partition("://")
    if not is_url:
        return "file", shown
    authority, _, name = rest.partition("/")
    return f"{scheme}://{authority}", name if place == shown else shown


def describe_file(file: Mapping[str, Any], place: str = "") -> Dataset:
    """Dataset of a raw file that a run has read.

    Parameters
    ----------
    file
        Name, digest and bytes, as a run records them.
    place
        Path or URL; by default the name.
    """
    namespace, name = name_file(place or str(file["name"]))
    return {
        "namespace": namespace,
        "name": name,
        "facets": {"version": describe_version(str(file["digest"]))},
        "inputFacets": {"inputStatistics": describe_size(int(file.get("bytes", 0)))},
    }


def describe_artefact(store: Store, namespace: str, pipeline: str, reference: Reference) -> Dataset:
    """Dataset of an artefact: one for each kind of artefact of a pipeline, with the digest as its version."""
    facets = {"version": describe_version(reference.digest)}
    if reference.path:
        facets["symlinks"] = describe_place(f"{store.address}/{reference.path}")
    return {"namespace": namespace, "name": f"{pipeline}.{reference.kind}", "facets": facets}
