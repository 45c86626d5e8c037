"""Section ``crowd`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from pmflib.apps.crowd.methods import (
    CROWD_METHODS,
    LABEL_LIMITS,
    ORDINAL_METHODS,
    list_pipeline_methods,
)
from pmflib.base.method_options import MethodChoice, configure_method
from pmflib.base.methods import describe_methods, find_method
from pmflib.ingest.options import Section, validate_section
from pmflib_tasks.feature import FeatureSection


class CrowdConfig(Section, FeatureSection):
    """True labels of tasks labelled by many workers: `pmf crowd`."""

    drafted: ClassVar[tuple[str, ...]] = ("method",)
    method: Annotated[
        str,
        AfterValidator(lambda name: find_method(list_pipeline_methods(), name).name),
        Field(
            description="As `pmflib.apps.crowd.aggregate` knows it.\n"
            + describe_methods(list_pipeline_methods())
        ),
    ] = "auto"
    method_options: dict[str, Any] = Field(default_factory=dict)
    """Options of a method of co-occurrences, as in the table of `docs/methods.md`:
    `method_options = {annotators = ["ann", "bob"]}`.
    """
    em: bool = True
    """Whether methods based on co-occurrences are followed by passes over the tasks."""
    tol: Annotated[float, Field(ge=0)] = LABEL_LIMITS.tol
    """Stop when a pass moves at most this share of the labels between classes."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Possible labels; by default all labels that occur."""
    ordinal: bool = False
    """Whether classes are ordered (as in ``classes``, or numerically), so that errors to neighbouring classes are more
    likely if the log supports it; for the methods "auto" and "balanced".
    """
    known: Annotated[str, Field(min_length=1)] | None = None
    """File of tasks with known true labels, with the log's columns of tasks and labels: these labels are certain in the
    output, and almost certain in the passes. Rows with other tasks or labels, or that contradict each other, are
    rejected.
    """
    classifier: Annotated[str, Field(min_length=1)] | None = None
    """File of a model's class probabilities, Parquet or CSV: the log's column of tasks, and one column per class. They
    are combined with the labels according to their accuracy; rows of other tasks are ignored.
    """
    warm: bool = False
    """Whether passes start from the live model of the workers, which takes a few passes instead of dozens and keeps the
    number of subclasses. Labels then agree with those of a full run up to `tol`, not bit for bit. For methods that
    iterate over the tasks.
    """

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of known labels and of a classifier."""
        return tuple(path for path in (self.known, self.classifier) if path is not None)

    @property
    def begins_with_pairs(self) -> bool:
        """Return whether the method is based on co-occurrences."""
        return CROWD_METHODS[self.method].family == "pairs"

    @property
    def choice(self) -> MethodChoice:
        """Return the method, with its options if any are given, as `pmflib.apps.crowd.aggregate` takes it."""
        options = self.method_options
        return {"name": self.method, **options} if options else self.method

    @model_validator(mode="after")
    def _check_options(self) -> CrowdConfig:
        configure_method(CROWD_METHODS, self.choice)
        return self

    @model_validator(mode="after")
    def _check_em(self) -> CrowdConfig:
        if not self.em and not self.begins_with_pairs:
            raise ValueError(
                f"em = false leaves nothing of method = {self.method!r}, which passes over the tasks; pass a method of "
                "co-occurrences, as 'robust'"
            )
        return self

    @model_validator(mode="after")
    def _check_warm(self) -> CrowdConfig:
        if self.warm and self.begins_with_pairs:
            raise ValueError(
                f"warm = true, and method = {self.method!r} begins with pairs of workers, not the live model; give "
                "a method that passes over the tasks, as 'auto'"
            )
        return self

    @model_validator(mode="after")
    def _check_ordinal(self) -> CrowdConfig:
        if self.ordinal and self.method not in ORDINAL_METHODS:
            raise ValueError(
                f"ordinal = true, and method = {self.method!r} has no use for the order of classes; pass one of "
                f"{ORDINAL_METHODS}"
            )
        return self


def make_crowd(data: dict[str, Any]) -> CrowdConfig:
    """Validate the section on label logs, given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown or out of range: one line each.
    """
    return validate_section(CrowdConfig, data)
