"""The whole of ``pipeline.toml``: every option, its default and its limits."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import reprlib
import textwrap
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from pmflib.config.csv_options import check_delimiter, check_encoding, name_separator
from pmflib.config.fold_split import FoldSplit, split_folds
from pmflib.config.rank_budget import QUICK, check_budget, read_budget
from pmflib.config.refresh_time import check_refresh, read_refresh
from pmflib.errors import ConfigError
from pmflib.methods import (
    CROWD_METHODS,
    MEMBER_START_METHODS,
    PAIR_METHODS,
    describe_methods,
    find_method,
    list_pipeline_methods,
)
from pmflib.schema.variable import DEFAULT_MISSING

C = TypeVar("C", bound=BaseModel)

MAX_CONFIG_BYTES = 8 << 20
"""Largest configuration file that is read, bytes: room for a hundred thousand paths of sources."""
MAX_SHOWN = 300
"""Characters of a wrong value that a message shows, at most."""
MAX_NAME = 100
"""Longest name of a pipeline, characters: folders and drafts are named after it, and names end at 255 bytes."""

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = MAX_SHOWN


DATA_SUFFIXES = (".csv", ".tsv", ".psv", ".txt", ".dat", ".data", ".parquet", ".pq")
"""Ends of the names of data in a folder, besides those of packed files: a script or a picture among them is no data."""


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Put every option with its default and its description into the docstring."""
        options = []
        for name, field in cls.model_fields.items():
            default = "required" if field.is_required() else f"default {field.default!r}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, _Section):
                default = f"a section: see {field.annotation.__name__}"
            if get_origin(field.annotation) is Literal:
                default = f"one of {', '.join(map(repr, get_args(field.annotation)))}; {default}"
            options.append(f"{field.alias or name} ({default})")
            for line in (field.description or "").splitlines():
                options += textwrap.wrap(
                    line, 110, initial_indent=4 * " ", subsequent_indent=6 * " "
                )
        cls.__doc__ = "\n".join([cls.__doc__ or "", "", "Options", "-------", *options])


class SourceConfig(_Section):
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


class SchemaConfig(_Section):
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


class StoreConfig(_Section):
    """Where artefacts go, and how samples are cut."""

    path: str = "store"
    """Relative to the configuration file."""
    folds: Annotated[int, Field(ge=2, le=256)] = 16
    """Folds that samples are dealt to by hash; counts are kept by fold."""
    buckets: Annotated[int, Field(ge=0, le=4096)] = 0
    """Hash partitions of samples that have an identifier, a multiple of folds: bucket b belongs to fold
    b % folds. 0 = by the size of the sources."""

    @model_validator(mode="after")
    def _check_buckets(self) -> StoreConfig:
        if self.buckets % self.folds:
            raise ValueError(f"buckets = {self.buckets} is no multiple of folds = {self.folds}")
        return self


class WindowConfig(_Section):
    """Which rows of a long log with times are used."""

    days: Annotated[float, Field(gt=0)] | None = None
    """Rows older than this many days before the newest row of all files are counted, and neither used nor put in
    quarantine. Times that are numbers are taken for seconds. By default all rows are used."""


class ModelConfig(_Section):
    """The fit from pairwise marginals."""

    rank: Annotated[int, Field(ge=1, lt=2**31)] | Literal["auto"]
    """Number of latent states; auto chooses it on held-out training folds, then on the validation folds."""
    rank_budget: Annotated[str, AfterValidator(check_budget)] = "10min"
    """Processor time that the choice of the rank may take: "30s", "10min", "2h". What is compared follows from a model
    of what fits of that size cost, and not from a clock: the choice is the same on every machine, and may take some
    more or less. `pmf run --quick` sets "1min". The reasons of a choice name what was left out for it."""
    method: Annotated[
        str,
        AfterValidator(lambda name: find_method(PAIR_METHODS, name).name),
        Field(
            description="Start of EM, as `pmflib.fit` knows it. The members of an average need one of "
            f"{MEMBER_START_METHODS}; auto is the first of these.\n{describe_methods(PAIR_METHODS)}"
        ),
    ] = "auto"
    refresh: Annotated[str, AfterValidator(check_refresh)] = "30d"
    """How long a model is refitted warm, by passes from the live model, after the last fit from scratch: days as "30d",
    hours as "36h", weeks as "4w"; "0d" fits from scratch in every run, "never" only where it has to be."""

    @property
    def refresh_after(self) -> timedelta | None:
        """Age of the last fit from scratch from which another is due; None is never."""
        return read_refresh(self.refresh)

    @property
    def rank_seconds(self) -> float:
        """The budget of the choice, seconds of processor time."""
        return read_budget(self.rank_budget)

    @property
    def settled_rank(self) -> int:
        """The rank as a number.

        Raises
        ------
        ConfigError
            If it is yet to be chosen.
        """
        if self.rank == "auto":
            raise ConfigError("model.rank is 'auto'; run the stage select first, or give a number")
        return self.rank


class EMConfig(_Section):
    """Refinement by passes over the samples."""

    max_passes: Annotated[int, Field(ge=0, lt=2**31)] = 200
    tol: Annotated[float, Field(ge=0)] = 1e-6
    """Stop when what passes may still gain is estimated to be less than this share of the objective."""
    pseudo_count: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """Pseudo-count per level and latent state, shaped by the variable's marginal; auto compares several on the
    validation folds."""
    members: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Number of fits from independent starts whose probabilities are averaged: a model of members x rank states."""
    distil: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Rank of a single model to fit to samples drawn from the average; 0 = keep the average."""
    patience: Annotated[int, Field(ge=1, lt=2**31)] = 10
    """Passes without a better held-out log-likelihood before stopping; the best model is kept."""
    target: str | None = None
    """Variable that the model is to predict: the validation folds judge by its log-likelihood given the others, small
    fits raise that, and the report says how well it is predicted; by default all variables are alike."""
    accelerate: bool = False
    """Extrapolate from every two passes (SQUAREM): fewer passes where the objective alone stops them."""


class EvaluateConfig(_Section):
    """What is held out, and how the model is judged on it."""

    validation_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Folds kept from training to choose the number of passes; 0 = stop by ``tol`` alone."""
    test_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Folds kept from training and from every choice, for the scores that are reported."""
    hide: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the observed cells of the test samples that are hidden and predicted from the others."""


Limit: TypeAlias = Annotated[float, Field(ge=0)] | Literal["off"]
"""Limit of a guard; "off" where there is none."""


class Limits(_Section):
    """Limits of one guard of quality."""

    warn: Limit = "off"
    """Beyond it the run goes on with a warning."""
    stop: Limit = "off"
    """Beyond it the run is held back, exit code 6, before anything is fitted."""


class QualityConfig(_Section):
    """Guards: what new data may be like before a model is fitted to them. `docs/guards.md` describes each.

    A guard has two limits, ``{warn = 0.1, stop = 0.3}``: one that is not given keeps its default, and "off" is none.
    ``guard = "off"`` puts off both.
    """

    least_rows: Limits = Limits(stop=1)
    """Rows encoded, at least. No row at all is always refused."""
    quarantine: Limits = Limits(warn=0.05, stop=0.2)
    """Share of the rows read that do not fit: in quarantine, duplicates apart."""
    reason: Limits = Limits(warn=0.05, stop=0.2)
    """Share of the rows read that are in quarantine for one reason, duplicates apart."""
    reasons: dict[str, Limits] = Field(default_factory=dict)
    """Limits by reason, in place of ``reason``; here ``duplicate`` may have some as well."""
    file_quarantine: Limits = Limits(warn=0.1, stop=0.3)
    """Share of the rows of one file, or of those added to it, that do not fit; beyond what so few rows leave open."""
    missing_files: Limits = Limits(warn=0)
    """Files of the last run that are gone, under any name."""
    removals_expected: bool = False
    """Whether files come and go: then neither missing files nor lost rows are judged."""
    rows_lost: Limits = Limits(warn=0.02, stop=0.2)
    """Share of the rows that the last run encoded by which they are now fewer."""
    file_size: Limits = Limits(warn=1.5)
    """Factor by which a new file has more or fewer rows than the median of its siblings, beyond their own spread."""
    same_bytes: Limits = Limits(stop=0)
    """Files whose bytes are those of another file."""
    new_columns: Limits = Limits(warn=0)
    """Columns of a new file that files of the last run had not, or the first file in a first run, and that are not in
    the schema."""
    duplicates: Limits = Limits(warn=0.5)
    """Share of the encoded rows of one file that other rows supersede."""
    new_rows: Limits = Limits(warn=1)
    """Rows encoded that the last run did not have, at least."""
    variable_drift: Limits = Limits(warn=0.25, stop=0.5)
    """Population stability index, at least so large beyond chance, of a variable's levels: rows of a new file, or of
    all new files, against those that the live model was made from."""
    scale_drift: Limits = Limits(warn=0.1, stop=0.25)
    """The same of the pooled levels of all variables that share their levels."""
    answer_drift: Limits = Limits(warn=0.25, stop=1.0)
    """Long layout: the same of the variables that are answered."""
    pair_drift: Limits = Limits(warn=0.25, stop=0.5)
    """The same of the levels of a pair of variables."""
    dependence_drift: Limits = Limits(warn=0.1, stop=0.25)
    """The same of a pair beyond its two variables: against what the pair's old dependence gives with their new
    distributions."""
    false_discoveries: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Expected share of chance among the drifts that are reported."""

    @model_validator(mode="before")
    @classmethod
    def _fill_limits(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: cls._fill(name, given) for name, given in data.items()}

    @classmethod
    def _fill(cls, name: str, given: Any) -> Any:
        if name == "reasons" and isinstance(given, dict):
            return {reason: cls._fill("reason", each) for reason, each in given.items()}
        field = cls.model_fields.get(name)
        if field is None or not isinstance(field.default, Limits):
            return given
        if given == "off" or isinstance(given, Limits):
            return Limits() if given == "off" else given
        numbers = (
            given.values() if isinstance(given, dict) and set(given) <= {"warn", "stop"} else [""]
        )
        if not all(n == "off" or (isinstance(n, int | float) and n >= 0) for n in numbers):
            raise ValueError(
                f'{name} = {given!r} is no limit of a guard; give "off", or {{warn = ..., stop = ...}}: each a number, '
                'at least 0, or "off"'
            )
        return field.default.model_dump() | given

    @field_validator("reasons")
    @classmethod
    def _check_reasons(cls, reasons: dict[str, Limits]) -> dict[str, Limits]:
        if not reasons:
            return reasons
        # the ingest imports this file
        from pmflib.ingest.quarantine import REASONS

        if unknown := sorted(set(reasons) - set(REASONS)):
            raise ValueError(f"{unknown} are no reasons of a quarantine; give some of {REASONS}")
        return reasons

    @model_validator(mode="after")
    def _check_order(self) -> QualityConfig:
        limits = {name: getattr(self, name) for name in type(self).model_fields} | self.reasons
        for name, each in limits.items():
            if not isinstance(each, Limits) or each.warn == "off" or each.stop == "off":
                continue
            least = name in ("least_rows", "new_rows")
            if (each.warn < each.stop) if least else (each.warn > each.stop):
                raise ValueError(
                    f"{name}.warn = {each.warn:g} is beyond {name}.stop = {each.stop:g}, and would never be reached; "
                    'exchange them, or set one to "off"'
                )
        return self


class CrowdConfig(_Section):
    """True labels of tasks that many workers have labelled: `pmf crowd`."""

    method: Annotated[
        str,
        AfterValidator(lambda name: find_method(list_pipeline_methods(), name).name),
        Field(
            description="As `pmflib.crowd.aggregate` knows it.\n"
            + describe_methods(list_pipeline_methods())
        ),
    ] = "auto"
    em: bool = True
    """Whether a method of co-occurrences is followed by passes over the tasks."""
    tol: Annotated[float, Field(ge=0)] = 1e-4
    """Stop when a pass moves at most this share of the labels between classes."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Labels that may be given; by default all that were given."""

    @property
    def begins_with_pairs(self) -> bool:
        """Whether the method is one of co-occurrences."""
        return CROWD_METHODS[self.method].family == "pairs"

    @model_validator(mode="after")
    def _check_em(self) -> CrowdConfig:
        if not self.em and not self.begins_with_pairs:
            raise ValueError(
                f"em = false leaves nothing of method = {self.method!r}, which passes over the tasks; give a method of "
                "co-occurrences, as 'robust'"
            )
        return self


class GateConfig(_Section):
    """When a new model replaces the live one: `docs/gate.md`.

    Both predict the same hidden cells, of today's test samples and of those that the live model was judged on when it
    was made. The new one goes live if on both it is sure not to lose more than is tolerated.
    """

    least_cells: Annotated[int, Field(ge=1)] = 100
    """Hidden cells below which a set of samples decides nothing, whatever its error: of fewer, an error that comes once
    in a hundred cells is as likely as not to be missed by the estimate of the error itself."""
    standard_errors: Annotated[float, Field(gt=0)] = 2.0
    """Standard errors of the paired gain that chance is given: two let a model that is as bad as is just tolerated pass
    in 2.3 % of cases. Of few samples it is the quantile of Student's t of the same chance."""
    largest_loss: Annotated[float, Field(ge=0)] = 0.02
    """Loss that is tolerated, nats per hidden cell: 0.02 makes true answers 2 % less probable, which nobody notices,
    and is far below what corrupted files cost. 0 lets a model go live only where it is sure to be better."""


class ClusterConfig(_Section):
    """Where blocks are worked on. Nothing here changes the result."""

    address: str = ""
    """Address of a Dask scheduler; empty starts workers on this machine. PMF_DASK_ADDRESS overrides it."""
    workers: Annotated[int, Field(ge=0, le=4096)] = 0
    """Number of workers on this machine; 0 = one per core."""
    processes: bool = False
    """Whether workers are processes; threads share memory and start faster."""
    memory_limit: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Bytes that the plan may use; 0 = 70 % of what this machine has free."""


class LineageConfig(_Section):
    """Events of the OpenLineage specification: what each run read and wrote. Nothing here changes the result."""

    events: Literal["file", "client", "off"] = "file"
    """Where they go: to lineage/events.jsonl of the store; to whatever the client library of OpenLineage is
    configured for, by openlineage.yml or OPENLINEAGE_URL (pip install pmflib[lineage]); or nowhere."""
    namespace: Annotated[str, Field(min_length=1)] = "pmf"
    """Namespace of the jobs and of the artefacts."""


class PipelineConfig(_Section):
    """One pipeline: source, schema, store, model, EM, evaluation, guards, label log, gate, cluster, lineage, seed."""

    name: Annotated[str, Field(min_length=1)] = "pipeline"
    """Distinguishes the runs of several pipelines in one store: a file name."""
    source: SourceConfig
    schema_: Annotated[SchemaConfig, Field(alias="schema")] = SchemaConfig()
    window: WindowConfig = WindowConfig()
    store: StoreConfig = StoreConfig()
    model: ModelConfig
    em: EMConfig = EMConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    quality: QualityConfig = QualityConfig()
    crowd: CrowdConfig = CrowdConfig()
    gate: GateConfig = GateConfig()
    cluster: ClusterConfig = ClusterConfig()
    lineage: LineageConfig = LineageConfig()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of everything that is drawn: starts, and what is hidden from the model."""
    base: str = ""
    """Folder that relative paths start from: the configuration file's."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .-]*", name):
            raise ValueError(
                f"{_abridge(name)} is no file name; use letters, digits, spaces and . - _, a letter or digit first"
            )
        if len(name.encode()) > MAX_NAME:
            raise ValueError(
                f"{_abridge(name)} takes {len(name.encode())} bytes; give a name of at most {MAX_NAME}"
            )
        return name

    @model_validator(mode="after")
    def _check_paths(self) -> PipelineConfig:
        for path in (self.base, self.store.path, self.schema_.file, *self.source_paths):
            if "\0" in path:
                raise ValueError(
                    f"the path {_abridge(path)} has a NUL byte, which no file name may hold"
                )
        return self

    @model_validator(mode="after")
    def _check_window(self) -> PipelineConfig:
        if self.window.days is not None and self.source.time is None:
            raise ValueError(
                f"window.days = {self.window.days:g} needs the times of rows: name the column in source.time"
            )
        return self

    @model_validator(mode="after")
    def _check_folds(self) -> PipelineConfig:
        held_out = self.evaluate.validation_folds + self.evaluate.test_folds
        if held_out >= self.store.folds:
            raise ValueError(
                f"evaluate holds out {held_out} of {self.store.folds} folds; leave at least one to train on"
            )
        return self

    @model_validator(mode="after")
    def _check_members(self) -> PipelineConfig:
        known = ("auto", *MEMBER_START_METHODS)
        if self.em.members > 1 and self.model.method not in known:
            raise ValueError(
                f"em.members = {self.em.members} needs starts that differ: give model.method as one of {known}"
            )
        if self.em.distil and self.em.members == 1:
            raise ValueError(f"em.distil = {self.em.distil} needs an average: em.members above 1")
        return self

    @property
    def start_method(self) -> str:
        """Method of the first start: of an average, one that can make more."""
        is_average = self.em.members > 1 and self.model.method == "auto"
        return "pairs" if is_average else self.model.method

    @property
    def digest(self) -> str:
        """SHA-256 of what can change the result: everything but the cluster, the lineage and the place of the file."""
        content = self.model_dump(
            mode="json", by_alias=True, exclude={"cluster", "lineage", "base"}
        )
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def hurry(self) -> PipelineConfig:
        """The same pipeline with little time for the choice of the rank."""
        return self.model_copy(
            update={"model": self.model.model_copy(update={"rank_budget": QUICK})}
        )

    def resolve(self, path: str) -> str:
        """Path as seen from the configuration file; URLs and absolute paths stay as they are."""
        return path if "://" in path else str(Path(self.base) / path)

    @property
    def source_paths(self) -> tuple[str, ...]:
        """Paths of the raw files as seen from the configuration file."""
        paths = self.source.path
        return tuple(map(self.resolve, (paths,) if isinstance(paths, str) else paths))

    @property
    def fold_split(self) -> FoldSplit:
        """Folds of the store: which train, which choose, which judge."""
        held_out = self.evaluate.validation_folds, self.evaluate.test_folds
        return split_folds(self.store.folds, *held_out)


def load_config(path: str | Path) -> PipelineConfig:
    """Read and check a pipeline configuration.

    Raises
    ------
    ConfigError
        If the file is absent, cannot be read, is not TOML, or an option is unknown, missing or out of
        range: one line each.
    """
    path = Path(path)
    try:
        str(path.absolute()).encode("utf-8")
        if path.exists() and not path.is_file():
            raise ConfigError(f"configuration {str(path)!r} cannot be read: it is no regular file")
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(
                f"configuration {str(path)!r} has {path.stat().st_size} bytes, above {MAX_CONFIG_BYTES}; "
                "name a folder or a glob in source.path instead of every file"
            )
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"configuration {str(path)!r} does not exist; `pmf infer` drafts one"
        ) from None
    except OSError as error:
        raise ConfigError(f"configuration {str(path)!r} cannot be read: {error}") from None
    except RecursionError:
        raise ConfigError(f"configuration {str(path)!r} is nested too deep") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {str(path)!r} is not TOML: {error}") from None
    except UnicodeEncodeError:
        raise ConfigError(
            f"configuration {str(path)!r}: its path is not UTF-8; rename the file or the folders above it"
        ) from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"configuration {_abridge(str(path))} cannot be read: {error}") from None
    return make_config(data, base=path.parent)


def make_config(data: dict[str, Any], *, base: str | Path = ".") -> PipelineConfig:
    """Check a configuration given as nested dictionaries.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range: one line each.
    """
    if "base" in data:
        raise ConfigError("base: relative paths start from the configuration file; remove it")
    return _validate(PipelineConfig, data | {"base": str(Path(base).resolve())})


def make_crowd(data: dict[str, Any]) -> CrowdConfig:
    """Check the section of a configuration on label logs given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown or out of range: one line each.
    """
    return _validate(CrowdConfig, data)


def make_source(data: dict[str, Any]) -> SourceConfig:
    """Check the source section of a configuration given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range: one line each.
    """
    return _validate(SourceConfig, data)


def _validate(section: type[C], data: dict[str, Any]) -> C:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_list_problems(error, section))) from None


def _list_problems(error: ValidationError, section: type[BaseModel]) -> list[str]:
    """One line per option."""
    depth = 2 if section is PipelineConfig else 1
    messages: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for problem in error.errors():
        # below the option are the names of alternative types: one mistake, one line
        where = ".".join(map(str, problem["loc"][:depth])) or "configuration"
        messages.setdefault(where, []).append(
            _word(problem["type"], problem["msg"], where, section)
        )
        if problem["type"] not in {"missing", "value_error"}:
            given.setdefault(where, f" (given: {_abridge(problem['input'])})")
    return [
        f"{where}: {' or: '.join(dict.fromkeys(said))}{given.get(where, '')}"
        for where, said in messages.items()
    ]


def _abridge(value: object) -> str:
    """Text of a value as it was given, without secrets, shortened where it is long or deep."""
    # it loads the readers, which a configuration without mistakes does not need
    from pmflib.ingest.source_urls import mask_secrets

    text = mask_secrets(_SHOWN.repr(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _word(problem: str, message: str, where: str, section: type[BaseModel]) -> str:
    """Say what is wrong with an option, and what it could have been."""
    if problem == "missing":
        return "is required"
    if problem != "extra_forbidden":
        return message.removeprefix("Value error, ")
    *outer, name = where.split(".")
    fields = section.model_fields
    for step in outer:
        inner = next(f.annotation for n, f in fields.items() if step in (n, f.alias))
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        fields = inner.model_fields
    known = [f.alias or n for n, f in fields.items() if n != "base"]
    close = difflib.get_close_matches(name, known, n=3)
    return "unknown option; " + (f"did you mean {close}?" if close else f"there are {known}")
