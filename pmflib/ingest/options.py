"""Options for reading raw data, the base class of validated options, and messages about invalid ones."""

from __future__ import annotations

import ast
import codecs
import inspect
import reprlib
import sys
import textwrap
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pmflib.base.errors import ConfigError
from pmflib.base.texts import list_near, mask_secrets
from pmflib.schema.variable import DEFAULT_MISSING


@cache
def _read_descriptions(module: str) -> dict[str, dict[str, str]]:
    """Read the docstrings of attributes of the classes of a module.

    pydantic reads them class by class, which takes a fifth of the time of all imports of a command.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        # installed without sources
        return {}
    return {
        node.name: {
            ast.unparse(first.target): inspect.cleandoc(str(second.value.value))
            for first, second in pairwise(node.body)
            if isinstance(first, ast.AnnAssign)
            and isinstance(second, ast.Expr)
            and isinstance(second.value, ast.Constant)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


class Section(BaseModel):
    """Immutable, validated options, which are listed in the docstring of each subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Add every option with its default and description to the docstring."""
        options, described = [], _read_descriptions(cls.__module__).get(cls.__name__, {})
        for name, field in cls.model_fields.items():
            field.description = field.description or described.get(name)
            default = "required" if field.is_required() else f"default {field.default!r}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                default = f"a section: see {field.annotation.__name__}"
            if get_origin(field.annotation) is Literal:
                default = f"one of {', '.join(map(repr, get_args(field.annotation)))}; {default}"
            options.append(f"{field.alias or name} ({default})")
            for line in (field.description or "").splitlines():
                options += textwrap.wrap(
                    line, 110, initial_indent=4 * " ", subsequent_indent=6 * " "
                )
        cls.__doc__ = "\n".join([cls.__doc__ or "", "", "Options", "-------", *options])


S = TypeVar("S", bound=BaseModel)


def validate_section(section: type[S], data: dict[str, Any], *, depth: int = 1) -> S:
    """Validate options given as a dictionary.

    Raises
    ------
    ConfigError
        If options are unknown, missing or out of range, one line each.
    """
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(list_problems(error, section, depth=depth))) from None


MAX_SHOWN = 300
"""Largest number of characters of an invalid value in a message."""
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = MAX_SHOWN


def list_problems(error: ValidationError, section: type[BaseModel], *, depth: int = 1) -> list[str]:
    """Describe invalid options, one line each.

    Parameters
    ----------
    error
        Error of the validation.
    section
        Validated model.
    depth
        1 for a section, 2 for a configuration of sections.
    """
    messages: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for problem in error.errors():
        # deeper locations are alternative types of the same option
        where = ".".join(map(str, problem["loc"][:depth])) or "configuration"
        messages.setdefault(where, []).append(
            _word(problem["type"], problem["msg"], where, section)
        )
        if problem["type"] not in {"missing", "value_error"}:
            given.setdefault(where, f" (given: {abridge(problem['input'])})")
    return [
        f"{where}: {' or: '.join(dict.fromkeys(said))}{given.get(where, '')}"
        for where, said in messages.items()
    ]


def abridge(value: object) -> str:
    """Format a value for a message, masking secrets and shortening long values."""
    text = mask_secrets(_SHOWN.repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _word(problem: str, message: str, where: str, section: type[BaseModel]) -> str:
    """Describe an invalid option, with similar names."""
    if problem == "missing":
        return "is required"
    if problem != "extra_forbidden":
        said = message.removeprefix("Value error, ")
        # the line already begins with the option and its section
        return said.removeprefix(f"{where} ") if "." in where else said
    *outer, name = where.split(".")
    fields = section.model_fields
    for step in outer:
        inner = next(f.annotation for n, f in fields.items() if step in (n, f.alias))
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        fields = inner.model_fields
    known = [f.alias or n for n, f in fields.items() if n != "base"]
    close = list_near(name, known)
    return "unknown option; " + (f"did you mean {close}?" if close else f"there are {known}")


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
            f"{name[:40]!r} is not a text encoding; pass one like 'utf-8', 'latin-1', 'cp1252' or 'utf-16'"
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
            f"{delimiter!r} contains a quotation mark or a line end; pass the characters between two fields"
        )
    return delimiter


DATA_SUFFIXES = (
    *(".csv", ".tsv", ".psv", ".txt", ".dat", ".data", ".parquet", ".pq"),
    *(".sav", ".zsav", ".dta", ".sas7bdat", ".por", ".xpt"),
)
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
    """Location and layout of the raw data."""

    path: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)]
    """A file, a folder, a glob, an fsspec URL, or a list of these."""
    layout: Literal["wide", "long"]
    """Wide: one row per sample, one column per variable. Long: one row per answer (sample, variable, value)."""
    format: Literal["auto", "csv", "parquet", "sav", "dta", "sas7bdat", "por", "xpt"] = "auto"
    """Auto decides by name: Parquet for .parquet and .pq, SPSS for .sav, .zsav and .por, Stata for .dta, SAS for
    .sas7bdat and .xpt, else CSV, of which .gz, .bz2, .xz and .zst are decompressed."""
    sample: str | None = None
    """Column that identifies the sample; required for long, optional for wide."""
    variable: str | None = None
    """Long only: column that names the variable."""
    value: str | None = None
    """Long only: column with the answers."""
    time: str | None = None
    """Long only: column that orders the answers to a variable; numbers or ISO 8601 times."""
    weight: str | None = None
    """Column with the positive weight of each sample; in a long log, it must be the same on all rows of a sample.
    Counts, fits, scores and answers are weighted, in units of 10 to the power of minus ``weight_decimals`` of the
    schema, by default 6."""
    psu: str | None = None
    """Only with a weight: column with the primary sampling unit of each sample, such as a school. All samples of a unit
    are in one fold, by the hash of its name, and intervals of answers account for units."""
    stratum: str | None = None
    """Only with psu: column with the stratum of each sample; units are identified within strata."""
    replicates: (
        Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=2)] | None
    ) = None
    """With a weight, instead of psu: columns of nonnegative replicate weights, as a pattern ("W_FSTR*", matched with
    the columns of the first file) or a list. They are stored in the unit of the weight."""
    replicate_method: Literal["BRR", "Fay", "JK1", "JK2", "JKn", "bootstrap"] | None = None
    """Required with replicates: how they were made, as for `pmflib.surveys.SurveyDesign`."""
    fay: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Required with the method "Fay": factor of the weights of the half-sample that is reduced; 0.5 in PISA."""
    replicate_factors: (
        Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=2)] | None
    ) = None
    """Required with the method "JKn": factor of each replicate in the variance."""
    encoding: Annotated[str, AfterValidator(check_encoding)] = "utf-8"
    """Text encoding of CSV, by any name that Python knows ("latin-1", "cp1252", "utf-16"). Rows with undecodable bytes
    are malformed. Of files of SPSS, Stata and SAS, any but "utf-8" replaces the one that they state."""
    delimiter: Annotated[str, AfterValidator(check_delimiter)] = ","
    """CSV only: field delimiter, one or several characters ("::"), or "whitespace" for any run of blanks and tabs,
    which are ignored at the ends of a line."""
    decimal: Literal[".", ","] = "."
    """CSV only: decimal sign. With a comma, numbers are read as if they had a point, "3,5" as "3.5", except in the
    columns of samples and variables."""
    header_rows: Annotated[int, Field(ge=1, le=3)] = 1
    """CSV only: number of rows of the header. The first names the columns; where it repeats a name or leaves it blank,
    as in exports of surveys, a blank takes the name to its left, followed by that of the second row."""
    repeated_columns: Literal["stop", "number"] = "stop"
    """CSV only: refuse files whose header repeats the name of a column that is read, or number the later ones: "name",
    "name_1"."""
    short_rows: Literal["quarantine", "pad"] = "quarantine"
    """CSV only: rows with too few fields are malformed, or lack empty fields at their end, as spreadsheets write them.
    Rows that end in a delimiter are malformed in any case."""
    columns: tuple[str, ...] | None = None
    """CSV only: names of the columns of files without a header."""
    suffixes: Annotated[tuple[str, ...], Field(min_length=1)] = DATA_SUFFIXES
    """Suffixes of data files in a folder or glob that ends with a wildcard, optionally followed by .gz, .bz2, .xz or
    .zst; other files are skipped and reported. Files given by name are always read."""
    on_empty_file: Literal["skip", "stop"] = "stop"
    """Skip empty files, and list them in the account of rows, or stop."""
    on_unreadable_file: Literal["skip", "stop"] = "stop"
    """Skip files that are damaged, of another format or lack a column, and list them in the account of rows, or stop;
    in both cases, all files are tried and every failure is reported."""
    missing: tuple[str, ...] = DEFAULT_MISSING
    """Missing codes for drafting a schema; later, those in the schema apply."""

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
        others |= {"header_rows"} if self.header_rows == 1 else set()
        others |= {"repeated_columns"} if self.repeated_columns == "stop" else set()
        others |= {"short_rows"} if self.short_rows == "quarantine" else set()
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
                    f"{alone} apply only to replicates; name their columns, or remove {alone}"
                )
            return self
        if self.weight is None:
            raise ValueError(
                f"replicates = {given!r} needs weight, the column of the full-sample weights"
            )
        if self.layout == "long":
            raise ValueError(
                f"replicates = {given!r} requires layout = 'wide'; remove it, or make a wide file"
            )
        if self.psu is not None:
            raise ValueError(
                f"replicates = {given!r} cannot be combined with psu or stratum, which replicates already account for; "
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
                    f"replicate_method = {method!r} {verb} {name}, which is only for {owner!r}"
                )
        columns = self.replicate_columns
        if taken := [name for name in columns if name in (self.weight, self.sample)]:
            raise ValueError(
                f"replicates has {taken}, which another option names as well; give other columns"
            )
        if len(set(columns)) < len(columns):
            raise ValueError("replicates has a column twice; give each once")
        if columns and self.replicate_factors and len(self.replicate_factors) != len(columns):
            raise ValueError(
                f"replicate_factors has {len(self.replicate_factors)} numbers for {len(columns)} replicates; pass one "
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
            raise ValueError(
                f"weight is {self.weight!r}, which another option names as well; give another column"
            )
        return self


class SchemaOptions(Section):
    """The schema, and the policy for rows that do not fit."""

    file: str = "schema.json"
    """Path of the schema, relative to the configuration file."""
    on_unknown_level: Literal["quarantine", "missing", "error"] = "quarantine"
    """Unknown levels: quarantine the row, treat the cell as missing, or stop. Rows to score are never quarantined for
    unknown levels, which count as missing."""
    on_malformed: Literal["quarantine", "error"] = "quarantine"
    """Rows with too few or too many fields, undecodable bytes, an invalid time, no sample identifier, or (long) an
    unknown variable."""
    on_duplicate: Literal["last", "first", "error"] = "last"
    """Several answers of a sample to a variable, or several wide rows of a sample: keep the last (by time, then by
    position) or the first and quarantine the others, or stop. The same applies to rows of a long log that give a sample
    another weight, stratum or unit."""


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
"""Reasons for quarantine, of which the first that applies is recorded: too few or too many fields, or text after a
closing quotation mark; undecodable bytes; no sample identifier; an unknown variable; an invalid time; a weight that is
not positive, or a negative replicate weight; no stratum or sampling unit; an unknown level; a weight, stratum or unit
other than in the sample's other rows; an answer superseded by another one of the same sample."""
