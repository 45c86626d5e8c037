"""Sections on data: where artefacts go, which rows count, what guards refuse."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from pmflib.ingest.options import REASONS
from pmflib.ingest.section import Section
from pmflib.store.objects.addresses import check_address


class StoreConfig(Section):
    """Where artefacts go, and how samples are split."""

    path: str = "store"
    """A folder, relative to the configuration file, or a prefix in a bucket: "s3://bucket/prefix"."""
    folds: Annotated[int, Field(ge=2, le=256)] = 16
    """Folds that samples are assigned to by hash; counts are kept by fold."""
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
    quarantine. Times that are numbers are seconds. By default all rows are used."""


Limit: TypeAlias = Annotated[float, Field(ge=0)] | Literal["off"]
"""Limit of a guard; "off" where there is none."""


class GuardLimits(Section):
    """Limits of one guard of quality."""

    warn: Limit = "off"
    """Beyond it the run goes on with a warning."""
    stop: Limit = "off"
    """Beyond it the run is held back, exit code 6, before anything is fitted."""


class QualityConfig(Section):
    """Guards: what new data may be like before a model is fitted to them. `docs/guards.md` describes each.

    A guard has two limits, ``{warn = 0.1, stop = 0.3}``: one that is not given keeps its default, and "off" is none.
    ``guard = "off"`` puts off both.
    """

    least_rows: GuardLimits = GuardLimits(stop=1)
    """Rows encoded, at least. No row at all is always refused."""
    quarantine: GuardLimits = GuardLimits(warn=0.05, stop=0.2)
    """Share of the rows read that do not fit: in quarantine, duplicates apart."""
    reason: GuardLimits = GuardLimits(warn=0.05, stop=0.2)
    """Share of the rows read that are in quarantine for one reason, duplicates apart."""
    reasons: dict[str, GuardLimits] = Field(default_factory=dict)
    """Limits by reason, in place of ``reason``; here ``duplicate`` may have some as well."""
    file_quarantine: GuardLimits = GuardLimits(warn=0.1, stop=0.3)
    """Share of the rows of one file, or of those added to it, that do not fit; beyond what so few rows leave open."""
    missing_files: GuardLimits = GuardLimits(warn=0)
    """Files of the last run that are gone, under any name."""
    removals_expected: bool = False
    """Whether files come and go: then neither missing files nor lost rows are checked."""
    rows_lost: GuardLimits = GuardLimits(warn=0.02, stop=0.2)
    """Share of the rows that the last run encoded by which they are now fewer."""
    file_size: GuardLimits = GuardLimits(warn=1.5)
    """Factor by which a new file has more or fewer rows than the median of its siblings, beyond their own spread."""
    same_bytes: GuardLimits = GuardLimits(stop=0)
    """Files whose bytes are those of another file."""
    new_columns: GuardLimits = GuardLimits(warn=0)
    """Columns of a new file that files of the last run had not, or the first file in a first run, and that are not in
    the schema."""
    duplicates: GuardLimits = GuardLimits(warn=0.5)
    """Share of the encoded rows of one file that other rows supersede."""
    new_rows: GuardLimits = GuardLimits(warn=1)
    """Rows encoded that the last run did not have, at least."""
    variable_drift: GuardLimits = GuardLimits(warn=0.25, stop=0.5)
    """Population stability index, at least so large beyond chance, of a variable's levels: rows of a new file, or of
    all new files, against those that the live model was made from."""
    scale_drift: GuardLimits = GuardLimits(warn=0.1, stop=0.25)
    """The same of the pooled levels of all variables that share their levels."""
    answer_drift: GuardLimits = GuardLimits(warn=0.25, stop=1.0)
    """Long layout: the same of the variables that are answered."""
    pair_drift: GuardLimits = GuardLimits(warn=0.25, stop=0.5)
    """The same of the levels of a pair of variables."""
    dependence_drift: GuardLimits = GuardLimits(warn=0.1, stop=0.25)
    """The same of a pair beyond its two variables: against what the pair's old dependence gives with their new
    distributions."""
    worker_rows: GuardLimits = GuardLimits(warn=0.2, stop=0.5)
    """Label logs: by how much the share of a new file's labels that its busiest worker gave is above that of any file
    before, beyond chance."""
    unknown_workers: GuardLimits = GuardLimits(warn=0.5, stop=0.9)
    """Label logs: share of a new file's labels by workers whom the last run did not know, beyond chance."""
    new_classes: GuardLimits = GuardLimits(warn=0)
    """Label logs: labels that nobody had ever given."""
    class_shares: GuardLimits = GuardLimits(warn=0.1, stop=0.25)
    """Label logs: population stability index, at least so large beyond chance, of the labels of a new file against
    those of the last run."""
    label_agreement: GuardLimits = GuardLimits(warn=0.1, stop=0.25)
    """Label logs: by how much the share of pairs of labels of one task that agree is lower where one of them is new
    than it was so far, beyond chance."""
    copies: GuardLimits = GuardLimits(warn=0, stop=0.25)
    """Label logs: share of the new labels by workers who agree with one other far more than both do with all others."""
    time_backwards: GuardLimits = GuardLimits(warn=0)
    """Label logs with times: days by which the newest label of a new file is older than the newest of the last run."""
    joint_agreement: GuardLimits = GuardLimits(warn=4, stop=6)
    """How much less pairs of new answers hang together as those before them than on the nights before, in standard
    deviations of nights."""
    known_samples: GuardLimits = GuardLimits(warn=3, stop=10)
    """Factor by which the share of a night's samples that were there before is smaller than on the nights before."""
    fresh_rows: GuardLimits = GuardLimits(warn=3, stop=10)
    """The same of the rows about what no other file holds: a sample's answer to a variable, or its row."""
    agreement: GuardLimits = GuardLimits(warn=0.05, stop=0.2)
    """How much smaller than on the nights before the share of rows is that say the same as other files do, of those
    about what other files hold as well."""
    identifier_form: GuardLimits = GuardLimits(warn=0.02, stop=0.5)
    """Share of a new file's rows whose identifiers are of an alphabet or a length that those of no file before are."""
    same_answers: GuardLimits = GuardLimits(stop=0)
    """New files that hold each level as often as another file of other bytes."""
    future_rows: GuardLimits = GuardLimits(warn=0, stop=0.01)
    """Long layout: share of a new file's rows with times ahead of the clock by more than ``future_hours``."""
    future_hours: Annotated[float, Field(ge=0)] = 24.0
    """Hours by which times may be ahead of the clock of this machine: zones that are not written, and other clocks."""
    stray_times: GuardLimits = GuardLimits(warn=5)
    """Long layout: how far times of a new file are from those of all other files, as a multiple of what these span."""
    clock: GuardLimits = GuardLimits(warn=1)
    """Hours by which the clock of this machine is behind the end of the last run."""
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
        if field is None or not isinstance(field.default, GuardLimits):
            return given
        if given == "off" or isinstance(given, GuardLimits):
            return GuardLimits() if given == "off" else given
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
    def _check_reasons(cls, reasons: dict[str, GuardLimits]) -> dict[str, GuardLimits]:
        if unknown := sorted(set(reasons) - set(REASONS)):
            raise ValueError(f"{unknown} are no reasons of a quarantine; give some of {REASONS}")
        return reasons

    @model_validator(mode="after")
    def _check_order(self) -> QualityConfig:
        limits = {name: getattr(self, name) for name in type(self).model_fields} | self.reasons
        for name, each in limits.items():
            if not isinstance(each, GuardLimits) or each.warn == "off" or each.stop == "off":
                continue
            least = name in ("least_rows", "new_rows")
            if (each.warn < each.stop) if least else (each.warn > each.stop):
                raise ValueError(
                    f"{name}.warn = {each.warn:g} is beyond {name}.stop = {each.stop:g}, and would never be reached; "
                    'exchange them, or set one to "off"'
                )
        return self
