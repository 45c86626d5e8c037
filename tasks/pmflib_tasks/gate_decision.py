"""The gate: whether a new model may replace the live one, evaluated on cells that both have predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pmflib.core.comparison import PairedGain
from pmflib_tasks.config import GateConfig

Decision = Literal["better", "no worse", "worse", "unsure"]
"""What a set of cells says of the new model: better, beyond chance; sure not to lose more than is tolerated; worse,
beyond chance and perhaps by more than is tolerated; or not enough to say."""

OUTGROWN = 2
"""Times as many cells today as on the reference from which on the reference may object, but need not be sure: a log
that was started with a few samples would else never get past them."""

OF_WEIGHTED = (
    "gains and their errors are of weighted answers: they allow for weights, and not for units that samples were drawn "
    "in, or replicate weights"
)
"""What is said of gains where samples have weights."""

PROMOTE = "`pmf promote` makes it live all the same"


@dataclass(frozen=True)
class AssessedGain:
    """What one set of cells says of a new model.

    Parameters
    ----------
    found
        Gain of the new model over the live one.
    decision
        What it says.
    needed
        Cells, about, with which a loss as large as is tolerated would be seen, where there are not enough; None where
        there are, or where no number would do.
    """

    found: PairedGain
    decision: Decision
    needed: int | None = None

    @property
    def passes(self) -> bool:
        """Whether the new model may go live as far as these cells go."""
        return self.decision in ("better", "no worse")

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> AssessedGain:
        """Read what `to_json` gives."""
        return cls(PairedGain.from_json(content), content["verdict"], content.get("needed"))

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return {**self.found.to_json(), "verdict": self.decision, "needed": self.needed}


Assessed: TypeAlias = AssessedGain | str
"""What a set of cells says of a new model; or why it says nothing, as a clause: "the schema has changed"."""


@dataclass(frozen=True)
class GateNumbers:
    """What the gate found, as section "gate" of the facts of a run has it.

    Parameters
    ----------
    today
        What today's cells say; None where there was no live model to compare with, or the new one has its parameters.
    reference
        What those of the dataset say that the live model was made from; None where that is today's.
    rule
        The limits; None where nothing was compared.
    """

    today: Assessed | None = None
    reference: Assessed | None = None
    rule: GateConfig | None = None

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> GateNumbers:
        """Numbers among the facts of a run; without the rule, which an earlier version may have had otherwise."""
        found = facts.get("gate") or {}
        return cls(_read(found.get("today")), _read(found.get("reference")))

    @property
    def sets(self) -> dict[str, Assessed]:
        """What each set of cells says, by its name: of "today" and "reference", those that there are."""
        both = {"today": self.today, "reference": self.reference}
        return {name: each for name, each in both.items() if each is not None}

    @property
    def assessed(self) -> dict[str, AssessedGain]:
        """Sets of cells by which the models could be compared."""
        return {name: each for name, each in self.sets.items() if isinstance(each, AssessedGain)}

    @property
    def obstacles(self) -> dict[str, str]:
        """Why they could not be compared by the other sets."""
        return {name: each for name, each in self.sets.items() if isinstance(each, str)}

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
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
    """Whether the new model goes live.

    Parameters
    ----------
    promoted
        Whether it does.
    reason
        One sentence for a person.
    numbers
        What was found, and the rule.
    """

    promoted: bool
    reason: str
    numbers: GateNumbers

    @property
    def is_comparable(self) -> bool:
        """Whether the two models could be compared on today's cells."""
        return "today" in self.numbers.assessed


def assess_gain(found: PairedGain, gate: GateConfig) -> AssessedGain:
    """Evaluate a paired gain: a test of non-inferiority.

    The new model passes where gain - t * SE >= -largest_loss: where, but for the chance that ``standard_errors`` leave,
    its true loss is no larger than is tolerated. t is the quantile of Student's distribution with samples - 1 degrees
    of freedom that leaves the same chance as ``standard_errors`` leave of a normal one: of few samples the standard
    error is itself a guess.

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
    """Decide whether a new model replaces the live one: it has to pass on today's cells and on the reference.

    A reference with too few cells to be sure keeps the live model too, unless today has ``OUTGROWN`` times as many:
    then it does so only where the new model is worse on it, beyond chance.

    Parameters
    ----------
    gate
        The rule.
    today
        Gain of the new model on test samples of today's dataset; or why there is none, as a clause: "the schema has
        changed".
    reference
        The same of the dataset that the live model was made from; None where that is today's.
    objection
        Why a person does not want this very model, as a clause; it then stays back whatever it gains. "" is none.

    Returns
    -------
    The decision. Where there is nothing to compare on, the live model stays.
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
    """Whether today's cells, which pass, are so many more that an unsure reference does not matter."""
    today, reference = assessed.get("today"), assessed.get("reference")
    if today is None or reference is None or reference.decision != "unsure":
        return False
    return today.passes and today.found.cells >= OUTGROWN * reference.found.cells


def _explain(assessed: Mapping[str, AssessedGain], gate: GateConfig) -> str:
    """Say why a model does not pass."""
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
    """List what the sets say, as "better today, +0.12000 +- 0.01000 nats per hidden cell (6,012 cells)"."""
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
    """Part of the gain that may be chance, were there so many times the samples; nats per cell."""
    # a fifth of a second to import, which a night with nothing new can do without
    from scipy.special import ndtr, stdtrit

    n_samples = found.samples * factor
    if n_samples < 2:
        return math.inf
    quantile = -stdtrit(n_samples - 1, float(ndtr(-standard_errors)))
    return float(quantile * found.standard_error / math.sqrt(factor))


def _count_needed(found: PairedGain, gate: GateConfig) -> int | None:
    """Cells, to a tenth, with which the margin would be as small as the loss that is tolerated."""
    if found.samples < 2 or not gate.largest_loss:
        return None
    factor = max(1.0, gate.least_cells / max(found.cells, 1))
    while find_margin(found, gate.standard_errors, factor) > gate.largest_loss:
        factor *= 1.1
    return math.ceil(found.cells * factor)
