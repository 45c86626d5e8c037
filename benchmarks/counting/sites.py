"""Models of counts from eight sites: what is lost without the rows, and by rounding the counts.

    python -m benchmarks.counting.sites [TABLE ...] [--rows 12000] [--minimum 1 5 10] [--seeds 3]

The rows of a public table are divided among eight sites of unequal size by a variable; half of the rows of each site,
by chance, train and the others judge. A line for each way of learning has the root mean square difference of the
probabilities of pairs from the shares in the judging rows of all sites (of cells, in units of 1e-4), and the mean
log-likelihood of these rows with its difference to that of EM and its standard error. Shares of pairs give no
log-likelihood of a row. Ways: the pooled counts themselves; their shares at each site, averaged with equal weights;
`pmf.fit` of the pooled counts; `pmf.fit_em` of all rows; `pmf.fit` of the counts of each site alone, the mean over
sites. Rounded counts are the mean over seeds. Every rank is chosen by `rank="auto"`; nothing else is set.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.panels.tables import make_schema, read_codes
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.counts.marginals import Marginals

N_SITES = 8
SITE_COLUMNS = {"nltcs": (0, 1, 2), "adult": (6,), "gss7402": (3,), "doctorvisits": (2,)}
"""Columns whose levels are the sites: seven with the most rows, and all others together. They are no variables."""


@dataclass(frozen=True)
class Judge:
    """What models are judged by.

    Parameters
    ----------
    codes
        Judging rows of all sites.
    marginals
        Their shares of pairs.
    likelihood
        Log-likelihood of each row by the model of reference.
    """

    codes: IntArray
    marginals: Marginals
    likelihood: FloatArray

    def measure_pairs(self, pairs: FloatArray) -> float:
        """Root mean square difference of the probabilities of pairs, of different variables."""
        owners = np.repeat(np.arange(len(self.marginals.observed)), np.diff(self.marginals.offsets))
        is_judged = self.marginals.observed[owners[:, None], owners]
        return float(np.sqrt(np.square(pairs - self.marginals.pairs)[is_judged].mean()))


def divide(codes: IntArray, columns: Sequence[int]) -> list[IntArray]:
    """Divide rows among sites, and drop the columns that name the site."""
    keys = np.ravel_multi_index(codes[:, columns].T + 1, codes[:, columns].max(axis=0) + 2)
    levels, numbers = np.unique(keys, return_counts=True)
    largest = levels[np.argsort(-numbers, kind="stable")][: N_SITES - 1]
    kept = np.delete(codes, columns, axis=1)
    return [*(kept[keys == level] for level in largest), kept[~np.isin(keys, largest)]]


def fit(counts: pmf.PairCounts) -> pmf.JointPMF:
    """Fit pairs as a user does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pmf.fit(counts, "auto").model


def print_line(
    name: str, judge: Judge, found: Sequence[pmf.JointPMF], pairs: Sequence[FloatArray] = ()
) -> None:
    """Print the means over some models, or over some tables of pairs alone."""
    tables = [each.find_pairs() for each in found] or pairs
    error = float(np.mean([judge.measure_pairs(each) for each in tables]))
    line = f"{name:<34}{error * 1e4:>8.1f}"
    if found:
        scores = np.mean([each.log_prob(judge.codes) for each in found], axis=0)
        apart = scores - judge.likelihood
        ranks = ", ".join(str(each.rank) for each in found)
        line += f"{scores.mean():>10.3f}{apart.mean():>9.3f}{apart.std() / len(apart) ** 0.5:>8.3f}  {ranks}"
    print(line, flush=True)


def pool(
    counts: Sequence[pmf.PairCounts], minimum: int, n_seeds: int, folder: Path
) -> Iterator[pmf.PairCounts]:
    """Export the counts of all sites and add them up, once for each seed of the rounding."""
    for seed in range(n_seeds if minimum > 1 else 1):
        paths = [folder / f"{number}.counts" for number in range(len(counts))]
        for number, (own, path) in enumerate(zip(counts, paths, strict=True)):
            own.export(path, minimum, seed=N_SITES * seed + number)
        yield pmf.surveys.read_counts(paths)


def measure(name: str, most_rows: int, minima: Sequence[int], n_seeds: int) -> None:
    """Print the lines of a table."""
    codes = read_codes(DATA, name, most_rows).astype(np.int64)
    sites = divide(codes, SITE_COLUMNS[name])
    schema = make_schema(np.concatenate(sites))
    halves = [np.array_split(each, 2) for each in sites]
    judging = schema.check_codes(np.concatenate([half[1] for half in halves]))
    training = [schema.check_codes(half[0]) for half in halves]
    sizes = ", ".join(f"{len(each):,}" for each in training)
    print(f"\n{name}: {schema.n_variables} variables, training rows of sites {sizes}")
    print(f"{'':<34}{'pairs':>8}{'rows':>10}{'- EM':>9}{'s.e.':>8}  ranks")
    counts = [pmf.count_pairs(each, schema) for each in training]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = pmf.fit_em(np.concatenate(training), rank="auto", schema=schema).model
    marginals = Marginals.from_counts(pmf.count_pairs(judging, schema))
    judge = Judge(judging, marginals, reference.log_prob(judging))
    shares = [Marginals.from_counts(each).pairs for each in counts]
    print_line("EM of all rows", judge, [reference])
    print_line("shares of each site, averaged", judge, [], [np.mean(shares, axis=0)])
    with tempfile.TemporaryDirectory() as folder:
        for minimum in minima:
            pooled = [*pool(counts, minimum, n_seeds, Path(folder))]
            tables = [Marginals.from_counts(each).pairs for each in pooled]
            print_line(f"pooled counts, minimum {minimum}", judge, [], tables)
            print_line(f"model of these, minimum {minimum}", judge, [fit(each) for each in pooled])
    print_line("model of each site alone", judge, [fit(each) for each in counts])


def main() -> None:
    """Measure the chosen tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(SITE_COLUMNS), metavar="TABLE")
    parser.add_argument("--rows", type=int, default=12_000, help="at most, of each table")
    parser.add_argument("--minimum", type=int, nargs="+", default=[1, 5, 10])
    parser.add_argument("--seeds", type=int, default=3, help="of the rounding")
    options = parser.parse_args()
    for name in options.tables:
        measure(name, options.rows, options.minimum, options.seeds)


if __name__ == "__main__":
    main()
