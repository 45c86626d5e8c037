"""Configuration sections on models: fitting, evaluation and promotion."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pmflib.base.defaults import LIMITS
from pmflib.base.errors import ConfigError
from pmflib.base.method_options import configure_method
from pmflib.base.methods import (
    MEMBER_START_METHODS,
    PAIR_METHODS,
    describe_methods,
    find_method,
)
from pmflib.ingest.options import Section
from pmflib_tasks.config.sample_methods import SAMPLE_METHODS

SECONDS = {"s": 1, "min": 60, "h": 3600}
"""Seconds of each unit."""
QUICK = "1min"
"""Budget set by `--quick`."""
LONGEST_CHOICE = 7 * 24 * 3600
"""Longest accepted time, seconds: a week."""


def check_budget(text: str) -> str:
    """Return the text if it is a valid budget.

    Raises
    ------
    ValueError
        If it is not.
    """
    read_budget(text)
    return text


def read_budget(text: str) -> float:
    """Parse a time such as "10min" to seconds.

    Raises
    ------
    ValueError
        If it is not a whole number above 0 with a unit, or longer than ``LONGEST_CHOICE``.
    """
    found = re.fullmatch(r"([0-9]{1,9})(s|min|h)", text)
    seconds = 0 if found is None else int(found[1]) * SECONDS[found[2]]
    if not 0 < seconds <= LONGEST_CHOICE:
        raise ValueError(
            f"{text!r} is not a time above 0 and up to {LONGEST_CHOICE // 3600}h; write seconds, minutes or hours, as "
            "'30s', '10min' or '2h'"
        )
    return float(seconds)


HOURS = {"h": 1, "d": 24, "w": 7 * 24}
"""Hours of each unit."""
NEVER = "never"
"""Text for no end."""
LONGEST_REFRESH = timedelta(days=36_500)
"""Longest accepted time: a century."""


def check_refresh(text: str) -> str:
    """Return the text if it is a valid time.

    Raises
    ------
    ValueError
        If it is not.
    """
    read_refresh(text)
    return text


def read_refresh(text: str) -> timedelta | None:
    """Parse a time such as "30d"; None for "never".

    Raises
    ------
    ValueError
        If it is not a whole number with a unit, or longer than ``LONGEST_REFRESH``.
    """
    if text == NEVER:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([hdw])", text)
    time = None if found is None else timedelta(hours=int(found[1]) * HOURS[found[2]])
    if time is None or time > LONGEST_REFRESH:
        raise ValueError(
            f"{text!r} is not a time up to {LONGEST_REFRESH.days}d; write hours, days or weeks, as '36h', '30d' or "
            f"'4w', or {NEVER!r}"
        )
    return time


class ModelConfig(Section):
    """Model and fit from pairwise marginals."""

    rank: Annotated[int, Field(ge=1, lt=2**31)] | Literal["auto"] | None = None
    """Number of latent states; without one, a stack of models is fitted, with weights from the validation folds (see
    `docs/stack.md`). "auto" chooses it on held-out training folds, then on the validation folds. For method "compare",
    that of the latent classes; the number of states for traits is chosen automatically.
    """
    effort: Literal["quick", "normal", "thorough"] = "normal"
    """Length of the ladder of a stack, as `pmflib.fit_em` knows it. `pmf run --quick` sets "quick"."""
    classes: Annotated[int, Field(ge=1, lt=2**31)] | Literal["auto"] | None = None
    """Number of latent classes that are fitted beside a stack, for people to read: the report shows them, and how far
    the two disagree. "auto" chooses it on the validation folds. Without one, there are none.
    """
    rank_budget: Annotated[str, AfterValidator(check_budget)] = "10min"
    """Processor time for the choice of the rank: "30s", "10min", "2h". What is compared depends on a cost model rather
    than a clock, so the choice is the same on every machine, and the actual time may differ. `pmf run --quick` sets
    "1min". The reasons of a choice mention what was left out.
    """
    method: Annotated[
        str,
        AfterValidator(lambda name: find_method(PAIR_METHODS | SAMPLE_METHODS, name).name),
        Field(
            description="Start of EM, as `pmflib.fit` knows it. The members of an average need one of "
            f"{MEMBER_START_METHODS}; auto is the first of these.\n{describe_methods(PAIR_METHODS)}\n"
            f"Or, in place of latent classes from such a start:\n{describe_methods(SAMPLE_METHODS)}"
        ),
    ] = "auto"
    method_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the method, as in the table of `docs/methods.md`: `method_options = {split = "first"}`."""
    dependence: Literal["none", "auto", "tree"] = "none"
    """Whether variables may depend on each other within a latent class, along forests that are estimated. "auto" fits
    forests if pairs deviate clearly from the model without them, and uses them if the validation folds improve; "tree"
    always uses them. In a stack, models with forests are among the others, except with "none"; its default is "auto".
    """
    refresh: Annotated[str, AfterValidator(check_refresh)] = "30d"
    """How long a model is refitted from a warm start, by passes from the live model, after the last fit from scratch:
    days as "30d", hours as "36h", weeks as "4w". "0d" fits from scratch in every run, "never" only when necessary.
    """

    @model_validator(mode="before")
    @classmethod
    def _open_dependence(cls, given: Any) -> Any:
        """Let a stack have forests unless it is told not to."""
        if isinstance(given, dict) and given.get("rank") is None:
            return {"dependence": "auto", **given}
        return given

    @model_validator(mode="after")
    def _check_options(self) -> ModelConfig:
        if self.method_options:
            configure_method(
                PAIR_METHODS | SAMPLE_METHODS, {"name": self.method, **self.method_options}
            )
        return self

    @property
    def refresh_after(self) -> timedelta | None:
        """Return the age of the last fit from scratch at which another is due; None for never."""
        return read_refresh(self.refresh)

    @property
    def rank_seconds(self) -> float:
        """Return the budget of the choice, seconds of processor time."""
        return read_budget(self.rank_budget)

    @property
    def chosen_rank(self) -> int:
        """Return the rank as a number.

        Raises
        ------
        ConfigError
            If it has not been chosen yet.
        """
        if self.rank == "auto":
            raise ConfigError("model.rank is 'auto'; run the stage select first, or give a number")
        if self.rank is None:
            raise ConfigError("model.rank is missing, and a stack has none; give a number")
        return self.rank


class EMConfig(Section):
    """Refinement by EM passes over the samples."""

    max_passes: Annotated[int, Field(ge=0, lt=2**31)] = LIMITS.max_passes
    tol: Annotated[float, Field(ge=0)] = LIMITS.tol
    """Stop when the estimated gain of further passes is below this fraction of the objective."""
    pseudo_count: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    """Pseudo-count per level and latent state, proportional to the variable's marginal; "auto" compares several on the
    validation folds.
    """
    members: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Number of fits from independent starts whose probabilities are averaged, giving a model with members x rank
    states.
    """
    distil: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Rank of a single model fitted to samples drawn from the average; 0 keeps the average."""
    patience: Annotated[int, Field(ge=1, lt=2**31)] = LIMITS.patience
    """Number of passes without an improvement of the held-out log-likelihood before stopping; the best model is
    kept.
    """
    target: str | None = None
    """Variable to predict: models are compared on the validation folds by its log-likelihood given the others, small
    fits maximise it, and the report shows the prediction error. By default all variables are treated alike.
    """
    accelerate: bool = False
    """Extrapolate from every two passes (SQUAREM), which saves passes if EM runs to convergence."""
    errors: Literal["auto", "linear", "refit", "off"] = "auto"
    """Standard errors and intervals of parameters. For latent classes they use the strata and units, or the replicate
    weights, of the source, otherwise the information of the samples. "auto" computes them in one pass if that takes
    little time; "linear" always computes them in one pass, for up to 2,000 probabilities; "refit" refits for each
    replicate, or without each of at most about 200 groups of units, in parallel; "off" computes none.
    """


class EvaluateConfig(Section):
    """Held-out data, and evaluation of the model on them."""

    validation_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Number of folds held out for choosing the number of passes; 0 stops by ``tol`` only."""
    test_folds: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Number of folds held out from training and from all choices, for the reported scores."""
    hide: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the observed cells of the test samples that are hidden and predicted from the others."""


class GateConfig(Section):
    """Conditions under which a new model replaces the live one; see `docs/gate.md`.

    Both models predict the same hidden cells, in today's test samples and in those that the live model was scored on
    when it was made. The new model goes live if, in both sets, its loss is not larger than tolerated with sufficient
    certainty.
    """

    least_cells: Annotated[int, Field(ge=1)] = 100
    """Minimum number of hidden cells for a set of samples to count. With fewer, errors that occur once in a hundred
    cells may be missed by the estimate of the standard error.
    """
    standard_errors: Annotated[float, Field(gt=0)] = 2.0
    """Margin for chance, in standard errors of the paired gain: with two, a model that is just as bad as tolerated
    passes in 2.3 % of cases. For few samples, the quantile of Student's t with the same probability is used.
    """
    largest_loss: Annotated[float, Field(ge=0)] = 0.02
    """Tolerated loss, nats per hidden cell: 0.02 makes true answers 2 % less probable, which is unnoticeable and far
    below the effect of corrupted files. With 0, a model goes live only if it is certainly better.
    """
