"""The one file that a person names for tables: its suffix, held by one process at a time, and written whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from pmflib.core.errors import ConfigError
from pmflib.core.texts import RUN_BY_SPREADSHEETS, guard_cell, restore_cell
from pmflib.store.objects.local_folder import lock_folder

ACCOUNT = b"pmf.account"
"""Metadata of a part: its account of rows, JSON; a file joined from parts has it not."""
SUFFIXES = (".csv", ".parquet")
"""Suffixes of files that can be written."""


def check_suffix(path: Path) -> None:
    """Refuse a file that can not be written, by its suffix.

    Raises
    ------
    ConfigError
        If the suffix is none of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"output is {str(path)!r}; its suffix says what is written: name a file .csv or .parquet"
        )


def check_no_file(output: Path) -> None:
    """Refuse a file where a folder is to be.

    Raises
    ------
    ConfigError
        If it is one.
    """
    if output.exists() and not output.is_dir():
        raise ConfigError(
            f"output {str(output)!r} is a file; name a folder, or a file .csv or .parquet"
        )


def name_parts(output: Path) -> Path:
    """Folder for the parts of an output: beside a file, and a folder itself."""
    is_file = output.suffix.lower() in SUFFIXES
    return output.with_name(f".{output.name}.parts") if is_file else output


@contextmanager
def hold_output(output: Path) -> Iterator[None]:
    """Let no other process write to a file, or into a folder, meanwhile: what is there afterwards is of one of them.

    Raises
    ------
    ConfigError
        If another process writes to it, or a folder is to be where a file is.
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
            # parts of an interrupted call stay
            with suppress(OSError):
                folder.rmdir()
        os.close(descriptor)


def write_file(path: Path, schema: pa.Schema, tables: Iterable[pa.Table | pa.RecordBatch]) -> int:
    """Write tables of one schema into one file, which is there only once it is whole.

    In CSV, texts that a spreadsheet would run as formulas, and such names of columns, begin with an apostrophe, as
    `guard_cell` has it; `read_file` takes it away.

    Parameters
    ----------
    path
        File to write, replaced if it is there; its folder is made.
    schema
        Columns of the tables.
    tables
        Rows, in order.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is neither .csv nor .parquet.
    """
    # loaded where a file is written: each takes longer than this module
    import pyarrow.csv
    import pyarrow.parquet as pq

    check_suffix(path)
    if is_csv := path.suffix.lower() == ".csv":
        # the writer of CSV knows no dictionaries
        schema = pa.schema([(field.name, _spell_out(field.type)) for field in schema])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, n_rows = path.with_name(f".{path.name}.draft"), 0
    try:
        with (
            pyarrow.csv.CSVWriter(draft, _map_texts(schema.empty_table(), guard_cell).schema)
            if is_csv
            else pq.ParquetWriter(draft, schema, **write_options(schema))
        ) as writer:
            for table in tables:
                found = table.cast(schema)
                writer.write(_map_texts(found, guard_cell) if is_csv else found)
                n_rows += table.num_rows
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return n_rows


def read_file(path: Path) -> pa.Table:
    """Read a file that `write_file` has written, with its texts as they were; types of CSV are what it reads as."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".csv":
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return _map_texts(pyarrow.csv.read_csv(path, parse_options=options), restore_cell)
    return pq.read_table(path)


def _map_texts(
    table: pa.Table | pa.RecordBatch, change: Callable[[str], str]
) -> pa.Table | pa.RecordBatch:
    """The table with its texts, and the names of its columns, changed where a spreadsheet would run them, or might."""
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
    """Options of a `pyarrow.parquet.ParquetWriter`: texts by a dictionary, whole numbers by their differences."""
    coded = [f.name for f in schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    steps = {f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_int64(f.type)}
    return {"compression": "zstd", "use_dictionary": coded, "column_encoding": steps or None}


def _spell_out(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def join_files(folder: Path, path: Path, order: str | None = None, *, in_all: bool = False) -> int:
    """Write the tables of a folder into one file.

    Parameters
    ----------
    folder
        Folder of Parquet files of one schema, at least one.
    path
        As for `write_file`.
    order
        Column that rows are sorted by; None leaves them as they are.
    in_all
        Whether the rows of all files are sorted together; otherwise those of each file stay together, in the order of
        the files.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is neither .csv nor .parquet.
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
    return write_file(path, schema, tables)
