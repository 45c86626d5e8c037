"""Continuous traits or latent classes: the choice of a run that has fitted both, by hidden answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pmflib.model.stored_comparison import PairedGain

ModelKind = Literal["traits", "classes"]
"""What a model is made of."""

NAMES = {"traits": "continuous traits", "classes": "latent classes"}
"""Words for the kinds of models."""


@dataclass(frozen=True)
class ModelChoice:
    """Which of two models is taken, and why.

    Parameters
    ----------
    chosen
        Its kind.
    reason
        One sentence for a person.
    gain
        How much more probable hidden answers are by traits than by latent classes; None where nothing was compared.
    """

    chosen: ModelKind
    reason: str
    gain: PairedGain | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, for the origin of the model and the summary of its fit."""
        numbers = {} if self.gain is None else self.gain.to_json()
        return {"chosen": self.chosen, "reason": self.reason, **numbers}


def choose_model(gain: PairedGain) -> ModelChoice:
    """Take traits if they make hidden answers more probable by more than one standard error, else latent classes.

    Parameters
    ----------
    gain
        That of traits over latent classes, on samples that neither was fitted to.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the rule of one
    standard error.
    """
    if gain.samples < 2:
        few = "latent classes: fewer than two validation samples have an answer to compare by"
        return ModelChoice("classes", few, gain)
    chosen: ModelKind = "traits" if gain.gain > gain.standard_error else "classes"
    by = "more" if gain.gain >= 0 else "less"
    reason = (
        f"{NAMES[chosen]}: traits make hidden answers of the validation samples {abs(gain.gain):.4f} +- "
        f"{gain.standard_error:.4f} nats {by} probable than latent classes do ({gain.cells:,} answers)"
    )
    if chosen == "classes" and gain.gain > 0:
        reason += ", which is not above one standard error"
    return ModelChoice(chosen, reason, gain)
