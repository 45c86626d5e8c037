"""The gate: the decision whether a new model replaces the live one, from cells that both have predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pmflib.base.comparison import PairedGain
from pmflib.base.json_records import Form, JsonRecord
from pmflib_tasks.config import GateConfig

Decision = Literal["better", "no worse", "worse", "unsure"]
"""Verdict of a set of cells on the new model: significantly better; not worse by more than the tolerance; significantly
worse, possibly by more than the tolerance; or undecided."""

OUTGROWN = 2
"""Ratio of current cells to reference cells from which an undecided reference no longer blocks a model: otherwise a log
that started with a few samples would never get past them."""

OF_WEIGHTED = (
    "gains and their errors are of weighted answers: they allow for weights, and not for units that samples were drawn "
    "in, or replicate weights"
)
"""Note on gains if samples have weights."""

PROMOTE = "`pmf promote` makes it live nevertheless"


@dataclass(frozen=True)
class AssessedGain(JsonRecord):
    """Verdict of one set of cells on a new model.

    Parameters
    ----------
    found
        Gain of the new model over the live one.
    decision
        The verdict.
    needed
        Approximate number of cells that would detect a loss of the tolerated size, if there are too few; None if there
        are enough, or if no number suffices.
    """

    found: Annotated[PairedGain, Form.FLAT]
    decision: Annotated[Decision, "verdict"]
    needed: int | None = None

    @property
    def passes(self) -> bool:
        """Whether the new model may go live by these cells."""
        return self.decision in ("better", "no worse")


Assessed: TypeAlias = AssessedGain | str
"""Verdict of a set of cells, or a clause that explains why there is none, such as "the schema has changed"."""


@dataclass(frozen=True)
class GateNumbers:
    """Results of the gate, as in section "gate" of the facts of a run.

    Parameters
    ----------
    today
        Result on today's cells; None if there was no live model, or the new model has its parameters.
    reference
        Result on the dataset of the live model; None if that is the current dataset.
    rule
        The limits; None if nothing was compared.
    """

    today: Assessed | None = None
    reference: Assessed | None = None
    rule: GateConfig | None = None

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> GateNumbers:
        """Read the results from section "gate", without the rule, whose format differs between versions."""
        return cls(_read(section.get("today")), _read(section.get("reference")))

    @property
    def sets(self) -> dict[str, Assessed]:
        """Results by the name of the set of cells: "today" and "reference", if present."""
        both = {"today": self.today, "reference": self.reference}
        return {name: each for name, each in both.items() if each is not None}

    @property
    def assessed(self) -> dict[str, AssessedGain]:
        """Results of the sets of cells that could be compared."""
        return {name: each for name, each in self.sets.items() if isinstance(each, AssessedGain)}

    @property
    def obstacles(self) -> dict[str, str]:
        """Reasons why the other sets could not be compared."""
        return {name: each for name, each in self.sets.items() if isinstance(each, str)}

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types."""
        return {
            **{name: each.to_json() for name, each in self.assessed.items()},
            **{name: {"obstacle": each} for name, each in self.obstacles.items()},
            **({} if self.rule is None else {"rule": self.rule.model_dump()}),
        }


def _read(content: Mapping[str, Any] | None) -> Assessed | None:
    if content is None:
        return None
    return str(content["obstacle"]) if "obstacle" in content else AssessedGain.from_json(content)


@dataclass(frozen=True)
class GateDecision:
    """Decision whether the new model goes live.

    Parameters
    ----------
    promoted
        Whether it does.
    reason
        One sentence for people.
    numbers
        Results and rule.
    """

    promoted: bool
    reason: str
    numbers: GateNumbers

    @property
    def is_comparable(self) -> bool:
        """Whether the two models could be compared on today's cells."""
        return "today" in self.numbers.assessed


def assess_gain(found: PairedGain, gate: GateConfig) -> AssessedGain:
    """Evaluate a paired gain by a test of non-inferiority.

    The new model passes if gain - t * SE >= -largest_loss, where t is the quantile of Student's distribution with
    samples - 1 degrees of freedom whose tail probability is that of ``standard_errors`` under a normal distribution.

    Parameters
    ----------
    found
        Gain of the new model over the live one.
    gate
        The rule.

    References
    ----------
    Wellek (2010), Testing Statistical Hypotheses of Equivalence and Noninferiority, section 1.5.
    """
    margin = find_margin(found, gate.standard_errors, 1.0)
    if found.cells < gate.least_cells or not math.isfinite(margin):
        return AssessedGain(found, "unsure", _count_needed(found, gate))
    if found.gain - margin >= -gate.largest_loss:
        return AssessedGain(found, "better" if found.gain > margin else "no worse")
    if found.gain + margin < 0:
        return AssessedGain(found, "worse")
    return AssessedGain(found, "unsure", _count_needed(found, gate))


def decide(
    gate: GateConfig,
    today: PairedGain | str,
    reference: PairedGain | str | None,
    objection: str = "",
) -> GateDecision:
    """Decide whether a new model replaces the live one: it must pass on today's cells and on the reference.

    An undecided reference keeps the live model, unless there are ``OUTGROWN`` times as many cells today; then only a
    reference on which the new model is significantly worse does.

    Parameters
    ----------
    gate
        The rule.
    today
        Gain of the new model on test samples of the current dataset, or a clause that explains why there is none.
    reference
        The same for the dataset of the live model; None if that is the current dataset.
    objection
        Clause with a person's reason against this model, which then does not go live; empty for none.

    Returns
    -------
    The decision. If nothing can be compared, the live model stays.
    """
    said = [
        assess_gain(each, gate) if isinstance(each, PairedGain) else each
        for each in (today, reference)
    ]
    numbers = GateNumbers(said[0], said[1], gate)
    assessed, obstacles = numbers.assessed, numbers.obstacles
    passed = all(each.passes for each in assessed.values()) or _has_outgrown(assessed)
    promoted = passed and not obstacles and not objection
    if objection:
        reason = f"kept the live model: {objection}; {PROMOTE}"
    elif promoted:
        reason = f"promoted over the live model: {_list_decisions(assessed)}"
    elif obstacles:
        clauses = " and ".join(dict.fromkeys(obstacles.values()))
        seen = f" (the new one is {_list_decisions(assessed)})" if assessed else ""
        reason = f"kept the live model{seen}: {clauses}, so the two cannot be compared; {PROMOTE}"
    else:
        reason = f"kept the live model: {_explain(assessed, gate)}; {PROMOTE}"
    return GateDecision(promoted, reason, numbers)


def _has_outgrown(assessed: Mapping[str, AssessedGain]) -> bool:
    """Whether today's cells pass and are so many more that an undecided reference does not matter."""
    today, reference = assessed.get("today"), assessed.get("reference")
    if today is None or reference is None or reference.decision != "unsure":
        return False
    return today.passes and today.found.cells >= OUTGROWN * reference.found.cells


def _explain(assessed: Mapping[str, AssessedGain], gate: GateConfig) -> str:
    """Explain why a model does not pass."""
    if any(each.decision == "worse" for each in assessed.values()):
        return f"the new one is {_list_decisions(assessed)}"
    few = {name: each for name, each in assessed.items() if each.decision == "unsure"}
    said = [
        f"{each.found.cells:,} {_name_set(name)} leave {_describe(each)}"
        for name, each in few.items()
    ]
    text = f"too few hidden cells to be sure that the new one loses less than {gate.largest_loss:g} nats per cell: "
    text += " and ".join(said)
    if needed := max((each.needed or 0 for each in few.values()), default=0):
        text += f"; about {needed:,} are needed: raise evaluate.test_folds or gate.largest_loss"
    return text


def _list_decisions(assessed: Mapping[str, AssessedGain]) -> str:
    """List the verdicts, as "better today, +0.12000 +- 0.01000 nats per hidden cell (6,012 cells)"."""
    said = []
    for index, (name, each) in enumerate(assessed.items()):
        unit = " nats per hidden cell" if index == 0 else ""
        said.append(
            f"{each.decision} {_name_set(name)}, {_describe(each)}{unit} ({each.found.cells:,} cells)"
        )
    return "; ".join(said)


def _name_set(name: str) -> str:
    return "today" if name == "today" else "on the reference of the live model"


def _describe(assessed: AssessedGain) -> str:
    return f"{assessed.found.gain:+.5f} +- {assessed.found.standard_error:.5f}"


def find_margin(found: PairedGain, standard_errors: float, factor: float) -> float:
    """Compute the margin of error of a gain if there were ``factor`` times the samples, nats per cell."""
    # a fifth of a second to import, which a run with nothing new can do without
    from scipy.special import ndtr, stdtrit

    n_samples = found.samples * factor
    if n_samples < 2:
        return math.inf
    quantile = -stdtrit(n_samples - 1, float(ndtr(-standard_errors)))
    return float(quantile * found.standard_error / math.sqrt(factor))


def _count_needed(found: PairedGain, gate: GateConfig) -> int | None:
    """Estimate, to a tenth, the number of cells for which the margin equals the tolerated loss."""
    if found.samples < 2 or not gate.largest_loss:
        return None
    factor = max(1.0, gate.least_cells / max(found.cells, 1))
    while find_margin(found, gate.standard_errors, factor) > gate.largest_loss:
        factor *= 1.1
    return math.ceil(found.cells * factor)
