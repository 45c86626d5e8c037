"""Answers where gaps depend on other answers: the default against counts of those who answered, and the model alone.

    python -m benchmarks.models.gaps [SEEDS] [FIRST]

Twelve designs are planted, each fitted with the true rank and with half of it, in a notebook (all rows) and as in a
pipeline (four fifths of them, and the rest say what the model is worth). P is asked of a variable, most often one with
gaps, given none, one or two others. A line has the root mean square error of answer, counts and model from the truth,
the ratio of the answer's to the better of the two others, the difference of squared errors of answer and counts in its
standard errors over seeds, and the share of truths within the intervals of 95 %; last lines sum them up. Constants of
`pmflib.answering.gaps` were chosen on seeds 0 to 5; SEEDS (20) seeds from FIRST (100) judge them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pmflib as pmf
from benchmarks.models.answers import fit_models
from pmflib.answering.equivalent_samples import EquivalentSamples
from pmflib.answering.evidence import Evidence
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model.planted_models import planted_factors

N_QUESTIONS = 8
"""Questions to a sample for each number of conditions."""


@dataclass(frozen=True)
class Design:
    """Variables, levels, rank and rows of a table, and how its gaps come about."""

    n_variables: int
    n_levels: int
    rank: int
    n_rows: int
    gaps: str

    def draw(self, seed: list[int]) -> tuple[pmf.JointPMF, IntArray]:
        """Truth, and samples with gaps."""
        rng = np.random.default_rng(seed)
        n, size = self.n_variables, self.n_levels
        prior, factors = planted_factors([size] * n, self.rank, rng, concentration=0.7)
        schema = pmf.Schema.from_cardinalities([size] * n)
        prior, factors = 0.7 * prior + 0.3 / self.rank, 0.95 * factors + 0.05 / size
        truth = pmf.JointPMF(prior, factors, schema)
        codes = truth.sample(self.n_rows, rng)
        return truth, np.where(rng.random(codes.shape) < self._find_chances(codes, rng), -1, codes)

    def _find_chances(self, codes: IntArray, rng: np.random.Generator) -> FloatArray:
        """Probability that each value is missing."""
        chances = np.zeros(codes.shape)
        steps = (
            np.array([0.05, 0.3, 0.7])
            if self.n_levels == 3
            else np.linspace(0.05, 0.7, self.n_levels)
        )
        if self.gaps in ("one", "one, with gaps"):
            chances[:, 1:4] = steps[codes[:, :1]]
            chances[:, 0] = 0.15 * (self.gaps != "one")
        elif self.gaps == "one, weak":
            chances[:, 1:] = np.linspace(0.1, 0.3, self.n_levels)[codes[:, :1]]
        elif self.gaps == "two":
            kept = (1 - steps[codes[:, :1]]) * (1 - 0.7 * steps[::-1][codes[:, 1:2]])
            chances[:, 2:5] = 1 - kept
        elif self.gaps == "logit of three":
            moved = (2 * codes[:, :3] - self.n_levels + 1) / self.n_levels @ rng.normal(0, 1.5, 3)
            chances[:, 3:7] = (1 / (1 + np.exp(0.5 - moved)))[:, None]
        else:
            chances[:, 1:] = 0.3
        return chances


DESIGNS = [
    Design(8, 3, 3, 3000, "one"),
    Design(8, 3, 3, 1000, "one"),
    Design(8, 3, 3, 10_000, "one"),
    Design(12, 2, 4, 3000, "one"),
    Design(6, 5, 2, 2000, "one"),
    Design(8, 3, 3, 3000, "one, with gaps"),
    Design(6, 4, 3, 3000, "one, weak"),
    Design(8, 3, 3, 3000, "two"),
    Design(12, 2, 4, 10_000, "two"),
    Design(10, 3, 5, 3000, "logit of three"),
    Design(12, 2, 4, 10_000, "logit of three"),
    Design(8, 3, 3, 3000, "at random"),
]


def draw_questions(
    truth: pmf.JointPMF, rng: np.random.Generator
) -> Iterator[tuple[int, dict[int, int]]]:
    """Target and conditions."""
    n = truth.schema.n_variables
    for n_given in range(3):
        for _ in range(N_QUESTIONS):
            target, *given = rng.choice(n, n_given + 1, replace=False).tolist()
            if target == 0 and rng.random() < 0.7:
                target = int(rng.integers(1, 4))
            row = truth.sample(1, rng)[0]
            yield target, {each: int(row[each]) for each in given if each != target}


def measure(design: Design, position: int, seed: int, rank: int) -> dict[str, FloatArray]:
    """Mean squared errors of answer, counts and model, and share of truths within, by mode."""
    truth, codes = design.draw([seed, position])
    found = {}
    for mode, model in fit_models(codes, truth.schema, EquivalentSamples(), rank):
        evidence, rows = Evidence.of(codes, model), []
        for target, given in draw_questions(truth, np.random.default_rng([seed, position, 1])):
            known = ", ".join(f"v{each}={code}" for each, code in given.items())
            answer = model.ask(f"P(v{target}{' | ' * bool(given)}{known})", evidence)
            conditions = {each: (code,) for each, code in given.items()}
            true = truth.condition_codes(conditions)[0].marginal((target,))
            true = true[[int(label[0]) for label in answer.labels]]
            assert answer.intervals is not None
            numbers = (answer.numbers, answer.more["counted"], answer.more["model"])
            errors = [float(np.square(np.array(each) - true).mean()) for each in numbers]
            inside = (answer.intervals[:, 0] <= true) & (true <= answer.intervals[:, 1])
            rows.append([*errors, inside.mean()])
        found[mode] = np.nanmean(rows, axis=0)
    return found


def main() -> None:
    """Print a line for each design, rank and mode."""
    n_seeds, first = (int(x) for x in [*sys.argv[1:], *("20", "100")[len(sys.argv) - 1 :]])
    warnings.simplefilter("ignore")
    head = "variables | levels | rows | gaps | rank | mode | counts | model | answer | ratio | against counts | within"
    print(f"| {head} |\n|{'---|' * 12}")
    found: dict[str, list[tuple[float, float]]] = {}
    for position, design in enumerate(DESIGNS):
        for rank in (design.rank, design.rank // 2):
            seeds = [measure(design, position, first + n, rank) for n in range(n_seeds)]
            for mode in seeds[0]:
                rows = np.array([each[mode] for each in seeds])
                answer, counts, model, within = rows.mean(axis=0)
                gains = rows[:, 0] - rows[:, 1]
                score = gains.mean() / (gains.std(ddof=1) / np.sqrt(n_seeds))
                cells = [design.n_variables, design.n_levels, design.n_rows, design.gaps]
                cells += [f"{rank} of {design.rank}", mode]
                cells += [f"{x**0.5:.4f}" for x in (counts, model, answer)]
                ratio = (answer / min(counts, model)) ** 0.5
                cells += [f"{ratio:.2f}", f"{score:+.1f}", f"{within:.3f}"]
                which = f"{mode}, {'right rank' if rank == design.rank else 'half of it'}"
                found.setdefault(which, []).append((ratio, within))
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
    for which, pairs in found.items():
        ratios, inside = np.transpose(pairs)
        said = f"ratio {np.median(ratios):.2f} in the median, at most {ratios.max():.2f}"
        print(f"{which}: {said}; within {inside.min():.3f} to {inside.max():.3f}")


if __name__ == "__main__":
    main()
