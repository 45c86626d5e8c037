"""Implementation of ``pmf crowd --tags``: several labels per task, from files to a folder, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.base.errors import ConfigError
from pmflib_flows.console import out, print_json, progress_shown

TAKEN = (
    "source.path",
    "source.sample",
    "source.variable",
    "source.value",
    "source.delimiter",
    "source.encoding",
    "source.columns",
    "crowd.classes",
    "seed",
)
"""Options of label logs that also apply to tags."""


def label_tags(
    given: Mapping[str, Any],
    source_options: Mapping[str, Any],
    output: Path,
    options: Mapping[str, str],
    as_json: bool,
    split: str | None = None,
) -> None:
    """Estimate the tags of tasks tagged by many workers.

    Parameters
    ----------
    given
        Given options, by their names in a configuration.
    source_options
        Options of the source, with their defaults.
    output
        Folder for tags, workers and the joint PMF of the tags.
    options
        Names of the options on the command line.
    as_json
        Whether to print facts as JSON.
    split
        Sign between several tags in a cell, if there may be several.

    Raises
    ------
    ConfigError
        If an option does not apply to tags, or the folder is that of a pipeline.
    """
    from pmflib.apps.crowd.tags.tag_files import read_tag_files, write_tags
    from pmflib.apps.crowd.tags.tags import aggregate_tags
    from pmflib.ingest.csv.sniffing import sniff_source
    from pmflib.ingest.options import make_source
    from pmflib.ingest.sources import find_sources

    if strange := [options[name] for name in given if name not in TAKEN]:
        raise ConfigError(
            f"--tags finds several labels per task, and has no use for {', '.join(strange)}; leave them out"
        )
    if "source.path" not in given:
        raise ConfigError(
            "no PATH is given; say where the tags are: with --tags no pipeline is kept"
        )
    if output.suffix or (output / "pipeline.toml").exists():
        raise ConfigError(
            f"--output is {str(output)!r}; tags, workers and their joint PMF need a folder, and not that of a "
            "pipeline: name another"
        )
    source = make_source(dict(source_options))
    sources = find_sources(source.path, source.suffixes)
    source, _ = sniff_source(sources, source, {*source_options, "columns", "decimal"})
    with progress_shown(as_json):
        log = read_tag_files(sources, source, given.get("crowd.classes"), split)
        found = aggregate_tags(log, rng=given.get("seed", 0))
    write_tags(found, output)
    facts = {
        "tasks": log.n_tasks,
        "workers": log.n_workers,
        "tags": [str(name) for name in log.tags.to_pylist()],
        "taggings": len(log.taggings),
        "latent_classes": found.model.rank,
        "reason": found.reason,
        "set_aside": log.quarantine.num_rows,
        "path": str(output),
    }
    if as_json:
        print_json(facts)
        return
    for key in ("tasks", "workers", "taggings", "latent_classes", "set_aside"):
        out.print(f"{key}: {facts[key]}")
    out.print(f"latent classes: {found.reason}")
    out.print(f"Tags, workers and the joint PMF of the tags: {output}")
