"""Optima at which fits of a real survey end: `pmf.fit_em` by default next to plain EM of single random starts.

    python -m benchmarks.fitting.survey_starts
    python -m benchmarks.fitting.survey_starts --rows 6000 --seeds 2

reads all 81 questions of pisa2009, of 13,338 students (a fifth) for the test, and of so many others for training; `all`
are all others. A line per number of rows and method has, over seeds of the starts: the log-likelihood per row of the
training samples, worst and mean, that of the test samples, worst and mean, and passes and CPU seconds, medians. `auto`
is `pmf.fit_em(codes, rank=rank)`, and `accelerated` is with accelerate=True; `one random start` is EM without
pseudo-counts from conditional PMFs that are Dirichlet(1), until a share of 1e-8 of the log-likelihood is left: what
programs for latent class analysis do by default. Passes are those of the last run. Two minutes.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import polars as pl

import pmflib as pmf
from benchmarks.data import DATA

N_TEST = 13_338
N_PARTS = 2
"""Different training samples of a size that leaves so many."""


def read_survey(path: Path) -> tuple[pmf.Schema, np.ndarray, np.ndarray]:
    """Schema, and codes for training and for the test, shuffled."""
    table = pl.read_csv(path, infer_schema=False)
    schema = pmf.Schema.infer(table)
    codes = schema.encode(table)
    codes = codes[np.random.default_rng(0).permutation(len(codes))]
    return schema, codes[N_TEST:], codes[:N_TEST]


def start_at_random(schema: pmf.Schema, rank: int, seed: int) -> pmf.JointPMF:
    """A uniform prior, and conditional PMFs that are Dirichlet(1)."""
    rng = np.random.default_rng(seed)
    factors = [rng.dirichlet(np.ones(size), rank).T for size in np.diff(schema.offsets)]
    return pmf.JointPMF(np.full(rank, 1 / rank), np.concatenate(factors), schema)


def fit(method: str, codes: np.ndarray, schema: pmf.Schema, rank: int, seed: int) -> pmf.JointPMF:
    """Fit by one of the methods."""
    if method == "one random start":
        start = start_at_random(schema, rank, seed)
        return pmf.fit_em(codes, start, pseudo_count=0.0, max_passes=2000, tol=1e-8).model
    fast = method == "accelerated"
    return pmf.fit_em(codes, rank=rank, schema=schema, rng=seed, accelerate=fast).model


def main() -> None:
    """Print a line per size and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA / "pisa2009" / "pisaitems.csv.gz")
    parser.add_argument("--rows", default="6000,20000,all", help="default: %(default)s")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pmf.ConvergenceWarning)
    schema, samples, test = read_survey(options.data)
    print(f"{schema.n_variables} variables, {schema.n_levels} levels, {len(test)} test rows")
    print(
        f"{'rows':>6} {'part':>4}  {'method':<17}{'train, worst':>13}{'mean':>10}{'test, worst':>13}{'mean':>10}"
        f"{'passes':>8}{'CPU s':>7}"
    )
    for size in options.rows.split(","):
        n_rows = len(samples) if size == "all" else int(size)
        for part in range(min(N_PARTS, len(samples) // n_rows)):
            codes = samples[part * n_rows : (part + 1) * n_rows]
            for method in ("auto", "accelerated", "one random start"):
                train, held, passes, seconds = [], [], [], []
                for seed in range(options.seeds):
                    began = time.process_time()
                    model = fit(method, codes, schema, options.rank, seed)
                    seconds.append(time.process_time() - began)
                    passes.append(int(model.origin["passes"]))
                    train.append(float(model.log_prob(codes).mean()))
                    held.append(float(model.log_prob(test).mean()))
                print(
                    f"{n_rows:>6} {part:>4}  {method:<17}{min(train):>13.4f}{statistics.mean(train):>10.4f}"
                    f"{min(held):>13.4f}{statistics.mean(held):>10.4f}{statistics.median(passes):>8g}"
                    f"{statistics.median(seconds):>7.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
