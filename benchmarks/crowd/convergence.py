"""Figures 2 and 3 of the crowdsourcing paper: how fast the alternation with a shifted ReLU finds a sparse factor.

    python -m benchmarks.crowd.convergence --trials 20

For H of 1000 rows and 3 columns, of whose entries a share is uniform and the rest 0, without noise and at 30 dB: the
median over trials of the squared distance of H(t), columns matched, over the number of columns, after some steps, with
the threshold psi^(t+1) of the paper and with 0, which is the alternation of Huang, Sidiropoulos and Swami; and the
share of trials in which the threshold is nearer after 20 steps. Theorem 3 promises a geometric fall: "rate" is the
median factor by which the distance of the rotation falls in a step, of steps until it is at the level of rounding or
noise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from pmflib.papers.rotation import alternate_shifted, root_of

N_ROWS, RANK = 1000, 3
STEPS = (5, 10, 20, 40, 80)
ROUNDING = 1e-20


@dataclass(frozen=True)
class Setting:
    """A panel of a figure: share of nonzero entries, psi, and the signal-to-noise ratio in dB; None without noise."""

    figure: int
    share: float
    psi: float
    ratio: float | None

    @property
    def title(self) -> str:
        """Setting as the paper names it."""
        return f"figure {self.figure}: phi={self.share}, psi={self.psi}"


SETTINGS = [
    Setting(figure, share, psi, ratio)
    for figure, psi, ratio in ((2, 0.75, None), (3, 0.6, 30.0))
    for share in (0.7, 0.5, 0.3)
]


def run_trial(setting: Setting, seed: int) -> dict[str, np.ndarray]:
    """Distances after each step, of both thresholds."""
    rng = np.random.default_rng([seed, setting.figure, round(10 * setting.share)])
    shape = N_ROWS, RANK
    factor = rng.random(shape) * (rng.random(shape) < setting.share)
    matrix = factor @ factor.T
    if setting.ratio is not None:
        spread = np.sqrt((matrix**2).mean() / 10 ** (setting.ratio / 10))
        noise = rng.normal(0, spread, matrix.shape)
        matrix += np.triu(noise) + np.triu(noise, 1).T
    root = root_of(matrix, RANK)
    return {
        name: np.array([measure(found, factor) for found, _ in alternate_shifted(root, shifts)])
        for name, shifts in (
            ("shifted", [setting.psi ** (step + 1) for step in range(STEPS[-1])]),
            ("plain", [0.0] * STEPS[-1]),
        )
    }


def measure(found: np.ndarray, factor: np.ndarray) -> float:
    """Squared distance for the best order of the columns, over their number."""
    costs = ((found[:, :, None] - factor[:, None, :]) ** 2).sum(axis=0)
    return float(costs[linear_sum_assignment(costs)].sum() / RANK)


def find_rate(distances: np.ndarray) -> float:
    """Median factor between steps while the distance is above rounding and its end."""
    above = distances[distances > max(ROUNDING, 1.5 * distances[-1])]
    return float(np.median(above[1:] / above[:-1])) if above.size > 1 else 0.0


def main() -> None:
    """Print a table of all panels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    heads = "".join(f"{f't={step}':>10}" for step in STEPS)
    for setting in SETTINGS:
        trials = [run_trial(setting, seed) for seed in range(options.trials)]
        print(f"\n{setting.title}, {options.trials} trials\n{'':10}{heads}{'rate':>8}{'nearer':>8}")
        ends = [trial["shifted"][19] <= trial["plain"][19] for trial in trials]
        for name in ("shifted", "plain"):
            medians = np.median([trial[name] for trial in trials], axis=0)
            cells = "".join(f"{medians[step - 1]:>10.1e}" for step in STEPS)
            rate = np.median([find_rate(trial[name]) for trial in trials])
            share = f"{np.mean(ends):>8.2f}" if name == "shifted" else ""
            print(f"{name:10}{cells}{rate:>8.3f}{share}", flush=True)


if __name__ == "__main__":
    main()
