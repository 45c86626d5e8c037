"""How much better or worse workers are than all together: Newton's steps for all of them at once."""

import math

from pmflib.kernels.em_segments import OUTER
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel(**OUTER)
def find_skills(right, totals, odds, spread, n_steps, work, skills):  # type: ignore[no-untyped-def]
    """Go n_steps toward the most probable skills, by at most 1 each.

    right and totals: float64 (n_classes, n_workers), labels by true class, those that are right and all. odds:
    (n_classes,), of being right, for a skill of 0; a skill multiplies them by its exponential. spread: variance of the
    skills. work: (3, n_workers), overwritten. skills: (n_workers,), changed.
    """
    slopes, bends, factors = work[0], work[1], work[2]
    # classes outside: loops over workers become vectors
    for _ in range(n_steps):
        for i in range(skills.size):
            factors[i] = math.exp(skills[i])
            slopes[i] = -skills[i] / spread
            bends[i] = 1.0 / spread
        for k in range(odds.size):
            for i in range(skills.size):
                wrong = 1.0 / (1.0 + odds[k] * factors[i])
                missed = totals[k, i] * wrong
                slopes[i] += right[k, i] - totals[k, i] + missed
                bends[i] += missed * (1.0 - wrong)
        for i in range(skills.size):
            skills[i] += min(max(slopes[i] / bends[i], -1.0), 1.0)
