"""Section on the guards of quality: what is held back or warned of."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from pmflib.config.section import Section

Limit: TypeAlias = Annotated[float, Field(ge=0)] | Literal["off"]
"""Limit of a guard; "off" where there is none."""


class Limits(Section):
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
