"""Fit statistics: likelihood and information criteria on training and held-out samples, as numbers, tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pmflib.base.display.summary import Summarised, Summary, SummaryTable, decimal, format_count
from pmflib.base.json_records import JsonRecord


@dataclass(frozen=True)
class Criteria(Summarised):
    """Likelihood of a model on its training samples, and statistics derived from it; for AIC to ICL, lower is better.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of the observed cells of all samples, nats, without pseudo-counts.
    entropy
        Total entropy of the posteriors of the latent state, nats; 0 if every state is certain.
    n_rows
        Number of samples with any observed cell.
    n_empty
        Number of samples with nothing observed. Their likelihood is 1; they count only in the mean per sample.
    n_states
        Number of latent states.
    n_parameters
        Number of free parameters, see `count_parameters`; None if they are not counted, as for continuous traits, whose
        states are quadrature points.
    n_cells
        Number of possible response patterns: the product over variables of the number of observed levels, infinite
        above 1e308.
    singles
        Log-likelihood of the same cells by the shares of each level, without states, nats, and the number of free
        shares; None if unknown.
    """

    log_likelihood: float
    entropy: float
    n_rows: int
    n_empty: int
    n_states: int
    n_parameters: int | None
    n_cells: float
    singles: tuple[float, int] | None = field(default=None, compare=False)

    @property
    def gain(self) -> float | None:
        """Return by how much it predicts better than single variables: half the difference of AIC, nats per row.

        None without a number of parameters, or for a single state, which is these variables.
        """
        if self.singles is None or self.n_parameters is None or self.n_states < 2:
            return None
        alone, n_free = self.singles
        more = self.log_likelihood - alone - (self.n_parameters - n_free)
        return more / max(self.n_rows, 1)

    def describe_gain(self) -> str:
        """Format the gain over single variables in one line; "" if unknown."""
        if self.gain is None:
            return ""
        if self.gain <= 0:
            return (
                f"no ({decimal(self.gain, 2)} nats per row, by AIC): the share of each level, without states, predicts "
                "as well"
            )
        return f"yes, by {decimal(self.gain, 2)} nats per row (AIC)"

    @property
    def per_row(self) -> float:
        """Return the log-likelihood per sample, nats: the mean of `JointPMF.log_prob`."""
        return self.log_likelihood / max(self.n_rows + self.n_empty, 1)

    @property
    def aic(self) -> float | None:
        """Return Akaike's criterion; None without a number of parameters."""
        return self._penalise(2.0)

    @property
    def bic(self) -> float | None:
        """Return Schwarz's criterion; None without a number of parameters."""
        return self._penalise(math.log(max(self.n_rows, 1)))

    @property
    def sabic(self) -> float | None:
        """Return Schwarz's criterion with Sclove's sample size, (n + 2) / 24; None without a number of parameters."""
        return self._penalise(math.log((self.n_rows + 2) / 24))

    @property
    def caic(self) -> float | None:
        """Return Bozdogan's consistent version of Akaike's criterion; None without a number of parameters."""
        return self._penalise(math.log(max(self.n_rows, 1)) + 1)

    @property
    def icl(self) -> float | None:
        """Return the integrated completed likelihood, Schwarz's criterion plus twice the entropy, or None."""
        return None if self.bic is None else self.bic + 2 * self.entropy

    @property
    def relative_entropy(self) -> float | None:
        """Return the relative entropy: 1 minus the entropy divided by its maximum, n log F; None for one state."""
        if self.n_states == 1 or not self.n_rows:
            return None
        return 1 - self.entropy / (self.n_rows * math.log(self.n_states))

    @property
    def degrees_of_freedom(self) -> int | None:
        """Return the number of free cells, or of samples if smaller, minus the number of parameters.

        A negative value means more parameters than the samples can determine. None without a number of parameters.
        """
        if self.n_parameters is None:
            return None
        return int(min(self.n_cells - 1, self.n_rows)) - self.n_parameters

    def to_json(self) -> dict[str, float | int | None]:
        """Convert to plain JSON types; undefined values are None."""
        return {name: getattr(self, name) for name in ("log_likelihood", "per_row", *STATISTICS)}

    def tabulate(self) -> SummaryTable:
        """Return a table of the criteria and their components."""
        return tabulate_statistics(self.to_json())

    def describe(self) -> str:
        """Format the log-likelihood in total and per row in one line."""
        return describe_likelihood(self.to_json())

    def summary(self) -> Summary:
        """Return a summary of likelihood and criteria: text in a terminal, HTML in a notebook."""
        return Summary(f"Log-likelihood {self.describe()}", tables=(self.tabulate(),))

    def _penalise(self, price: float) -> float | None:
        if self.n_parameters is None:
            return None
        return -2 * self.log_likelihood + price * self.n_parameters


STATISTICS = {
    "n_rows": "rows with anything observed",
    "n_empty": "rows with nothing observed",
    "n_parameters": "free parameters",
    "degrees_of_freedom": "degrees of freedom",
    "aic": "AIC",
    "bic": "BIC",
    "sabic": "SABIC",
    "caic": "CAIC",
    "icl": "ICL",
    "entropy": "entropy of states, nats",
    "relative_entropy": "relative entropy",
}
"""Names of statistics derived from a likelihood, in JSON and for display."""


def tabulate_statistics(found: Mapping[str, Any]) -> SummaryTable:
    """Return a table of fit statistics from `Criteria.to_json`; undefined values are omitted."""
    rows = [
        (title, _format_statistic(found[name]))
        for name, title in STATISTICS.items()
        if found.get(name) is not None and (name != "n_empty" or found[name])
    ]
    return SummaryTable(
        "Fit statistics; for AIC to ICL, lower is better", ("statistic", ">value"), rows, len(rows)
    )


def describe_likelihood(found: Mapping[str, Any]) -> str:
    """Log-likelihood of the training rows in all and per row, from what `Criteria.to_json` gives."""
    n_rows = format_count(found["n_rows"] + found["n_empty"])
    total, per_row = decimal(found["log_likelihood"], 8), decimal(found["per_row"], 6)
    return f"{total} nats of {n_rows} training rows, {per_row} per row"


def _format_statistic(value: float) -> str:
    return format_count(value) if isinstance(value, int) else decimal(value, 8)


@dataclass(frozen=True)
class HeldOutScore(JsonRecord):
    """Likelihood of held-out samples.

    Parameters
    ----------
    per_row
        Log-likelihood per sample, nats; with a target that of the target given the others.
    n_rows
        Number of samples.
    n_trials
        Fits that were evaluated, each without these samples, before all of them were fitted in the same way; 0 where
        it was the model itself that was evaluated.
    """

    computed: ClassVar[tuple[str, ...]] = ("log_likelihood",)

    per_row: float
    n_rows: int
    n_trials: int = 0

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all the samples, nats."""
        return self.per_row * self.n_rows

    def describe(self) -> str:
        """Say it in one line: in all, per row, and whose it is."""
        per_row, n_rows = decimal(self.per_row, 6), format_count(self.n_rows)
        text = (
            f"{decimal(self.log_likelihood, 8)} nats of {n_rows} held-out rows, {per_row} per row"
        )
        if self.n_trials == 1:
            return f"{text}, under the fit that was made without them"
        return f"{text}, under {self.n_trials} fits without them" if self.n_trials else text


@dataclass(frozen=True)
class RungFit(JsonRecord):
    """A rung of the ladder of a stack.

    Parameters
    ----------
    name, kind
        Name in tables, and kind of its models.
    states, members
        Number of latent states of each model, and number of models.
    passes
        Number of passes over the samples.
    held_out
        Held-out log-likelihood per sample of the rung alone, nats.
    weight
        Weight in the mixture.
    number
        Number among the models of the same kind and number of states, from 0.
    """

    name: str
    kind: str
    states: int
    members: int
    passes: int
    held_out: float
    weight: float
    number: int = 0


def tabulate_ladder(ladder: Sequence[RungFit]) -> SummaryTable:
    """Return the table of the rungs of a stack."""
    rows = [
        (
            each.name,
            decimal(each.weight, 2),
            decimal(each.held_out, 6),
            format_count(each.passes),
        )
        for each in ladder
    ]
    columns = ("rung", ">weight", ">held out, nats per row", ">passes")
    return SummaryTable("Models of the mixture", columns, rows, len(rows))
