"""Whether standard errors of answers are what they say: answers of fits to drawn samples, against the known truth.

    python -m benchmarks.models.answer_errors [SAMPLES]

A line per case and kind of answer: of as many drawn data sets as SAMPLES says (24), the standard deviation of the
answers, the root mean square of their standard errors, and of z = (answer - truth) / standard error the mean, the
standard deviation (1 if the errors are right and there is no bias) and the share beyond 2 (0.05).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pmflib as pmf
from pmflib.synthetic.planted_models import planted_factors

QUESTIONS = {
    "P(a | b)": "P(v0 | v1=0)",
    "P(a | b, c)": "P(v0 | v1=0, v2=1)",
    "P(a | b, c, d, e)": "P(v0 | v1=0, v2=1, v3=0, v4=1)",
    "P(a, b)": "P(v2, v3)",
    "E(a | b)": "E(v4 | v1)",
    "median(a | b)": "median(v4 | v1)",
    "odds(a | b)": "odds(v0=0 | v1)",
    "OR(a; b)": "OR(v0=0; v1=0)",
    "H(a | b)": "H(v2 | v3)",
    "MI(a; b)": "MI(v0; v1)",
    "TV(a; b)": "TV(v0; v1)",
    "TV(a | b; c)": "TV(v0 | v1=0; v1=1)",
}


@dataclass(frozen=True)
class Case:
    """A truth, samples of it, and the rank that is fitted."""

    name: str
    n_variables: int = 8
    true_rank: int = 3
    rank: int = 3
    n_rows: int = 4000
    observed: float = 1.0
    folds: int = 16


CASES = (
    Case("rank as it is"),
    Case("8 folds", folds=8),
    Case("half the cells missing", observed=0.5),
    Case("400 samples", n_rows=400),
    Case("rank 5, true rank 3", rank=5),
    Case("rank 2, true rank 3", rank=2),
    Case("5 variables, rank 3", n_variables=5),
)


def measure(case: Case, n_samples: int) -> Iterator[tuple[str, list[float]]]:
    """Figures of each kind of answer."""
    sizes = [3] * case.n_variables
    rng = np.random.default_rng(7)
    schema = pmf.Schema.from_cardinalities(sizes)
    prior, factors = planted_factors(sizes, case.true_rank, rng, concentration=0.7)
    truth = pmf.JointPMF(prior, factors, schema)
    found: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    for seed in range(n_samples):
        codes = truth.sample(case.n_rows, seed)
        codes[np.random.default_rng(1000 + seed).random(codes.shape) > case.observed] = -1
        counts = pmf.count_pairs(codes, schema, n_folds=case.folds)
        model = pmf.fit_em(codes, pmf.fit(counts, case.rank, rng=seed).model).model
        for kind, question in QUESTIONS.items():
            answer, known = model.ask(question, counts), truth.ask(question)
            assert answer.standard_errors is not None
            # the median may be another level than the true one: then there is nothing to compare
            true = dict(zip(known.labels, known.numbers.tolist(), strict=True))
            values = np.array([true.get(row, np.nan) for row in answer.labels])
            numbers = np.where(np.isnan(values), np.nan, answer.numbers)
            order = np.argsort([str(row) for row in answer.labels])
            parts = numbers[order], answer.standard_errors[order], values[order]
            found.setdefault(kind, []).append(parts)
    for kind, answers in found.items():
        numbers, errors, values = (np.stack(each) for each in zip(*answers, strict=True))
        scores = (numbers - values) / errors
        scores = scores[np.isfinite(scores)]
        spread = np.sqrt(np.nanmean(np.nanvar(numbers, axis=0, ddof=1)))
        rms = np.sqrt(np.nanmean(errors**2))
        figures = [spread, rms, scores.mean(), scores.std(), (np.abs(scores) > 2).mean()]
        yield kind, [float(each) for each in figures]


def main() -> None:
    """Print the table."""
    n_samples = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    wanted = sys.argv[2:] or [case.name for case in CASES]
    warnings.simplefilter("ignore")
    print(f"{'case':24} {'answer':18} spread  errors  mean z  sd z  beyond 2")
    for case in CASES:
        if case.name in wanted:
            for kind, (spread, rms, mean, sd, beyond) in measure(case, n_samples):
                print(
                    f"{case.name:24} {kind:18} {spread:.4f}  {rms:.4f}  {mean:6.2f}  {sd:4.2f}  {beyond:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
