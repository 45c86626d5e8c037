"""Configuration sections on data: storage of artefacts, selection of rows, and limits of guards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, field_validator, model_validator

from pmflib.base.json_records import from_json
from pmflib.ingest.options import REASONS, Section
from pmflib.store.objects.addresses import check_address
from pmflib_tasks.features import list_offers
from pmflib_tasks.guard_limits import Guard, GuardLimits, guard


class StoreConfig(Section):
    """Location of the artefacts, and partitioning of the samples."""

    path: str = "store"
    """A folder, relative to the configuration file, or a prefix in a bucket: "s3://bucket/prefix"."""
    folds: Annotated[int, Field(ge=2, le=256)] = 16
    """Number of folds to which samples are assigned by hash; counts are stored by fold."""
    buckets: Annotated[int, Field(ge=0, le=4096)] = 0
    """Number of hash partitions of samples with identifiers, a multiple of folds: bucket b belongs to fold
    b % folds. 0 chooses it by the size of the sources."""

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
    """Selection of rows of a long log by time."""

    days: Annotated[float, Field(gt=0)] | None = None
    """Maximum age of rows in days, relative to the newest row of all files. Older rows are counted, but neither used
    nor quarantined. Numeric times are in seconds. By default all rows are used."""


class CountsConfig(Section):
    """Which pairs of variables are counted."""

    variables: Literal["auto"] | Annotated[int, Field(ge=2)] | tuple[str, ...] = "auto"
    """Variables whose pairs are counted: a number of them, those with most answers; or their names. "auto" counts all
    pairs where their tables fit into memory, and else those of the most answered variables, of 2,048 levels. Single
    counts are always those of all variables. Increments keep the variables of the counts that they start from."""

    @field_validator("variables")
    @classmethod
    def _check_variables(
        cls, variables: str | int | tuple[str, ...]
    ) -> str | int | tuple[str, ...]:
        if isinstance(variables, tuple) and len(set(variables)) < 2:
            raise ValueError(f"{list(variables)} has no pair; name two variables at least")
        return variables


class CoreQuality(Section):
    """Guards without those of features."""

    least_rows: GuardLimits = guard("check the sources and the quarantine", stop=1, at_least=True)
    """Minimum number of encoded rows. A run without encoded rows always stops."""
    quarantine: GuardLimits = guard(
        "check the quarantine, and the reasons below", warn=0.05, stop=0.2
    )
    """Share of quarantined rows among the rows read, without duplicates."""
    reason: GuardLimits = guard(
        "check these rows in the quarantine: do they have another format, scale or encoding?",
        warn=0.05,
        stop=0.2,
    )
    """Share of rows quarantined for one reason among the rows read, without duplicates."""
    reasons: dict[str, GuardLimits] = Field(default_factory=dict)
    """Limits by reason, which replace those of ``reason``; ``duplicate`` can have limits here as well."""
    file_quarantine: GuardLimits = guard(
        "check the file, and its rows in the quarantine", warn=0.1, stop=0.3
    )
    """Lower confidence bound for the share of quarantined rows in a file, or in the rows added to it."""
    missing_files: GuardLimits = guard(
        "restore the files; if they were removed on purpose, set quality.removals_expected", warn=0
    )
    """Number of files of the last run that no longer exist under any name."""
    removals_expected: bool = False
    """Whether files are removed regularly; if so, missing files and lost rows are not checked."""
    rows_lost: GuardLimits = guard(
        "restore the missing rows; if they were removed on purpose, set quality.removals_expected",
        warn=0.02,
        stop=0.2,
    )
    """Relative decrease of the number of encoded rows since the last run."""
    lost_answers: GuardLimits = guard(
        "restore the file, or deliver the new rows under another name", warn=0.005, stop=0.02
    )
    """Share of the answers of a changed file that the last run had, and that no changed or new file has; a lower
    confidence bound. Not checked if ``removals_expected``."""
    superseded_rows: GuardLimits = guard(
        "check the times of the new rows, and their time zone: earlier rows supersede them",
        warn=0.01,
        stop=0.05,
    )
    """Share of the rows of new files with answers that differ from earlier rows, and that these supersede; a lower
    confidence bound, or 1 if earlier rows supersede all. Not checked if ``schema.on_duplicate`` is "first"."""
    empty_values: GuardLimits = guard(
        "check the column of values in the new file: was it lost in an export?",
        warn=0.05,
        stop=0.15,
    )
    """Share of empty values of a column of a new file, beyond chance, minus the largest share in an earlier file; the
    values of a long log are one column."""
    damaged_rows: GuardLimits = guard(
        "copy the file again: a row in quarantine holds many, or a block of zeros",
        warn=0.01,
        stop=0.04,
    )
    """Share of the rows of a new file that long rows in quarantine have swallowed; 1 if they hold a block of zeros."""
    file_size: GuardLimits = guard(
        "check that the file is complete, and has no repeated rows", warn=1.5
    )
    """Factor by which the size of a new file, in rows, differs from the median of its siblings, beyond their spread."""
    same_bytes: GuardLimits = guard("remove one of the two files", stop=0)
    """Number of files that are byte-for-byte copies of another file."""
    new_columns: GuardLimits = guard(
        "add them to the schema, or remove them from the files; they are not read", warn=0
    )
    """Number of columns of a new file that are neither in the schema nor in the files of the last run, or, in a first
    run, nor in the first file."""
    duplicates: GuardLimits = guard(
        "check whether the file was delivered before under another name", warn=0.5
    )
    """Share of the encoded rows of a file that other rows supersede."""
    new_rows: GuardLimits = guard("check that new files have arrived", warn=1, at_least=True)
    """Minimum number of encoded rows that are new since the last run."""
    variable_drift: GuardLimits = guard(
        "check this column: were its codes exchanged, shifted or reversed?", warn=0.25, stop=0.5
    )
    """Lower confidence bound for the population stability index of a variable's levels: rows of a new file, or of all
    new files, against the data of the live model."""
    scale_drift: GuardLimits = guard(
        "check this file: was its scale reversed or coded differently?", warn=0.1, stop=0.25
    )
    """The same for the pooled levels of all variables with the same levels."""
    answer_drift: GuardLimits = guard(
        "check the names in the column of variables", warn=0.25, stop=1.0
    )
    """Long layout: the same for the shares of the answered variables."""
    pair_drift: GuardLimits = guard("check these two columns in the new files", warn=0.25, stop=0.5)
    """The same for the levels of a pair of variables."""
    dependence_drift: GuardLimits = guard(
        "check whether columns were exchanged in the new files", warn=0.1, stop=0.25
    )
    """The same for the dependence of a pair, against the earlier odds ratios fitted to the new margins."""
    joint_agreement: GuardLimits = guard(
        "check whether a column was shifted against its rows, or rows belong to other samples",
        warn=4,
        stop=6,
    )
    """Decrease of the mean pointwise mutual information of pairs of new answers, in standard deviations between earlier
    runs; in the first ten runs, between folds."""
    column_agreement: GuardLimits = guard(
        "check this column: was it exchanged, or shifted against its rows?", warn=5, stop=6.5
    )
    """In the first ten runs: the same for the pairs of one variable with all others, for the variable whose dependence
    has fallen most."""
    sample_agreement: GuardLimits = guard(
        "check the identifiers: were they permuted, cut, or counted anew?", warn=4, stop=6
    )
    """In the first ten runs: the same for the pairs of new answers with earlier answers of the same samples."""
    known_samples: GuardLimits = guard(
        "check the identifiers: are they written as before, and from the same system?",
        warn=3,
        stop=10,
    )
    """Factor by which the share of known samples in the new files is smaller than in earlier runs."""
    fresh_rows: GuardLimits = guard(
        "check whether the file was delivered before, under another name or in another order",
        warn=3,
        stop=10,
    )
    """The same for the share of rows (a sample's answer to a variable, or its row) that no other file repeats."""
    agreement: GuardLimits = guard(
        "check whether identifiers or a column were shifted against their rows",
        warn=0.05,
        stop=0.2,
    )
    """Decrease, against earlier runs, of the share of repeated rows that agree with the rows they repeat."""
    identifier_form: GuardLimits = guard(
        "check the identifiers: were they padded, or are they from another system?",
        warn=0.02,
        stop=0.5,
    )
    """Share of a new file's rows whose identifiers have an alphabet or a length not found in any earlier file."""
    identifier_spelling: GuardLimits = guard(
        "write identifiers alike in all files: 17, not 17.0 or 00017", warn=0, stop=0.01
    )
    """Share of the identifiers of new files that equal another one of these as numbers, but are spelt differently."""
    same_answers: GuardLimits = guard("remove one of the two files", stop=0)
    """Number of new files with the same level counts as another file whose bytes differ."""
    repeated_rows: GuardLimits = guard(
        "remove rows that were delivered before, or name the column of identifiers in source.sample",
        warn=0.01,
        stop=0.1,
    )
    """Wide layout without identifiers: share of the new rows in stretches that earlier rows have in the same order,
    minus this share of the earlier files."""
    future_rows: GuardLimits = guard(
        "check the unit and zone of the times, and the clock that wrote them; or set quality.future_hours",
        warn=0,
        stop=0.01,
    )
    """Long layout: share of a new file's rows with times more than ``future_hours`` ahead of the clock."""
    future_hours: Annotated[float, Field(ge=0)] = 24.0
    """Tolerance, in hours, for times ahead of the clock of this machine (missing time zones, differing clocks)."""
    stray_times: GuardLimits = guard("check the times: their unit and their origin", warn=5)
    """Long layout: distance of a new file's times from those of all other files, as a multiple of their span."""
    clock: GuardLimits = guard("set the clock of this machine", warn=1)
    """Hours by which the clock of this machine is behind the end of the last run."""
    false_discoveries: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Expected share of false discoveries among the reported drifts."""

    @classmethod
    def list_guards(cls) -> dict[str, Guard]:
        """Collect the guards by name, in the order of their fields."""
        return {
            name: from_json(Guard, field.json_schema_extra)
            for name, field in cls.model_fields.items()
            if isinstance(field.json_schema_extra, dict)
        }

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
    def _check_order(self) -> CoreQuality:
        guards = self.list_guards()
        at_least = {name for name, guard in guards.items() if guard.at_least}
        limits = {name: getattr(self, name) for name in guards} | self.reasons
        for name, each in limits.items():
            if each.warn == "off" or each.stop == "off":
                continue
            if (each.warn < each.stop) if name in at_least else (each.warn > each.stop):
                raise ValueError(
                    f"{name}.warn = {each.warn:g} is beyond {name}.stop = {each.stop:g}, and would never be reached; "
                    'exchange them, or set one to "off"'
                )
        return self


if TYPE_CHECKING:
    QualityConfig = CoreQuality
else:
    QualityConfig = create_model(
        "QualityConfig",
        __base__=CoreQuality,
        __module__=__name__,
        __doc__="""Guards: quality checks that new data must pass before a model is fitted to them. `docs/guards.md`
    describes each.

    A guard has two limits, ``{warn = 0.1, stop = 0.3}``; a limit that is not given keeps its default, and "off"
    disables it. ``guard = "off"`` disables both.
    """,
        **{
            name: (field.annotation, field)
            for guards in list_offers("guards")
            for name, field in guards.model_fields.items()
        },
    )
