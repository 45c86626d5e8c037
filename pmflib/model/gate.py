"""The gate: whether a new model may replace the live one, judged on cells that both have predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pmflib.config import GateConfig
from pmflib.model.stored_comparison import PairedGain

Verdict = Literal["better", "no worse", "worse", "unsure"]
"""What a set of cells says of the new model: better, beyond chance; sure not to lose more than is tolerated; worse,
beyond chance and perhaps by more than is tolerated; or not enough to say."""

OUTGROWN = 2
"""Times as many cells today as on the reference from which on the reference may object, but need not be sure: a log
that was started with a few samples would else never get past them."""

PROMOTE = "`pmf promote` makes it live all the same"


@dataclass(frozen=True)
class JudgedGain:
    """What one set of cells says of a new model.

    Parameters
    ----------
    found
        Gain of the new model over the live one.
    margin
        Part of the gain that may be chance, nats per cell: the standard error times the quantile of Student's t.
    verdict
        What it says.
    needed
        Cells, about, with which a loss as large as is tolerated would be seen, where there are not enough; None where
        there are, or where no number would do.
    """

    found: PairedGain
    margin: float
    verdict: Verdict
    needed: int | None = None

    @property
    def passes(self) -> bool:
        """Whether the new model may go live as far as these cells go."""
        return self.verdict in ("better", "no worse")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**self.found.to_json(), "verdict": self.verdict, "needed": self.needed}


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
        Plain JSON types: the rule, and what was found today and on the reference: of each gain, standard error, cells,
        samples, verdict, and the cells needed where they are too few, or why there is nothing.
    """

    promoted: bool
    reason: str
    numbers: dict[str, Any]

    @property
    def is_comparable(self) -> bool:
        """Whether the two models could be compared on today's cells."""
        return "obstacle" not in self.numbers["today"]


def judge_gain(found: PairedGain, gate: GateConfig) -> JudgedGain:
    """Judge a paired gain: a test of non-inferiority.

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
    margin = _find_margin(found, gate.standard_errors, 1.0)
    if found.cells < gate.least_cells or not math.isfinite(margin):
        return JudgedGain(found, margin, "unsure", _count_needed(found, gate))
    if found.gain - margin >= -gate.largest_loss:
        return JudgedGain(found, margin, "better" if found.gain > margin else "no worse")
    if found.gain + margin < 0:
        return JudgedGain(found, margin, "worse")
    return JudgedGain(found, margin, "unsure", _count_needed(found, gate))


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
    found = {"today": today} | ({} if reference is None else {"reference": reference})
    judged = {
        name: judge_gain(each, gate) for name, each in found.items() if isinstance(each, PairedGain)
    }
    obstacles = {name: each for name, each in found.items() if isinstance(each, str)}
    numbers: dict[str, Any] = {name: each.to_json() for name, each in judged.items()}
    numbers |= {name: {"obstacle": each} for name, each in obstacles.items()}
    numbers["rule"] = gate.model_dump()
    passed = all(each.passes for each in judged.values()) or _has_outgrown(judged)
    promoted = passed and not obstacles and not objection
    if objection:
        reason = f"kept the live model: {objection}; {PROMOTE}"
    elif promoted:
        reason = f"promoted over the live model: {_list_verdicts(judged)}"
    elif obstacles:
        clauses = " and ".join(dict.fromkeys(obstacles.values()))
        seen = f" (the new one is {_list_verdicts(judged)})" if judged else ""
        reason = f"kept the live model{seen}: {clauses}, so the two cannot be compared; {PROMOTE}"
    else:
        reason = f"kept the live model: {_explain(judged, gate)}; {PROMOTE}"
    return GateDecision(promoted, reason, numbers)


def _has_outgrown(judged: Mapping[str, JudgedGain]) -> bool:
    """Whether today's cells, which pass, are so many more that an unsure reference does not matter."""
    today, reference = judged.get("today"), judged.get("reference")
    if today is None or reference is None or reference.verdict != "unsure":
        return False
    return today.passes and today.found.cells >= OUTGROWN * reference.found.cells


def _explain(judged: Mapping[str, JudgedGain], gate: GateConfig) -> str:
    """Say why a model does not pass."""
    if any(each.verdict == "worse" for each in judged.values()):
        return f"the new one is {_list_verdicts(judged)}"
    few = {name: each for name, each in judged.items() if each.verdict == "unsure"}
    said = [
        f"{each.found.cells:,} {_place(name)} leave {_describe(each)}" for name, each in few.items()
    ]
    text = f"too few hidden cells to be sure that the new one loses less than {gate.largest_loss:g} nats per cell: "
    text += " and ".join(said)
    if needed := max((each.needed or 0 for each in few.values()), default=0):
        text += f"; about {needed:,} are needed: raise evaluate.test_folds or gate.largest_loss"
    return text


def _list_verdicts(judged: Mapping[str, JudgedGain]) -> str:
    """List what the sets say, as "better today, +0.12000 +- 0.01000 nats per hidden cell (6,012 cells)"."""
    said = []
    for place, (name, each) in enumerate(judged.items()):
        unit = " nats per hidden cell" if place == 0 else ""
        said.append(
            f"{each.verdict} {_place(name)}, {_describe(each)}{unit} ({each.found.cells:,} cells)"
        )
    return "; ".join(said)


def _place(name: str) -> str:
    return "today" if name == "today" else "on the reference of the live model"


def _describe(judged: JudgedGain) -> str:
    return f"{judged.found.gain:+.5f} +- {judged.found.standard_error:.5f}"


def _find_margin(found: PairedGain, standard_errors: float, factor: float) -> float:
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
    while _find_margin(found, gate.standard_errors, factor) > gate.largest_loss:
        factor *= 1.1
    return math.ceil(found.cells * factor)
