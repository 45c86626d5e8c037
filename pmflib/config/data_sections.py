"""Sections on data: where they are, what fits the schema, how they are stored, which rows count."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from pmflib.config.csv_options import check_delimiter, check_encoding, name_separator
from pmflib.config.section import Section
from pmflib.objects.addresses import check_address
from pmflib.schema.variable import DEFAULT_MISSING

DATA_SUFFIXES = (".csv", ".tsv", ".psv", ".txt", ".dat", ".data", ".parquet", ".pq")
"""Ends of the names of data in a folder, besides those of packed files: a script or a picture among them is no data."""


class SourceConfig(Section):
    """Where the raw data are, and how they are laid out."""

    path: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)]
    """A file, a folder, a glob, an fsspec URL, or a list of these."""
    layout: Literal["wide", "long"]
    """Wide: a row is a sample, a column a variable. Long: a row is one answer (sample, variable, value)."""
    format: Literal["auto", "csv", "parquet"] = "auto"
    """Auto looks at the name: .parquet or .pq, else CSV; .gz, .bz2, .xz and .zst are unpacked."""
    sample: str | None = None
    """Column that identifies the sample; required for long, optional for wide."""
    variable: str | None = None
    """Long only: column that names the variable."""
    value: str | None = None
    """Long only: column that holds the answer."""
    time: str | None = None
    """Long only: column that orders answers to the same question; a number or an ISO 8601 time."""
    encoding: Annotated[str, AfterValidator(check_encoding)] = "utf-8"
    """CSV only: how texts are written as bytes, under any name that Python knows: "latin-1", "cp1252", "utf-16". A row
    with bytes that are not so is malformed."""
    delimiter: Annotated[str, AfterValidator(check_delimiter)] = ","
    """CSV only: what is between two fields, one character or several ("::"), or "whitespace": any run of blanks and
    tabs, which counts for nothing at the ends of a line."""
    decimal: Literal[".", ","] = "."
    """CSV only: sign before the decimals. With a comma, values that are wholly such numbers are read as if they had a
    point, "3,5" as "3.5"; the columns of samples and variables stay as they are."""
    columns: tuple[str, ...] | None = None
    """CSV only: names of the columns of files that have no header."""
    suffixes: Annotated[tuple[str, ...], Field(min_length=1)] = DATA_SUFFIXES
    """Ends of the names of data in a folder, or under a glob that ends with a wildcard, also with .gz, .bz2, .xz or
    .zst after them; other files are passed over, and named. A file that is named itself is always taken."""
    on_empty_file: Literal["skip", "stop"] = "stop"
    """A file without a byte: pass it over, and name it in the account of rows, or stop."""
    on_unreadable_file: Literal["skip", "stop"] = "stop"
    """A file that is damaged, of another format, or lacks a column: pass it over, and name it in the account of rows,
    or stop; in both cases all files are tried first, and every one that fails is named."""
    missing: tuple[str, ...] = DEFAULT_MISSING
    """Texts that mean "not given", when a schema is drafted; afterwards the schema says."""

    @property
    def separator(self) -> str:
        """Text between the fields of a row that is shown or put in quarantine."""
        return name_separator(self.delimiter)

    @property
    def reading(self) -> dict[str, Any]:
        """Options that change what is read from a file, as plain JSON types: not which files there are."""
        others = {"path", "suffixes", "on_empty_file", "on_unreadable_file", "missing"}
        return self.model_dump(mode="json", exclude=others)

    @model_validator(mode="after")
    def _check_layout(self) -> SourceConfig:
        needed = {"sample": self.sample, "variable": self.variable, "value": self.value}
        if self.layout == "long":
            if absent := [name for name, column in needed.items() if column is None]:
                raise ValueError(f"layout = 'long' needs the column names {absent}")
        elif given := [n for n in ("variable", "value", "time") if getattr(self, n) is not None]:
            raise ValueError(f"layout = 'wide' has no {given}; remove them or set layout = 'long'")
        return self


class SchemaConfig(Section):
    """The schema, and what happens to what does not fit it."""

    file: str = "schema.json"
    """Relative to the configuration file."""
    on_unknown_level: Literal["quarantine", "missing", "error"] = "quarantine"
    """A value that is no level: quarantine its row, count the cell as missing, or stop."""
    on_malformed: Literal["quarantine", "error"] = "quarantine"
    """A row with too few or too many fields, bytes that are not UTF-8, a time that does not read, no sample
    identifier, or (long) a variable that is not in the schema."""
    on_duplicate: Literal["last", "first", "error"] = "last"
    """Several answers of one sample to one variable, or several wide rows of one sample identifier: the last by
    time and then by place wins, or the first, and the others go to quarantine; or stop."""


class StoreConfig(Section):
    """Where artefacts go, and how samples are cut."""

    path: str = "store"
    """A folder, relative to the configuration file, or a place in a bucket: "s3://bucket/prefix"."""
    folds: Annotated[int, Field(ge=2, le=256)] = 16
    """Folds that samples are dealt to by hash; counts are kept by fold."""
    buckets: Annotated[int, Field(ge=0, le=4096)] = 0
    """Hash partitions of samples that have an identifier, a multiple of folds: bucket b belongs to fold
    b % folds. 0 = by the size of the sources."""

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        return check_address(path)

    @model_validator(mode="after")
    def _check_buckets(self) -> StoreConfig:
        if self.buckets % self.folds:
            raise ValueError(f"buckets = {self.buckets} is no multiple of folds = {self.folds}")
        return self


class WindowConfig(Section):
    """Which rows of a long log with times are used."""

    days: Annotated[float, Field(gt=0)] | None = None
    """Rows older than this many days before the newest row of all files are counted, and neither used nor put in
    quarantine. Times that are numbers are taken for seconds. By default all rows are used."""
