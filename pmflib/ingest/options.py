"""Options for reading raw data: location, layout, and policy for rows that do not fit the schema."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pmflib.ingest.section import Section, validate_section
from pmflib.schema.variable import DEFAULT_MISSING

WHITESPACE = "whitespace"
"""Name of the delimiter for any run of blanks and tabs."""
MAX_DELIMITER = 10
"""Longest delimiter, characters."""


def name_separator(delimiter: str) -> str:
    """Delimiter for formatting rows in messages and quarantine."""
    return " " if delimiter == WHITESPACE else delimiter


def check_encoding(name: str) -> str:
    """Return the canonical name of a text encoding.

    Raises
    ------
    ValueError
        If Python does not know it, or it does not encode texts.
    """
    try:
        known = codecs.lookup(name)
        "".encode(name)
    except (LookupError, ValueError):
        raise ValueError(
            f"{name[:40]!r} is no encoding of texts; give one as 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
        ) from None
    # a byte order mark of UTF-8 is always skipped
    return "utf-8" if known.name == "utf-8-sig" else known.name


def check_delimiter(delimiter: str) -> str:
    """Validate a delimiter.

    Raises
    ------
    ValueError
        If it is empty, too long, or contains a quotation mark or a line end.
    """
    if not 1 <= len(delimiter) <= MAX_DELIMITER:
        raise ValueError(
            f"a delimiter has 1 to {MAX_DELIMITER} characters, or is {WHITESPACE!r} for runs of blanks and tabs"
        )
    if set(delimiter) & set('"\r\n'):
        raise ValueError(
            f"{delimiter!r} holds a quotation mark or the end of a line; give what is between two fields"
        )
    return delimiter


DATA_SUFFIXES = (".csv", ".tsv", ".psv", ".txt", ".dat", ".data", ".parquet", ".pq")
"""Suffixes of data files in a folder, without those of compression; other files, such as scripts, are skipped."""
DESIGN_OPTIONS = (
    "weight",
    "psu",
    "stratum",
    "replicates",
    "replicate_method",
    "fay",
    "replicate_factors",
)
"""Options of the sampling design of a source; the last three apply only to replicates."""


class SourceOptions(Section):
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
    weight: str | None = None
    """Column with the weight of each sample, a number above 0; of a long log, on every row of a sample the same.
    Counts, fits, scores and answers are weighted by it, in units of 10 to the power of minus ``weight_decimals`` of the
    schema, 6 where the schema has none."""
    psu: str | None = None
    """With a weight only: column that names the primary sampling unit of each sample, such as a school. All samples of
    a unit are in one fold, by the hash of its name, and intervals of answers allow for units."""
    stratum: str | None = None
    """With psu only: column that names the stratum of each sample; units of one name in two strata are two."""
    replicates: (
        Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=2)] | None
    ) = None
    """With a weight, in place of psu: columns of replicate weights, numbers of at least 0, as a pattern ("W_FSTR*",
    matched with the columns of the first file) or a list. They are kept in the unit of the weight."""
    replicate_method: Literal["BRR", "Fay", "JK1", "JK2", "JKn", "bootstrap"] | None = None
    """With replicates only, and needed: how they were made, as `pmflib.SurveyDesign` knows it."""
    fay: Annotated[float, Field(ge=0, lt=1)] | None = None
    """With the method "Fay", and needed: the share of its weight that a half that is left out keeps; .5 in PISA."""
    replicate_factors: (
        Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=2)] | None
    ) = None
    """With the method "JKn", and needed: the factor of each replicate in a variance."""
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
    .zst after them; other files are skipped, and named. A file that is named itself is always read."""
    on_empty_file: Literal["skip", "stop"] = "stop"
    """A file without a byte: pass it over, and name it in the account of rows, or stop."""
    on_unreadable_file: Literal["skip", "stop"] = "stop"
    """A file that is damaged, of another format, or lacks a column: pass it over, and name it in the account of rows,
    or stop; in both cases all files are tried first, and every one that fails is named."""
    missing: tuple[str, ...] = DEFAULT_MISSING
    """Texts that mean "not given", when a schema is drafted; afterwards the schema says."""

    @property
    def separator(self) -> str:
        """Delimiter for formatting rows in messages and quarantine."""
        return name_separator(self.delimiter)

    @property
    def reading(self) -> dict[str, object]:
        """Options that affect how a file is read, not which files, as plain JSON types."""
        others = {"path", "suffixes", "on_empty_file", "on_unreadable_file", "missing"}
        # unset options of the design are left out, which keeps the identities of artefacts of earlier versions
        others |= {name for name in DESIGN_OPTIONS if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=others)

    @property
    def replicate_columns(self) -> tuple[str, ...]:
        """Columns of replicate weights; empty if there are none, or if their pattern is not matched yet."""
        found = self.replicates
        return () if found is None or isinstance(found, str) else found

    @model_validator(mode="after")
    def _check_replicates(self) -> SourceOptions:
        given, method = self.replicates, self.replicate_method
        if given is None:
            if alone := [n for n in DESIGN_OPTIONS[4:] if getattr(self, n) is not None]:
                raise ValueError(
                    f"{alone} are of replicates; name their columns, or remove {alone}"
                )
            return self
        if self.weight is None:
            raise ValueError(
                f"replicates = {given!r} needs weight: name the column of the weights that they are replicates of"
            )
        if self.layout == "long":
            raise ValueError(
                f"replicates = {given!r} is for layout = 'wide', and not for a log; remove it, or make a wide file"
            )
        if self.psu is not None:
            raise ValueError(
                f"replicates = {given!r} goes with weight and not with psu or stratum, which replicates hold already; "
                "remove one of them"
            )
        if method is None:
            raise ValueError(
                f"replicates = {given!r} needs replicate_method, which the survey's documentation names: 'BRR', 'Fay' "
                "(PISA), 'JK1', 'JK2', 'JKn' or 'bootstrap'"
            )
        for name, owner in (("fay", "Fay"), ("replicate_factors", "JKn")):
            if (getattr(self, name) is None) == (method == owner):
                verb = "needs" if method == owner else "takes no"
                raise ValueError(
                    f"replicate_method = {method!r} {verb} {name}, which is of {owner!r} alone"
                )
        columns = self.replicate_columns
        if taken := [name for name in columns if name in (self.weight, self.sample)]:
            raise ValueError(f"replicates has {taken}, as another option has; give other columns")
        if len(set(columns)) < len(columns):
            raise ValueError("replicates has a column twice; give each once")
        if columns and self.replicate_factors and len(self.replicate_factors) != len(columns):
            raise ValueError(
                f"replicate_factors has {len(self.replicate_factors)} numbers for {len(columns)} replicates; give one "
                "for each, in their order"
            )
        return self

    @model_validator(mode="after")
    def _check_layout(self) -> SourceOptions:
        for name, other in (("stratum", "psu"), ("psu", "weight")):
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} needs {other}: "
                    + (
                        "name the column of the units"
                        if other == "psu"
                        else "a column of ones will do"
                    )
                )
        needed = {"sample": self.sample, "variable": self.variable, "value": self.value}
        if self.layout == "long":
            if absent := [name for name, column in needed.items() if column is None]:
                raise ValueError(f"layout = 'long' needs the column names {absent}")
        elif given := [n for n in ("variable", "value", "time") if getattr(self, n) is not None]:
            raise ValueError(f"layout = 'wide' has no {given}; remove them or set layout = 'long'")
        others = (*needed.values(), self.time, self.psu, self.stratum)
        if self.weight is not None and self.weight in others:
            raise ValueError(f"weight is {self.weight!r}, as another column is; give two columns")
        return self


class SchemaOptions(Section):
    """The schema, and what happens to what does not fit it."""

    file: str = "schema.json"
    """Relative to the configuration file."""
    on_unknown_level: Literal["quarantine", "missing", "error"] = "quarantine"
    """A value that is no level: quarantine its row, count the cell as missing, or stop. Rows to score are not put in
    quarantine for it: the cell counts as missing."""
    on_malformed: Literal["quarantine", "error"] = "quarantine"
    """A row with too few or too many fields, bytes that are not UTF-8, a time that does not read, no sample
    identifier, or (long) a variable that is not in the schema."""
    on_duplicate: Literal["last", "first", "error"] = "last"
    """Several answers of one sample to one variable, or several wide rows of one sample identifier: the last by
    time and then by position wins, or the first, and the others go to quarantine; or stop. So do rows of a long log
    that give a sample another weight, stratum or unit."""


def make_source(data: dict[str, Any]) -> SourceOptions:
    """Validate the options of a source given as a dictionary.

    Raises
    ------
    ConfigError
        If options are unknown, missing or out of range, one line each.
    """
    return validate_section(SourceOptions, data)


@dataclass(frozen=True)
class DatasetOptions:
    """Options for building a dataset.

    Parameters
    ----------
    source, schema
        How files are read, and the policy for rows that do not fit the schema.
    paths
        Files, folders, globs or URLs.
    folds
        Number of folds, to which samples are assigned by hash.
    buckets
        Number of hash buckets, a multiple of ``folds``; 0 chooses it by the size of the sources.
    window_days
        Age limit of rows relative to the newest one, days; None uses all rows.
    """

    source: SourceOptions
    schema: SchemaOptions
    paths: tuple[str, ...]
    folds: int = 16
    buckets: int = 0
    window_days: float | None = None


REASONS = (
    "ragged",
    "undecodable",
    "no_sample",
    "unknown_variable",
    "bad_time",
    "bad_weight",
    "no_unit",
    "unknown_level",
    "conflict",
    "duplicate",
)
"""Why a row is in quarantine; a row that fails in several ways has the first of these that holds: too few or too
many fields, or text after a closing quotation mark; bytes that are not UTF-8; no sample identifier; a variable the
schema lacks; a time that does not read; a weight that is no number above 0, or a replicate weight that is none of at
least 0; no stratum or sampling unit; a value that is no level; a weight, stratum or unit that is not that of the
sample's other rows; an answer that another one of the same sample supersedes."""
