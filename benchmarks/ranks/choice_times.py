"""What a choice of the rank costs: of a table that is drawn, and of pipelines whose counts are in their stores.

    python -m benchmarks.ranks.choice_times
    python -m benchmarks.ranks.choice_times --pipelines movies/pipeline.toml --budget 60
    python -m benchmarks.ranks.choice_times --tables mushroom-600
    python -m benchmarks.ranks.choice_times --wide

prints the ranks by pairs and by samples, the process CPU seconds of the choice, and the longest time between two
reports of progress. The table has 10,000 rows and 20 columns of 2 to 8 levels, a tenth missing. Kernels are compiled
before. A pipeline is one that `pmf run` has been through; its schema may have thousands of levels. Of tables of
`benchmarks.models.optima` it prints what `fit_em(rank="auto")` makes of them, and the seconds of choice and fit.
The wide table has 10,000 rows and 1,000 columns of two levels, drawn from ten classes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.models.optima import list_tables
from pmflib.counts.pair_counts import load_shape
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.fits.ranks.by_samples import select_rank_by_samples
from pmflib.fits.ranks.choice import RankProgress
from pmflib.fits.ranks.fit_runs import DEFAULT_BUDGET
from pmflib.fits.ranks.selection import select, split_for_choice
from pmflib.model.sampling import sample_codes
from pmflib.store.artefacts import Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.run_records import find_last_run
from pmflib_tasks.config import load_config

SIZES = [2, 3, 4, 5, 8] * 4
RANK = 6
N_ROWS = 10_000


class Gaps:
    """The longest time between two reports."""

    def __init__(self) -> None:
        self.longest, self._last = 0.0, time.monotonic()

    def __call__(self, progress: RankProgress) -> None:
        """Take a report."""
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now


def choose_drawn() -> None:
    """Choose the rank of a drawn table, twice: the first time compiles."""
    rng = np.random.default_rng(0)
    schema = pmf.Schema.from_cardinalities(SIZES)
    factors = np.concatenate([rng.dirichlet(np.full(size, 0.6), RANK).T for size in SIZES])
    prior = rng.dirichlet(np.full(RANK, 2.0))
    codes = sample_codes(prior, factors, schema.offsets, N_ROWS, rng, observed=0.9)
    training, held_out = codes[: N_ROWS * 9 // 10], codes[N_ROWS * 9 // 10 :]
    counts = pmf.count_pairs(training, schema)
    for _ in range(2):
        gaps, started = Gaps(), time.process_time()
        by_pairs = select_rank(counts, on_progress=gaps)
        chosen = select_rank_by_samples(
            training, held_out, counts, first=by_pairs.rank, on_progress=gaps
        )
        spent = time.process_time() - started
    show("drawn", by_pairs.rank, chosen.rank, spent, gaps)


def choose_stored(path: Path, budget: float) -> None:
    """Choose the rank of a pipeline's dataset anew; nothing in its store changes."""
    config = load_config(path)
    store = Store(config.resolve(config.store.path))
    run = find_last_run(store, config.name)
    assert run is not None
    folds, dataset = config.fold_split, run.stages["dataset"]
    gaps, started = Gaps(), time.process_time()
    schema = load_shape(store.locate(run.stages["counts"]) / "pairs")[0]
    fit = EMFit(schema, 2, Options.make("auto", "auto", 1, 2), config.seed, Passes())
    training, validation = (
        StoredSamples(list_dataset_blocks(store, dataset, part), schema)
        for part in (folds.train, folds.validation)
    )
    splits = split_for_choice(fit, training, validation)
    choice = select(fit, splits, budget=budget, on_progress=gaps)
    show(str(path), 0, choice.rank, time.process_time() - started, gaps)
    print("\n".join(f"  {each}" for each in (choice.decision, *choice.reasons)))


def fit_open(name: str) -> None:
    """Fit a table with the rank left open."""
    fit_codes(name, list_tables()[name][0]())


def fit_wide() -> None:
    """Fit a wide table with the rank left open."""
    rng = np.random.default_rng(0)
    chances = rng.beta(0.6, 0.6, (10, 1000))
    codes = (rng.random((N_ROWS, 1000)) < chances[rng.integers(10, size=N_ROWS)]).astype(np.int64)
    fit_codes("10,000 x 1,000", codes)


def fit_codes(name: str, codes: np.ndarray) -> None:
    """Fit codes with the rank left open, and print the seconds."""
    schema = pmf.Schema.from_cardinalities((codes.max(axis=0) + 1).tolist())
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = pmf.fit_em(codes, rank="auto", schema=schema).model
    spent = time.process_time() - started
    print(f"{name}: rank {model.rank}, {spent:.1f} s of processor time", flush=True)


def show(name: str, by_pairs: int, rank: int, spent: float, gaps: Gaps) -> None:
    """Print a line."""
    print(
        f"{name}: rank {by_pairs} by pairs, {rank} chosen, {spent:.1f} s of processor time, "
        f"{gaps.longest:.1f} s between reports at most",
        flush=True,
    )


def main() -> None:
    """Go through the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", type=Path, nargs="*", default=[])
    parser.add_argument("--budget", type=float, default=DEFAULT_BUDGET)
    parser.add_argument("--tables", nargs="*", default=[], help="of benchmarks.models.optima")
    parser.add_argument("--wide", action="store_true", help="fit a table of 1,000 columns")
    options = parser.parse_args()
    choose_drawn()
    if options.wide:
        fit_wide()
    for name in options.tables:
        fit_open(name)
    for path in options.pipelines:
        choose_stored(path, options.budget)


if __name__ == "__main__":
    main()
