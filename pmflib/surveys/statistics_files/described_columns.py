"""Codes, labels and missing codes of the columns of predictions, for files of SPSS and Stata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_declared
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema, Variable
from pmflib.schema.file_columns import Code, FileColumn
from pmflib.schema.variable import as_text

_UNDECLARED = FileColumn()


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
    declared = next(filter(None, (read_declared(each, config) for each in sources)), {})
    found = dict(declared)
    if config.sample is not None and config.sample in declared:
        found["sample"] = declared[config.sample]
    for variable in schema:
        own = describe_variable(variable, declared.get(variable.column, _UNDECLARED))
        found[variable.name] = own
        predicted = f"{own.label or variable.name} (predicted)"
        found[f"{variable.name}.label"] = replace(own, label=predicted)
    return found


def describe_variable(variable: Variable, declared: FileColumn = _UNDECLARED) -> FileColumn:
    """Give every level of a variable a code.

    Levels keep the codes that their file declares, numbers are their own codes, and levels of other variables have
    their values as codes. Whatever has none of these, such as bins, is numbered by the smallest free integers.

    Parameters
    ----------
    variable
        The variable.
    declared
        What the file of its column says.
    """
    levels = variable.levels
    if variable.edges is not None or variable.part is not None:
        declared = FileColumn(declared.label)
    values = None if declared.texts else variable.values
    found: list[Code | None] = [*(values or map(declared.find_code, levels))]
    if len({*found} - {None}) < sum(code is not None for code in found):
        declared, found = FileColumn(declared.label), [None] * len(levels)
    used = {*declared.texts, *declared.missing, *found}
    free = (number for number in count(1) if number not in used)
    codes = [next(free) if code is None else code for code in found]
    own = {code: level for code, level in zip(codes, levels, strict=True) if as_text(code) != level}
    return replace(
        declared,
        measure=declared.measure or ("scale" if variable.edges else variable.role),
        texts={**declared.texts, **own},
        # new codes may be in a range that is declared missing
        ranges=() if None in found else declared.ranges,
    )
