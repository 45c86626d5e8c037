"""Tables as files of SPSS and Stata: codes with their labels, descriptions and codes declared missing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.errors import PmfError, SchemaWarning
from pmflib.schema.file_columns import Code, FileColumn
from pmflib.store.parquet_batches import read_batches
from pmflib.store.table_files import Writer
from pmflib.surveys.statistics_files.described_columns import describe_columns

BATCH_CELLS = 1 << 19
"""Number of cells of a piece."""
LONG = 2_147_483_620
"""Largest integer that Stata keeps as one."""


def import_package(name: str, format: str) -> Any:
    """Import a package of the extra "statistics-files", which takes files of a format.

    Raises
    ------
    PmfError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise PmfError(
            f"files .{format} need the package {name}, which is not installed: pip install "
            "'pmflib[statistics-files]'"
        ) from None


def write_statistics(
    path: Path, format: str, rows: Path, columns: Mapping[str, FileColumn]
) -> None:
    """Write the rows of a Parquet file as a file of SPSS or Stata, in pieces.

    A column of texts that all have codes is written as these codes, with their labels. A name that the format does not
    allow is changed, and is then the description of its column.

    Parameters
    ----------
    path
        Output file.
    format
        "sav", "zsav" or "dta".
    rows
        The Parquet file.
    columns
        Codes, labels and missing codes of columns, by name. Stata has labels of whole numbers alone, and declares no
        other codes missing than its letters.

    Warns
    -----
    SchemaWarning
        If texts are longer than the format allows, and are cut.
    """
    # imported here, as it is slow to load
    import pyarrow.parquet as pq

    library = import_package("readstat_arrow", format)
    options: dict[str, Any] = {"rename_invalid_names": True, "on_text_limits_exceeded": "truncate"}
    if format != "dta":
        options["compression"] = "zlib" if format == "zsav" else "rows"
    make = library.DtaWriter if format == "dta" else library.SavWriter
    with pq.ParquetFile(rows) as file, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", library.ReadstatWarning)
        fields = list(file.schema_arrow)
        n_rows = max(1, BATCH_CELLS // len(fields))
        plans = [_plan(file, each, n_rows, columns.get(each.name, TEXTS)) for each in fields]
        schema = pa.schema([(plan.name, plan.dtype) for plan in plans])
        about = library.Metadata(**_describe(plans, format))
        with make(path, schema, file.metadata.num_rows, about, **options) as writer:
            for batch in read_batches(file, n_rows):
                arrays = [
                    plan.encode(array) for plan, array in zip(plans, batch.columns, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    if cut := [str(each.message) for each in said if "truncated" in str(each.message)]:
        text = f"{len(cut)} texts of the output are longer than its format allows: {cut[0]}"
        warnings.warn(text, SchemaWarning, stacklevel=2)


TEXTS = FileColumn(is_number=False)
"""Column of texts, which are their own codes."""


@dataclass(frozen=True)
class _Plan:
    """How a column is written: its type, greatest length of a text in bytes, and what is said of it."""

    name: str
    dtype: pa.DataType
    width: int
    column: FileColumn

    def encode(self, array: pa.Array) -> pa.Array:
        """Convert texts to their codes; letters of missing numbers become null, other arrays are kept."""
        if not _is_text(array.type):
            return array
        indices, codes = _find_codes(array, self.column)
        if self.column.is_number:
            codes = [None if isinstance(code, str) else code for code in codes]
        return pa.array(codes, self.dtype).take(indices)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype.value_type if pa.types.is_dictionary(dtype) else dtype))


def _find_codes(array: pa.Array, column: FileColumn) -> tuple[pa.Array, list[Code | None]]:
    """Split texts into indices and the codes of distinct ones; None for a text without a code."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return coded.indices, [column.find_code(text) for text in coded.dictionary.to_pylist()]


def _plan(file: Any, field: pa.Field, n_rows: int, column: FileColumn) -> _Plan:
    """Plan a column, after a pass over its texts."""
    label = column.label or ("" if field.name.isidentifier() else field.name)
    if not _is_text(field.type):
        # a column of the raw files may have the name of a score
        return _Plan(field.name, field.type, 0, FileColumn("" if label == column.label else label))
    column = replace(column, label=label)
    is_known, is_whole, width = True, True, 1
    for batch in read_batches(file, n_rows, columns=[field.name]):
        array = batch.column(0)
        codes = _find_codes(array, column)[1]
        is_known = is_known and None not in codes
        numbers = [code for code in codes if not isinstance(code, str | None)]
        is_whole = is_whole and all(map(_is_long, numbers))
        texts = array.dictionary if pa.types.is_dictionary(array.type) else array
        texts = texts if column.is_number else pa.array(codes, pa.string())
        width = max(width, pc.max(pc.binary_length(texts)).as_py() or 1)
    if not column.is_number:
        return _Plan(field.name, pa.string(), width, column)
    if not is_known:
        return _Plan(field.name, pa.string(), width, replace(TEXTS, label=column.label))
    return _Plan(field.name, pa.int32() if is_whole else pa.float64(), 0, column)


def _is_long(number: float) -> bool:
    return float(number).is_integer() and abs(number) <= LONG


def _describe(plans: Sequence[_Plan], format: str) -> dict[str, Any]:
    """Collect what is said of columns, as arguments of `readstat_arrow.Metadata`."""
    columns = {plan.name: plan.column for plan in plans}
    about: dict[str, Any] = {
        "variable_labels": {name: each.label for name, each in columns.items() if each.label},
        "storage_widths": {plan.name: plan.width for plan in plans if plan.width},
        "measures": {name: each.measure for name, each in columns.items() if each.measure},
        "formats": {plan.name: "F12.4" for plan in plans if pa.types.is_floating(plan.dtype)},
        "value_labels": {name: _list_labels(each, format) for name, each in columns.items()},
    }
    if format != "dta":
        about["missing_values"] = {name: _declare_missing(each) for name, each in columns.items()}
    return about


def _list_labels(column: FileColumn, format: str) -> list[dict[str, Any]]:
    """Labels of codes. Stata has them for whole numbers and letters of missing ones, SPSS for numbers and texts."""
    found: list[dict[str, Any]] = []
    for code, text in column.texts.items():
        if not isinstance(code, str):
            is_possible = format != "dta" or _is_long(code)
        else:
            is_possible = column.is_number == (format == "dta")
            code = code.removeprefix(".") if column.is_number else code
        if is_possible:
            found.append({"value": code, "label": text})
    return found


def _declare_missing(column: FileColumn) -> dict[str, Any]:
    """Codes that are declared missing, but for letters: three of them, or a range and one."""
    alone = [code for code in column.missing if isinstance(code, str) != column.is_number]
    if not column.ranges:
        return {"values": alone[:3]}
    (low, high), *_ = column.ranges
    return {"lo": low, "hi": high} | ({"value": alone[0]} if alone else {})


WRITER = Writer(
    lambda format: import_package("readstat_arrow", format), write_statistics, describe_columns
)
"""Writer of files of SPSS and Stata."""
