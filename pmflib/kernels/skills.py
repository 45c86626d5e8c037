"""How much better or worse workers are than all together: Newton's steps for all of them at once."""

from pmflib.kernels.em_segments import OUTER
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel(**OUTER)
def step_skills(right, totals, odds, factors, spread, slopes, bends, skills):  # type: ignore[no-untyped-def]
    """Step toward the most probable skills, by at most 1.

    right and totals: float64 (n_classes, n_workers), labels by true class, those that are right and all. odds:
    (n_classes,), of being right, for a skill of 0; a skill multiplies them by its factor (n_workers,), its
    exponential. spread: variance of the skills. slopes and bends: (n_workers,), overwritten. skills:
    (n_workers,), changed.
    """
    # classes outside: loops over workers become vectors
    for i in range(skills.size):
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
