"""Sections on models: how they are fitted, evaluated, put live, and what label logs are for."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pmflib.core.defaults import LABEL_LIMITS, LIMITS
from pmflib.core.errors import ConfigError
from pmflib.core.methods import (
    CROWD_METHODS,
    MEMBER_START_METHODS,
    ORDINAL_METHODS,
    PAIR_METHODS,
    SAMPLE_METHODS,
    describe_methods,
    find_method,
    list_pipeline_methods,
)
from pmflib.ingest.options import Section

SECONDS = {"s": 1, "min": 60, "h": 3600}
"""Seconds of each unit."""
QUICK = "1min"
"""What `--quick` sets."""
LONGEST_CHOICE = 7 * 24 * 3600
"""Longest time that is accepted, seconds: a week."""


def check_budget(text: str) -> str:
    """Return the text if it reads.

    Raises
    ------
    ValueError
        If it does not.
    """
    read_budget(text)
    return text


def read_budget(text: str) -> float:
    """Seconds that a text such as "10min" stands for.

    Raises
    ------
    ValueError
        If it is no whole number above 0 with a unit, or longer than ``LONGEST_CHOICE``.
    """
    found = re.fullmatch(r"([0-9]{1,9})(s|min|h)", text)
    seconds = 0 if found is None else int(found[1]) * SECONDS[found[2]]
    if not 0 < seconds <= LONGEST_CHOICE:
        raise ValueError(
            f"{text!r} is no time above 0 up to {LONGEST_CHOICE // 3600}h; write seconds, minutes or hours, as "
            "'30s', '10min' or '2h'"
        )
    return float(seconds)


HOURS = {"h": 1, "d": 24, "w": 7 * 24}
"""Hours of each unit."""
NEVER = "never"
"""What is written for no end."""
LONGEST_REFRESH = timedelta(days=36_500)
"""Longest time that is accepted: a century."""


def check_refresh(text: str) -> str:
    """Return the text if it reads.

    Raises
    ------
    ValueError
        If it does not.
    """
    read_refresh(text)
    return text


def read_refresh(text: str) -> timedelta | None:
    """Time that a text such as "30d" stands for; None for "never".

    Raises
    ------
    ValueError
        If it is no whole number with a unit, or longer than ``LONGEST_REFRESH``.
    """
    if text == NEVER:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([hdw])", text)
    time = None if found is None else timedelta(hours=int(found[1]) * HOURS[found[2]])
    if time is None or time > LONGEST_REFRESH:
        raise ValueError(
            f"{text!r} is no time up to {LONGEST_REFRESH.days}d; write hours, days or weeks, as '36h', '30d' or '4w', "
            f"or {NEVER!r}"
        )
    return time


class ModelConfig(Section):
    """The fit from pairwise marginals."""

    rank: Annotated[int, Field(ge=1, lt=2**31)] | Literal["auto"]
    """Number of latent states; auto chooses it on held-out training folds, then on the validation folds. Of method
    "compare", that of the latent classes; the number of states of traits is chosen."""
    rank_budget: Annotated[str, AfterValidator(check_budget)] = "10min"
    """Processor time that the choice of the rank may take: "30s", "10min", "2h". What is compared follows from a model
    of what fits of that size cost, and not from a clock: the choice is the same on every machine, and may take some
    more or less. `pmf run --quick` sets "1min". The reasons of a choice name what was left out for it."""
    method: Annotated[
        str,
        AfterValidator(lambda name: find_method(PAIR_METHODS | SAMPLE_METHODS, name).name),
        Field(
            description="Start of EM, as `pmflib.fit` knows it. The members of an average need one of "
            f"{MEMBER_START_METHODS}; auto is the first of these.\n{describe_methods(PAIR_METHODS)}\n"
            f"Or, in place of latent classes from such a start:\n{describe_methods(SAMPLE_METHODS)}"
        ),
    ] = "auto"
    dependence: Literal["none", "auto", "tree"] = "none"
    """Whether variables of latent classes may depend on each other within a state, along forests that are found. auto
    fits them where pairs depart clearly from the model without, and takes them where the validation folds say so; tree
    does in any case."""
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


class EMConfig(Section):
    """Refinement by passes over the samples."""

    max_passes: Annotated[int, Field(ge=0, lt=2**31)] = LIMITS.max_passes
    tol: Annotated[float, Field(ge=0)] = LIMITS.tol
    """Stop when what passes may still gain is estimated to be less than this share of the objective."""
    pseudo_count: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """Pseudo-count per level and latent state, shaped by the variable's marginal; auto compares several on the
    validation folds."""
    members: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Number of fits from independent starts whose probabilities are averaged: a model of members x rank states."""
    distil: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Rank of a single model to fit to samples drawn from the average; 0 = keep the average."""
    patience: Annotated[int, Field(ge=1, lt=2**31)] = LIMITS.patience
    """Passes without a better held-out log-likelihood before stopping; the best model is kept."""
    target: str | None = None
    """Variable that the model is to predict: the validation folds compare models by its log-likelihood given the
    others, small fits raise that, and the report says how well it is predicted; by default all variables are alike."""
    accelerate: bool = False
    """Extrapolate from every two passes (SQUAREM): fewer passes where the objective alone stops them."""
    errors: Literal["auto", "linear", "refit", "off"] = "auto"
    """Standard errors and intervals of parameters: of latent classes by the strata and units, or the replicate weights,
    of the source, else by the information of the samples. auto finds them in one pass where that takes a moment; linear
    in one pass in any case, up to 2,000 probabilities; refit fits again to each replicate, or without each of at most
    some 200 groups of units, all side by side; off finds none."""


class EvaluateConfig(Section):
    """What is held out, and how the model is evaluated on it."""

    validation_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Folds kept from training to choose the number of passes; 0 = stop by ``tol`` alone."""
    test_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Folds kept from training and from every choice, for the scores that are reported."""
    hide: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the observed cells of the test samples that are hidden and predicted from the others."""


class GateConfig(Section):
    """When a new model replaces the live one: `docs/gate.md`.

    Both predict the same hidden cells, of today's test samples and of those that the live model was scored on when it
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


class CrowdConfig(Section):
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
    tol: Annotated[float, Field(ge=0)] = LABEL_LIMITS.tol
    """Stop when a pass moves at most this share of the labels between classes."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Labels that may be given; by default all that were given."""
    ordinal: bool = False
    """Whether classes are in the order of ``classes``, or of numbers, and mistakes likelier the nearer they are, as far
    as the log says so; for the methods "auto" and "balanced"."""
    known: Annotated[str, Field(min_length=1)] | None = None
    """File of tasks whose true label is known, with the columns for tasks and labels that the log has: they are
    certain, and nearly so in the passes. Rows of other tasks or labels, or that contradict each other, are set
    aside."""
    classifier: Annotated[str, Field(min_length=1)] | None = None
    """File of class probabilities of a model, Parquet or CSV: the column for tasks that the log has, and one for each
    class. They count beside the labels for what they are worth; rows of other tasks are left out."""
    warm: bool = False
    """Whether passes go on from the live model of the workers, which takes a few in place of dozens, and the number of
    subclasses stays. Labels are then those of a full run but for what `tol` leaves open: not the same bits. For methods
    that pass over the tasks."""

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
                f"ordinal = true, and method = {self.method!r} has no use for the order of classes; give one of "
                f"{ORDINAL_METHODS}"
            )
        return self
