"""Time of the pairwise solvers at N=15, F=10, I=10, S=1e5, p=0.5, against the published update in compiled form.

    python -m benchmarks.fitting.solver_times --trials 3

prints CPU seconds, medians over the trials, all on the same marginals: CNMF-SPA (target: below 5 ms), CNMF-OPT by
closed-form updates until it has converged (below 1 s), and by the published exponentiated gradient with Armijo's rule,
compiled, from the same start: 200 and 50 inner steps, 200 sweeps or a relative change of 1e-6 (20 times slower at
least). Divergences are the mean over the pairs, nats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

import pmflib as pmf
from pmflib.model.sampling import sample_codes
from pmflib.solvers.pairs.composite import fit_composite
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.synthetic.planted_models import published_factors

N_VARIABLES, N_LEVELS, RANK, N_SAMPLES, OBSERVED = 15, 10, 10, 100_000, 0.5
FLOOR = 1e-6
SWEEPS, STEPS, PRIOR_STEPS, TOL = 200, 200, 50, 1e-6


@njit
def measure(table, model, n_levels):  # type: ignore[no-untyped-def]
    """Loss of a block without its entropy: cells floored, each pair scaled to sum 1; model becomes table / cells."""
    n_rows, n_columns = table.shape
    loss = 0.0
    for first in range(0, n_columns, n_levels):
        total = 0.0
        for a in range(n_rows):
            for b in range(first, first + n_levels):
                model[a, b] = max(model[a, b], FLOOR)
                total += model[a, b]
        loss += np.log(total)
        for a in range(n_rows):
            for b in range(first, first + n_levels):
                if table[a, b] > 0:
                    loss -= table[a, b] * np.log(model[a, b])
                model[a, b] = table[a, b] / model[a, b] * total
    return loss


@njit
def step_columns(columns, gradient, step):  # type: ignore[no-untyped-def]
    """Exponentiated gradient; columns sum to 1."""
    moved = columns * np.exp(-step * gradient)
    for f in range(columns.shape[1]):
        moved[:, f] /= moved[:, f].sum()
    return moved


@njit
def descend(table, factor, others, n_levels, n_steps):  # type: ignore[no-untyped-def]
    """Steps on the factor of one variable."""
    ratio = factor @ others.T
    loss = measure(table, ratio, n_levels)
    for _ in range(n_steps):
        gradient = -(ratio @ others)
        step, found = 0.1, False
        while step >= 1e-5:
            moved = step_columns(factor, gradient, step)
            moved_ratio = moved @ others.T
            moved_loss = measure(table, moved_ratio, n_levels)
            if moved_loss <= loss - 1e-4 * np.sum(gradient * (factor - moved)):
                found = True
                break
            step *= 0.3
        if not found:
            break
        change = np.sqrt(np.sum((moved - factor) ** 2) / np.sum(factor**2))
        factor, ratio, loss = moved, moved_ratio, moved_loss
        if change < 1e-6:
            break
    return factor


@njit
def measure_prior(pairs, factors, prior, n_levels, gradient):  # type: ignore[no-untyped-def]
    """Loss of all pairs j < k without their entropy, and its slope in the prior."""
    gradient[:] = 0.0
    loss = 0.0
    for first in range(0, len(factors) - n_levels, n_levels):
        mine = factors[first : first + n_levels]
        rest = factors[first + n_levels :]
        ratio = (mine * prior) @ rest.T
        table = pairs[first : first + n_levels, first + n_levels :]
        loss += measure(table, ratio, n_levels)
        gradient -= np.sum((ratio @ rest) * mine, axis=0)
    return loss


@njit
def fit_published(pairs, factors, prior, n_levels, entropy):  # type: ignore[no-untyped-def]
    """Sweeps over all blocks: factors, prior, sweeps made, loss with the entropy."""
    n_variables = len(factors) // n_levels
    gradient, ahead = np.empty_like(prior), np.empty_like(prior)
    last, n_sweeps = np.inf, 0
    while n_sweeps < SWEEPS:
        n_sweeps += 1
        for j in range(n_variables):
            rows = slice(j * n_levels, (j + 1) * n_levels)
            table = np.concatenate((pairs[rows, : rows.start], pairs[rows, rows.stop :]), axis=1)
            others = np.concatenate((factors[: rows.start], factors[rows.stop :])) * prior
            mine = np.ascontiguousarray(factors[rows])
            factors[rows] = descend(table, mine, others, n_levels, STEPS)
        loss = measure_prior(pairs, factors, prior, n_levels, gradient)
        for _ in range(PRIOR_STEPS):
            step, found = 0.1, False
            while step >= 1e-5:
                moved = prior * np.exp(-step * gradient)
                moved /= moved.sum()
                moved_loss = measure_prior(pairs, factors, moved, n_levels, ahead)
                if moved_loss <= loss - 1e-4 * np.sum(gradient * (prior - moved)):
                    found = True
                    break
                step *= 0.3
            if not found:
                break
            change = np.sqrt(np.sum((moved - prior) ** 2) / np.sum(prior**2))
            prior, loss = moved, moved_loss
            gradient[:] = ahead
            if change < 1e-6:
                break
        if abs(last - loss) < TOL * (loss + entropy):
            break
        last = loss
    return factors, prior, n_sweeps, loss + entropy


def draw_marginals(seed: int) -> pmf.Marginals:
    """Marginals of samples of a model of the published generator."""
    rng = np.random.default_rng(seed)
    prior, factors = published_factors(N_VARIABLES, N_LEVELS, RANK, rng)
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * N_VARIABLES)
    codes = sample_codes(prior, factors, schema.offsets, N_SAMPLES, rng, observed=OBSERVED)
    return pmf.Marginals.from_counts(pmf.count_pairs(codes, schema, n_folds=1))


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return CPU seconds, and the result."""
    began = time.process_time()
    done = work()
    return time.process_time() - began, done


def main() -> None:
    """Time the three, one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="1 trial")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"spa": [], "opt": [], "published": []}
    for seed in range(-1, 1 if options.short else options.trials):
        # the first is not counted: it compiles
        marginals = draw_marginals(seed + 1)
        data = marginals.pairs, marginals.offsets, marginals.observed
        held = marginals.pairs[np.repeat(np.repeat(marginals.observed, N_LEVELS, 0), N_LEVELS, 1)]
        held = held[held > 0]
        entropy = float(held @ np.log(held)) / 2
        n_pairs = marginals.observed.sum() / 2
        spent, spa = clock(lambda data=data: fit_spa(*data, rank=RANK))  # type: ignore[misc]
        start = np.full(RANK, 1 / RANK), np.maximum(spa.factors, FLOOR)
        spans = {"spa": spent}
        spans["opt"], opt = clock(
            lambda data=data, start=start: fit_composite(*data, initial=start, max_iter=2000)  # type: ignore[misc]
        )
        if seed >= 0:
            spans["published"], (_, _, sweeps, loss) = clock(
                lambda start=start, pairs=marginals.pairs, entropy=entropy: fit_published(  # type: ignore[misc]
                    pairs, start[1].copy(), start[0], N_LEVELS, entropy
                )
            )
            for name, span in spans.items():
                seconds[name].append(span)
            print(
                f"trial {seed}: spa {1000 * spans['spa']:.1f} ms; opt {spans['opt']:.2f} s, divergence "
                f"{opt.loss_history[-1]:.6f}; published {spans['published']:.1f} s, {sweeps} sweeps, divergence "
                f"{loss / n_pairs:.6f}; ratio {spans['published'] / spans['opt']:.0f}",
                flush=True,
            )
        else:
            few = marginals.pairs[:30, :30]
            fit_published(few, start[1][:30].copy(), start[0], N_LEVELS, entropy)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(
        f"median: spa {1000 * medians['spa']:.1f} ms, opt {medians['opt']:.2f} s, published "
        f"{medians['published']:.1f} s: {medians['published'] / medians['opt']:.0f} times opt"
    )


if __name__ == "__main__":
    main()
