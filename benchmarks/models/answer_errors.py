"""Whether errors and intervals of answers are what they say: of fits to drawn samples, against the known truth.

    python -m benchmarks.models.answer_errors [SAMPLES] [CASE ...]

Of each drawn data set four fifths are fitted, the rest say how many rows the model counts for, and all are counted. A
line per case and kind of answer: of as many data sets as SAMPLES says (24), the root mean square of answer - truth of
counts alone, the model alone, and both; the root mean square of the standard errors; of z = (answer - truth) / standard
error the mean and the standard deviation (1 if the errors are right and there is no bias); and the share of truths
within the intervals of 95 %.
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


CASES = (
    Case("rank as it is"),
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
    found: dict[str, list[list[np.ndarray]]] = {}
    for seed in range(n_samples):
        codes = truth.sample(case.n_rows, seed)
        codes[np.random.default_rng(1000 + seed).random(codes.shape) > case.observed] = -1
        seen, unseen = np.split(codes, [case.n_rows * 4 // 5])
        start = pmf.fit(pmf.count_pairs(seen, schema), case.rank, rng=seed).model
        model = pmf.weigh_model(pmf.fit_em(seen, start).model, seen, unseen)
        for kind, question in QUESTIONS.items():
            answer, known = model.ask(question, codes), truth.ask(question)
            assert answer.standard_errors is not None
            # the median may be another level than the true one: then there is nothing to compare
            true = dict(zip(known.labels, known.numbers.tolist(), strict=True))
            values = np.array([true.get(row, np.nan) for row in answer.labels])
            ends = np.full((len(values), 2), np.nan)
            if answer.intervals is not None:
                ends = answer.intervals
            columns = [answer.more["counted"], answer.more["model"], answer.numbers]
            columns += [answer.standard_errors, values, *ends.T]
            order = np.argsort([str(row) for row in answer.labels])
            found.setdefault(kind, []).append([np.asarray(each)[order] for each in columns])
    for kind, answers in found.items():
        counted, alone, both, errors, values, low, high = map(
            np.concatenate, zip(*answers, strict=True)
        )
        scores = (both - values) / errors
        scores = scores[np.isfinite(scores)]
        is_known = ~np.isnan(low) & ~np.isnan(values)
        inside = ((low <= values) & (values <= high))[is_known]
        apart = [np.where(np.isfinite(x), x - values, np.nan) for x in (counted, alone, both)]
        figures = [np.sqrt(np.nanmean(each**2)) for each in (*apart, errors)]
        figures += [scores.mean(), scores.std(), inside.mean() if inside.size else np.nan]
        yield kind, [float(each) for each in figures]


def main() -> None:
    """Print the table."""
    n_samples = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    requested = sys.argv[2:] or [case.name for case in CASES]
    warnings.simplefilter("ignore")
    print(f"{'case':24} {'answer':18} counted   model    both  errors  mean z  sd z  inside")
    for case in CASES:
        if case.name in requested:
            for kind, (*rms, mean, sd, inside) in measure(case, n_samples):
                roots = "  ".join(f"{each:.4f}" for each in rms)
                print(
                    f"{case.name:24} {kind:18}  {roots}  {mean:6.2f}  {sd:4.2f}    {inside:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
