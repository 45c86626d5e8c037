"""Output files of tables: suffixes, exclusive access, and atomic writing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from pmflib.base.errors import ConfigError
from pmflib.base.hooks import find_offers
from pmflib.base.texts import RUN_BY_SPREADSHEETS, guard_cell, restore_cell
from pmflib.schema import Schema
from pmflib.schema.file_columns import FileColumn
from pmflib.store.objects.local_folder import lock_folder

ACCOUNT = b"pmf.account"
"""Metadata key of a part with its account of rows, JSON; joined files do not have it."""


@dataclass(frozen=True)
class Writer:
    """Writes files of other formats than CSV and Parquet; features offer them by suffix, hook ``"writers"``.

    Parameters
    ----------
    check
        Called with a format, a suffix without its point, before anything is computed for such a file; raises a
        PmfError if the package that writes it is not installed.
    write
        Writes a file, given its path, its format, a Parquet file of the rows, and the codes and labels of columns.
    describe
        Returns the codes and labels of columns of results, given a schema, and the raw files and their options; by
        default none.
    """

    check: Callable[[str], object]
    write: Callable[[Path, str, Path, Mapping[str, FileColumn]], None]
    describe: Callable[[Schema, Iterable[str | None], Any], Mapping[str, FileColumn]] = (
        lambda schema, paths, source: {}
    )


def list_suffixes() -> tuple[str, ...]:
    """Suffixes of the files that can be written."""
    return (".csv", ".parquet", *find_offers("writers"))


def describe_columns(
    path: Path, schema: Schema, paths: Iterable[str | None], source: Any
) -> Mapping[str, FileColumn]:
    """Describe the columns of results for an output file, if its format has codes and labels.

    Parameters
    ----------
    path
        The output.
    schema
        Variables and levels.
    paths, source
        Raw files, and the options of reading them.
    """
    writer = find_offers("writers").get(path.suffix.lower())
    return {} if writer is None else writer.describe(schema, paths, source)


def check_suffix(path: Path) -> None:
    """Check the suffix of an output file.

    Raises
    ------
    ConfigError
        If it is not one of `list_suffixes`.
    PmfError
        If the package that writes it is not installed.
    """
    if (suffix := path.suffix.lower()) not in list_suffixes():
        raise ConfigError(
            f"output {str(path)!r} has no supported suffix; name a file with one of {', '.join(list_suffixes())}"
        )
    if writer := find_offers("writers").get(suffix):
        writer.check(suffix.removeprefix("."))


def check_no_file(output: Path) -> None:
    """Check that an output folder is not an existing file.

    Raises
    ------
    ConfigError
        If it is.
    """
    if output.exists() and not output.is_dir():
        raise ConfigError(
            f"output {str(output)!r} is a file; name a folder, or a file with one of {', '.join(list_suffixes())}"
        )


def name_parts(output: Path) -> Path:
    """Folder for the parts of an output: a hidden folder beside a file, or the output folder itself."""
    is_file = output.suffix.lower() in list_suffixes()
    return output.with_name(f".{output.name}.parts") if is_file else output


@contextmanager
def hold_output(output: Path) -> Iterator[None]:
    """Hold exclusive access to an output file or folder.

    Raises
    ------
    ConfigError
        If another process writes to it, or a file exists in place of a folder.
    """
    folder = name_parts(output)
    check_no_file(folder)
    descriptor = lock_folder(folder)
    if descriptor is None:
        raise ConfigError(
            f"another process writes to output {str(output)!r}; wait until it is done, or name another output"
        )
    try:
        yield
    finally:
        if folder != output:
            # keep the parts of an interrupted call
            with suppress(OSError):
                folder.rmdir()
        os.close(descriptor)


@contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """Replace a file atomically: by the hidden draft beside it that is to be written, unless there is an error."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_file(
    path: Path,
    schema: pa.Schema,
    tables: Iterable[pa.Table | pa.RecordBatch],
    described: Mapping[str, FileColumn] = MappingProxyType({}),
) -> int:
    """Write tables of one schema to a file atomically.

    In CSV files, texts and column names that spreadsheets would run as formulas are prefixed with an apostrophe (see
    `guard_cell`), which `read_file` removes. Rows for a `Writer`, such as those of SPSS and Stata, whose headers state
    the number of rows and the lengths of texts, are first written to a Parquet file beside the output.

    Parameters
    ----------
    path
        Output file, replaced if it exists; its folder is created.
    schema
        Columns of the tables.
    tables
        Rows, in order.
    described
        Codes and labels of columns by name, for a `Writer`.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is not one of `list_suffixes`.
    """
    # imported here, as both are slow to load
    import pyarrow.csv
    import pyarrow.parquet as pq

    check_suffix(path)
    if other := find_offers("writers").get(path.suffix.lower()):
        rows = path.with_name(f".{path.name}.parquet")
        try:
            n_rows = write_file(rows, schema, tables)
            with draft_file(path) as draft:
                other.write(draft, path.suffix.lower().removeprefix("."), rows, described)
        finally:
            rows.unlink(missing_ok=True)
        return n_rows
    if is_csv := path.suffix.lower() == ".csv":
        # the CSV writer does not support dictionaries
        schema = pa.schema([(field.name, _spell_out(field.type)) for field in schema])
    path.parent.mkdir(parents=True, exist_ok=True)
    n_rows = 0
    with (
        draft_file(path) as draft,
        pyarrow.csv.CSVWriter(draft, _map_texts(schema.empty_table(), guard_cell).schema)
        if is_csv
        else pq.ParquetWriter(draft, schema, **write_options(schema)) as writer,
    ):
        for table in tables:
            found = table.cast(schema)
            writer.write(_map_texts(found, guard_cell) if is_csv else found)
            n_rows += table.num_rows
    return n_rows


def read_file(path: Path) -> pa.Table:
    """Read a file written by `write_file`, restoring texts; the types of CSV columns are inferred."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".csv":
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return _map_texts(pyarrow.csv.read_csv(path, parse_options=options), restore_cell)
    return pq.read_table(path)


def _map_texts(
    table: pa.Table | pa.RecordBatch, change: Callable[[str], str]
) -> pa.Table | pa.RecordBatch:
    """Change the texts and column names of a table that a spreadsheet might run as formulas."""
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_text and pc.any(pc.match_substring_regex(column, RUN_BY_SPREADSHEETS)).as_py():
            texts = [None if text is None else change(text) for text in column.to_pylist()]
            column = pa.array(texts, column.type)
        columns.append(column)
    return type(table).from_arrays(columns, names=list(map(change, table.schema.names)))


def write_options(schema: pa.Schema) -> dict[str, Any]:
    """Options of `pyarrow.parquet.ParquetWriter`: dictionaries for texts, delta encoding for integers."""
    coded = [f.name for f in schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    steps = {f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_int64(f.type)}
    return {"compression": "zstd", "use_dictionary": coded, "column_encoding": steps or None}


def _spell_out(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def join_files(
    folder: Path,
    path: Path,
    order: str | None = None,
    *,
    in_all: bool = False,
    described: Mapping[str, FileColumn] = MappingProxyType({}),
) -> int:
    """Join the Parquet files of a folder to one file.

    Parameters
    ----------
    folder
        Folder of at least one Parquet file, all with the same schema.
    path
        Output file, as for `write_file`.
    order
        Column to sort by; None keeps the order.
    in_all
        Whether to sort the rows of all files together; otherwise each file is sorted separately.
    described
        As for `write_file`.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is not one of `list_suffixes`.
    """
    import pyarrow.parquet as pq

    parts = sorted(folder.glob("*.parquet"))
    schema = pq.read_schema(parts[0])
    common = {key: text for key, text in (schema.metadata or {}).items() if key != ACCOUNT}
    schema = schema.with_metadata(common)
    tables: Iterable[pa.Table] = map(pq.read_table, parts)
    if in_all:
        tables = [pa.concat_tables(tables)]
    if order is not None:
        tables = (table.sort_by(order) for table in tables)
    return write_file(path, schema, tables, described)
