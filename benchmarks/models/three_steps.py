"""Outcomes by class and classes by covariates, in three steps: next to StepMix, and whether intervals hold.

    python -m benchmarks.models.three_steps stepmix [SURVEYS]
    python -m benchmarks.models.three_steps coverage [SURVEYS] [SEED]
    python -m benchmarks.models.three_steps design [SURVEYS] [SEED]

``stepmix`` prints the largest differences of estimates from those of StepMix (``n_steps=3``), which both make of one
first step; proportional assignment with "ml" is another likelihood there, and is left out. It skips where StepMix is
not installed (``pip install stepmix``). ``coverage`` draws SURVEYS (300) surveys of 1,000 rows and six questions, a
tenth of the answers missing, for each sharpness of the classes, and prints the shares of the true values within their
intervals of 95 %: with errors that include the first step, with those of the third alone, and those of the simplest
thing to do, which takes assignments as the classes themselves; then the bias of the estimates, as a share of their
spread. ``design`` draws SURVEYS (200) samples of 100 units in five strata, about ten rows each: units differ in their
classes and in the outcome, and rows of a large outcome are drawn three times as often, with the weight that follows; it
prints the same shares of means (BCH, modal) for fits that know nothing of it, the weights, and all of the design.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

import pmflib as pmf
from pmflib.core.arrays import BoolArray, FloatArray, IntArray

N_ROWS = 1000
SHARPNESS = {"sharp": 0.9, "middling": 0.8, "blunt": 0.75}
"""Probability of the answer of a class: the entropy R2 is about .8, .6 and .5."""
PRIOR = np.array([0.5, 0.3, 0.2])
MEANS = np.array([0.0, 1.0, 2.0])
LEVELS = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]])
SLOPES = np.array([[0.0, 0.0], [-0.5, 1.0], [-1.0, -1.0]])
"""Intercept and slope of a covariate, by class; the first is the reference."""
WAYS: list[tuple[Literal["bch", "ml"], Literal["modal", "proportional"]]] = [
    ("bch", "modal"),
    ("bch", "proportional"),
    ("ml", "modal"),
    ("ml", "proportional"),
]


def plant(chance: float) -> FloatArray:
    """Probabilities of level 1 of six questions in three classes."""
    high = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    return np.where(high == 1, chance, 1 - chance)


def draw_survey(
    chance: float, rng: np.random.Generator, *, by_covariate: bool, missing: float = 0.1
) -> tuple[IntArray, IntArray, FloatArray]:
    """Codes, classes, and a covariate that these depend on, or not."""
    covariate = rng.normal(size=N_ROWS)
    shares = np.tile(PRIOR, (N_ROWS, 1))
    if by_covariate:
        shares = np.exp(np.stack([np.ones(N_ROWS), covariate], axis=1) @ SLOPES.T)
        shares /= shares.sum(axis=1, keepdims=True)
    classes = (rng.random((N_ROWS, 1)) > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)
    codes = (rng.random((N_ROWS, 6)) < plant(chance)[classes]).astype(np.int64)
    codes[rng.random(codes.shape) < missing] = -1
    return codes, classes, covariate


def fit_classes(codes: IntArray, chance: float, prior: FloatArray) -> pmf.JointPMF:
    """Maximum of the likelihood next to the truth."""
    factors = np.stack([1 - plant(chance), plant(chance)], axis=2).transpose(1, 2, 0).reshape(12, 3)
    truth = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities([2] * 6))
    options: dict[str, Any] = {"pseudo_count": 0.0, "max_passes": 20_000, "tol": 1e-12}
    return pmf.fit_em(codes, truth, accelerate=True, **options).model


Cell = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Estimates, the truth, errors, and errors of the third step alone."""


def estimate(
    chance: float, rng: np.random.Generator
) -> Iterator[tuple[tuple[str, str, str], Cell]]:
    """All estimates of two surveys, by what they are of and how they are made."""
    codes, classes, _ = draw_survey(chance, rng, by_covariate=False)
    # skewed, so that no class is normal
    number = MEANS[classes] + rng.gamma(2.0, size=N_ROWS) / np.sqrt(2) - np.sqrt(2)
    plain = MEANS[classes] + rng.normal(size=N_ROWS)
    level = (rng.random((N_ROWS, 1)) > LEVELS[classes].cumsum(axis=1)[:, :-1]).sum(axis=1)
    texts = np.array(["a", "b", "c"])[level]
    model = fit_classes(codes, chance, PRIOR)
    for way in WAYS:
        # the density of "ml" is normal: a skewed outcome is for "bch"
        outcome, kind = (number, "skewed") if way[0] == "bch" else (plain, "normal")
        for name, values, truth in ((kind, outcome, MEANS), ("levels", texts, LEVELS)):
            found = pmf.distal_outcome(model, codes, values, correction=way[0], assignment=way[1])
            yield (name, *way), (found.values, truth, found.errors, found.third_step_errors)
    assigned = np.eye(3)[model.posterior(codes).argmax(axis=1)]
    means = number @ assigned / assigned.sum(axis=0)
    spread = ((number[:, None] - means) ** 2 * assigned).sum(axis=0)
    errors = np.sqrt(spread) / assigned.sum(axis=0)
    yield ("skewed", "none", "modal"), (means, MEANS, errors, errors)
    codes, _, covariate = draw_survey(chance, rng, by_covariate=True)
    model = fit_classes(codes, chance, np.full(3, 1 / 3))
    table = {"x": covariate}
    for way in WAYS:
        logits = pmf.class_regression(
            model, codes, table, reference=0, correction=way[0], assignment=way[1]
        )
        errors, alone = logits.errors[1:], logits.third_step_errors[1:]
        yield ("logits", *way), (logits.values[1:], SLOPES[1:], errors, alone)


def measure_coverage(n_surveys: int, seed: int) -> None:
    """Print the table of coverage."""
    print("| classes | of | correction | assignment | with the first step | third alone | bias |")
    print("|---|---|---|---|---|---|---|")
    for sharpness, chance in SHARPNESS.items():
        cells: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
        for each in range(n_surveys):
            for name, cell in estimate(chance, np.random.default_rng([seed, each])):
                cells[name].append(cell)
        for name, found in cells.items():
            values, truth, errors, alone = (np.array(part) for part in zip(*found, strict=True))
            apart = np.abs(values - truth)
            held = [(apart <= 1.96 * each).mean() for each in (errors, alone)]
            bias = np.abs((values - truth).mean(axis=0) / values.std(axis=0)).max()
            shares = f"{held[0]:.3f} | {held[1]:.3f} | {bias:.2f}"
            print(f"| {sharpness} | {' | '.join(name)} | {shares} |", flush=True)


UNITS, UNIT_ROWS = 100, 24
"""Units of a drawn survey, and rows of each in its population, of which four in ten are drawn."""


def draw_design(rng: np.random.Generator) -> tuple[IntArray, FloatArray, pmf.SurveyDesign]:
    """Codes, outcome, and how both were drawn."""
    unit = np.repeat(np.arange(UNITS), UNIT_ROWS)
    leaning = np.log(PRIOR) + rng.normal(0, 0.7, (UNITS, 3))
    shares = np.exp(leaning) / np.exp(leaning).sum(axis=1, keepdims=True)
    kind = (rng.random((unit.size, 1)) > shares[unit].cumsum(axis=1)[:, :-1]).sum(axis=1)
    noise = rng.normal(0, 0.5, UNITS)[unit] + rng.normal(size=unit.size)
    chance = np.where(noise > 0, 0.6, 0.2)
    drawn = rng.random(unit.size) < chance
    codes = (rng.random((unit.size, 6)) < plant(SHARPNESS["sharp"])[kind]).astype(np.int64)
    outcome = MEANS[kind] + noise
    stratum = unit[drawn] % 5
    design = pmf.SurveyDesign(1 / chance[drawn], stratum=stratum, psu=unit[drawn])
    return codes[drawn], outcome[drawn], design


def measure_design(n_surveys: int, seed: int) -> None:
    """Print how often intervals hold that know nothing of the design, the weights alone, and all of it."""
    held: dict[str, list[BoolArray]] = defaultdict(list)
    chance = SHARPNESS["sharp"]
    factors = np.stack([1 - plant(chance), plant(chance)], axis=2).transpose(1, 2, 0).reshape(12, 3)
    truth = pmf.JointPMF(PRIOR, factors, pmf.Schema.from_cardinalities([2] * 6))
    options: dict[str, Any] = {"pseudo_count": 0.0, "max_passes": 5000, "tol": 1e-10}
    for each in range(n_surveys):
        codes, outcome, design = draw_design(np.random.default_rng([seed, each]))
        plain = pmf.fit_em(codes, truth, accelerate=True, **options).model
        weights = 1.0 * design.weights.units
        model = pmf.fit_em(codes, truth, weight=weights, accelerate=True, **options).model
        found = {
            "nothing: rows alike": pmf.distal_outcome(plain, codes, outcome),
            "weights": pmf.distal_outcome(model, codes, outcome, weight=weights),
            "weights, strata and units": pmf.distal_outcome(model, codes, outcome, design=design),
        }
        for name, one in found.items():
            held[name].append((one.lower <= MEANS) & (one.upper >= MEANS))
    print("| what the three steps know | class 0 | class 1 | class 2 | all |")
    print("|---|---|---|---|---|")
    for name, holds in held.items():
        shares = [f"{share:.3f}" for share in np.mean(holds, axis=0)]
        print(f"| {name} | {' | '.join(shares)} | {np.mean(holds):.3f} |", flush=True)


def compare_stepmix(n_surveys: int) -> None:
    """Print the largest differences from StepMix's estimates."""
    if importlib.util.find_spec("stepmix") is None:
        print("StepMix is left out: it is not installed; pip install stepmix")
        return
    from stepmix.stepmix import StepMix

    apart: dict[tuple[str, str, str], float] = defaultdict(float)
    for each in range(n_surveys):
        rng = np.random.default_rng([7, each])
        codes, classes, covariate = draw_survey(0.85, rng, by_covariate=True, missing=0.0)
        number = MEANS[classes] + rng.normal(size=N_ROWS)
        is_up = (rng.random(N_ROWS) < LEVELS[classes, 0]).astype(float)
        columns = {
            "gaussian_unit": number,
            "gaussian_diag": number,
            "binary": is_up,
            "covariate": covariate,
        }
        for correction, assignment in WAYS:
            if (correction, assignment) == ("ml", "proportional"):
                continue
            for structural, column in columns.items():
                if structural == ("gaussian_diag" if correction == "bch" else "gaussian_unit"):
                    continue
                options: dict[str, Any] = {"max_iter": 200} if structural == "covariate" else {}
                peer = StepMix(
                    3,
                    n_steps=3,
                    measurement="binary",
                    structural=structural,
                    structural_params=options,
                    correction=correction.upper(),
                    assignment="soft" if assignment == "proportional" else "modal",
                    max_iter=5000,
                    abs_tol=1e-13,
                    rel_tol=1e-15,
                    random_state=0,
                    verbose=0,
                    progress_bar=0,
                )
                peer.fit(codes, column[:, None])
                theirs = peer.get_parameters()
                chances = np.asarray(theirs["measurement"]["pis"]).T
                factors = np.stack([1 - chances, chances], axis=1).reshape(12, 3)
                # classes of the first step; the third may have moved their sizes
                first = StepMix(
                    3,
                    measurement="binary",
                    max_iter=5000,
                    abs_tol=1e-13,
                    rel_tol=1e-15,
                    random_state=0,
                    verbose=0,
                    progress_bar=0,
                ).fit(codes)
                sizes = np.asarray(first.get_parameters()["weights"])
                schema = pmf.Schema.from_cardinalities([2] * 6)
                model = pmf.JointPMF(sizes / sizes.sum(), factors, schema)
                ways: dict[str, Any] = {"correction": correction, "assignment": assignment}
                if structural == "covariate":
                    logits = np.asarray(theirs["structural"]["beta"])
                    mine = pmf.class_regression(
                        model, codes, {"x": column}, reference=0, **ways
                    ).values
                    theirs_values = logits - logits[0]
                elif structural == "binary":
                    texts = np.where(column == 1, "up", "down")
                    mine = pmf.distal_outcome(model, codes, texts, **ways).values[:, 1]
                    theirs_values = np.asarray(theirs["structural"]["pis"])[:, 0]
                else:
                    mine = pmf.distal_outcome(model, codes, column, **ways).values
                    theirs_values = np.asarray(theirs["structural"]["means"])[:, 0]
                name = (structural, correction, assignment)
                apart[name] = max(apart[name], float(np.abs(mine - theirs_values).max()))
    print("| StepMix's structural model | correction | assignment | largest difference |")
    print("|---|---|---|---|")
    for way, value in apart.items():
        print(f"| {' | '.join(way)} | {value:.1e} |")


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("stepmix", "coverage", "design"))
    parser.add_argument("surveys", type=int, nargs="?", default=0, help="5, 300 and 200")
    parser.add_argument("seed", type=int, nargs="?", default=1000, help="first seed")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "stepmix":
        compare_stepmix(given.surveys or 5)
    elif given.what == "design":
        measure_design(given.surveys or 200, given.seed)
    else:
        measure_coverage(given.surveys or 300, given.seed)


if __name__ == "__main__":
    main()
