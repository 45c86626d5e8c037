"""How far two models are apart, latent state by latent state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.differences.alignment import AlignedLevels
from pmflib.level_blocks import sum_blocks
from pmflib.model import JointPMF
from pmflib.model.metrics import match_factors


@dataclass(frozen=True)
class StateChange:
    """One latent state of two models.

    Parameters
    ----------
    first, second
        Place of the state in either model; None where it has no partner there.
    prior_first, prior_second
        Its prior in either model; None likewise.
    mean_variation
        Total variation of the variables' PMFs given the state, mean over the variables; None without a partner.
    variable, variation
        Variable whose PMF given the state has changed most, and its total variation; None without a partner.
    """

    first: int | None
    second: int | None
    prior_first: float | None
    prior_second: float | None
    mean_variation: float | None = None
    variable: str | None = None
    variation: float | None = None


def compare_models(levels: AlignedLevels, first: JointPMF, second: JointPMF) -> list[StateChange]:
    """Match the latent states of two models, and compare them over the variables that the models share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        The models; their ranks may differ.

    Returns
    -------
    A change per state: those matched, by falling prior of the second model, then those of either without a partner.
    """
    factors_first = levels.align(first.factors, levels.first)
    factors_second = levels.align(second.factors, levels.second)
    partners = match_factors(first.prior, factors_first, second.prior, factors_second)
    matched, alone = [], []
    for state, partner in enumerate(partners.tolist()):
        prior = float(first.prior[state])
        if partner < 0:
            alone.append(StateChange(state, None, prior, None))
            continue
        variations = _compare_columns(levels, factors_first[:, state], factors_second[:, partner])
        changed = int(variations.argmax()) if variations.size else None
        matched.append(
            StateChange(
                state,
                partner,
                prior,
                float(second.prior[partner]),
                float(variations.mean()) if variations.size else None,
                None if changed is None else levels.names[changed],
                None if changed is None else float(variations[changed]),
            )
        )
    without = sorted({*range(second.rank)} - {*partners.tolist()})
    alone += [StateChange(None, each, None, float(second.prior[each])) for each in without]
    return sorted(matched, key=lambda change: -(change.prior_second or 0.0)) + alone


def _compare_columns(levels: AlignedLevels, first: FloatArray, second: FloatArray) -> FloatArray:
    """Total variation of each variable's PMF: shape (n_shared,)."""
    if not levels.names:
        return np.zeros(0)
    return sum_blocks(np.abs(first - second), levels.offsets) / 2
