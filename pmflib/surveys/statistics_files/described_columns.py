"""Codes, labels and missing codes of the columns of predictions, for files of SPSS and Stata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pmflib.ingest.chunks import is_statistics
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema
from pmflib.surveys.statistics_files.file_columns import FileColumn, describe_variable
from pmflib.surveys.statistics_files.statistics_files import read_file_columns


def describe_columns(
    schema: Schema, paths: Iterable[str | None], config: SourceOptions
) -> dict[str, FileColumn]:
    """Describe the columns of scores and imputed rows, by their names.

    Parameters
    ----------
    schema
        Variables and levels.
    paths, config
        Raw files and their options; codes and labels are those of the first file of SPSS, Stata or SAS.

    Raises
    ------
    SourceError
        If there are no such files, or that file cannot be read.
    """
    sources = find_sources(tuple(filter(None, paths)), config.suffixes)
    source = next((each for each in sources if is_statistics(each, config)), None)
    declared = {} if source is None else read_file_columns(source, config)
    found = dict(declared)
    if config.sample in declared:
        found["sample"] = declared[config.sample]
    for variable in schema:
        own = describe_variable(variable, declared.get(variable.column, FileColumn()))
        found[variable.name] = own
        predicted = f"{own.label or variable.name} (predicted)"
        found[f"{variable.name}.label"] = replace(own, label=predicted)
    return found
