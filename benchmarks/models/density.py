"""Density estimation: test log-likelihood of one model and of averages, everything chosen on validation samples.

    python -m benchmarks.models.density ../shared/data/plants
    python -m benchmarks.models.density train.csv valid.csv test.csv --ranks 50,100 --members 10 --distil 100

takes a folder with files *.train.data, *.valid.data and *.test.data (or *.ts.data for training), or three files:
integers separated by commas or blanks, a row per sample, -1 where missing; .gz is unpacked. For every rank one model is
fitted, and the average of several; validation samples choose starts, pseudo-counts, passes and the rank. Test samples
are only looked at for the table: mean log-likelihood per row in nats, its standard error, and the paired difference to
the row above. Seconds are wall and CPU, all threads, without compilation.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pmflib as pmf
from pmflib.base.arrays import FloatArray, IntArray

SPLITS = (("train", "ts"), ("valid",), ("test",))


@dataclass(frozen=True)
class Split:
    """Codes of the three sets, of one schema."""

    schema: pmf.Schema
    train: IntArray
    valid: IntArray
    test: IntArray


@dataclass(frozen=True)
class Fit:
    """A model and what it cost."""

    name: str
    model: pmf.JointPMF
    valid: float
    seconds: float
    cpu: float
    notes: tuple[str, ...]


def find_files(paths: list[Path]) -> list[Path]:
    """Training, validation and test file."""
    if len(paths) == 3:
        return paths
    (folder,) = paths
    found = []
    for names in SPLITS:
        matches = [p for name in names for p in sorted(folder.glob(f"*.{name}.data*"))]
        if not matches:
            raise SystemExit(f"{folder} has no file *.{names[0]}.data")
        found.append(matches[0])
    return found


def read_codes(path: Path) -> IntArray:
    """Read integers separated by commas or blanks."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = raw.decode().replace(",", " ").splitlines()
    return np.array([line.split() for line in lines if line.strip()], np.int64)


def read_split(paths: list[Path]) -> Split:
    """Read the three sets; levels are what any of them holds."""
    sets = [read_codes(path) for path in find_files(paths)]
    sizes = np.maximum(np.max([codes.max(axis=0) for codes in sets], axis=0) + 1, 1)
    schema = pmf.Schema.from_cardinalities(sizes)
    return Split(schema, *(schema.encode(codes) for codes in sets))


def fit_one(split: Split, rank: int, members: int, seed: int) -> Fit:
    """One model, or the average of several."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
        found = pmf.fit_em(
            split.train,
            rank=rank,
            schema=split.schema,
            validation=split.valid,
            members=members,
            rng=seed,
        )
    name = f"rank {rank}" if members == 1 else f"average of {members} of rank {rank}"
    return time_fit(name, found.model, split, (wall, cpu), found.notes)


def distil(split: Split, average: pmf.JointPMF, rank: int, n_samples: int, seed: int) -> Fit:
    """One model fitted to samples drawn from an average; real validation samples choose."""
    wall, cpu = time.perf_counter(), time.process_time()
    drawn = average.sample(n_samples, rng=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
        found = pmf.fit_em(drawn, rank=rank, schema=split.schema, validation=split.valid, rng=seed)
    return time_fit(f"distilled to rank {rank}", found.model, split, (wall, cpu), found.notes)


def compile_kernels(split: Split, ranks: list[int]) -> None:
    """Make two passes of every rank: kernels are compiled once per process, which is not timed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
        for rank in sorted(set(ranks)):
            pmf.fit_em(
                split.train,
                rank=rank,
                schema=split.schema,
                validation=split.valid,
                start="random",
                pseudo_count=1.0,
                max_passes=2,
            )


def time_fit(
    name: str,
    model: pmf.JointPMF,
    split: Split,
    began: tuple[float, float],
    notes: tuple[str, ...],
) -> Fit:
    """Note the validation score, and the seconds up to now, wall and CPU."""
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    return Fit(name, model, float(model.log_prob(split.valid).mean()), seconds, cpu, notes)


def print_table(fits: list[Fit], split: Split) -> None:
    """Print the scores, each with its difference to the row above."""
    print(
        f"{'model':<32}{'states':>7}{'valid':>10}{'test':>10}{'s.e.':>7}{'gain':>9}{'s.e.':>7}"
        f"{'s':>8}{'CPU s':>8}"
    )
    before: FloatArray | None = None
    for fit in fits:
        scores = fit.model.log_prob(split.test)
        line = (
            f"{fit.name:<32}{fit.model.rank:>7}{fit.valid:>10.4f}{scores.mean():>10.4f}"
            f"{standard_error(scores):>7.3f}"
        )
        gain = " " * 16
        if before is not None:
            gain = f"{(scores - before).mean():>9.4f}{standard_error(scores - before):>7.4f}"
        print(f"{line}{gain}{fit.seconds:>8.2f}{fit.cpu:>8.2f}", flush=True)
        before = scores


def standard_error(values: FloatArray) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(values.size)


def main() -> None:
    """Fit all ranks and print what validation chooses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="a folder, or TRAIN VALID TEST")
    parser.add_argument("--ranks", default="100,200,400")
    parser.add_argument("--members", type=int, default=10, help="of an average; 1 = no average")
    parser.add_argument("--member-ranks", default="", help="ranks of members; default: --ranks")
    parser.add_argument("--distil", type=int, default=0, help="rank; 0 = do not")
    parser.add_argument("--drawn", type=int, default=100_000, help="samples drawn to distil")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--notes", action="store_true", help="print what was compared")
    options = parser.parse_args()
    if len(options.paths) not in (1, 3):
        parser.error("pass a folder, or three files")
    split = read_split(options.paths)
    print(
        f"{split.schema.n_variables} variables, {split.schema.n_levels} levels; rows: "
        f"{len(split.train)} train, {len(split.valid)} valid, {len(split.test)} test"
    )
    ranks = [int(each) for each in options.ranks.split(",")]
    member_ranks = [int(each) for each in options.member_ranks.split(",") if each] or ranks
    compile_kernels(split, [1, *ranks, *member_ranks])
    independent = fit_one(split, 1, 1, options.seed)
    single = [fit_one(split, rank, 1, options.seed) for rank in ranks]
    chosen = [independent, max(single, key=lambda fit: fit.valid)]
    averages = []
    if options.members > 1:
        averages = [fit_one(split, rank, options.members, options.seed) for rank in member_ranks]
        chosen.append(max(averages, key=lambda fit: fit.valid))
    if options.distil:
        chosen.append(distil(split, chosen[-1].model, options.distil, options.drawn, options.seed))
    print("\nall fits")
    print_table([independent, *single, *averages], split)
    print("\nchosen on validation; seconds of all ranks:", end=" ")
    print(f"one model {sum(fit.seconds for fit in single):.1f},", end=" ")
    print(f"averages {sum(fit.seconds for fit in averages):.1f}")
    print_table(chosen, split)
    if options.notes:
        for fit in chosen:
            print(f"\n{fit.name}", *fit.notes, sep="\n  ")


if __name__ == "__main__":
    main()
