"""Planted surveys of strata, sampling units and unequal weights: how often intervals hold, and what weights cost.

    python -m benchmarks.models.surveys coverage [N_SURVEYS]
    python -m benchmarks.models.surveys cost
    python -m benchmarks.models.surveys scale [N_PEOPLE]
    python -m benchmarks.models.surveys stepmix

People are of two classes. The share of the first varies from unit to unit, and people of the second are drawn three
times as often, which their weights undo. `coverage` fits each survey as if its rows were independent and alike, with
its weights alone, and with its design, and counts the intervals of 95 % that hold the truth: shares of classes,
probabilities given the class, PMFs of single questions and answers given another one. `cost` has CPU seconds of
counting with weights next to without, and of a fit with errors by replicates next to the fit. `scale` has those of a
survey of 80 questions and many people with 80 replicate weights, and the memory: a fit without weights, one with,
errors of all parameters, and of answers. `stepmix` fits the same weighted survey by StepMix, and prints the largest
difference of a parameter.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

import pmflib as pmf
from pmflib.core.arrays import FloatArray, IntArray

N_STRATA, N_UNITS, N_PEOPLE = 5, 20, 20
"""Strata, units of each, and people of each unit."""
N_QUESTIONS = 6
SPREAD = 0.25
"""Standard deviation of the share of the first class over the units."""
OVERSAMPLED = 3.0
"""Times as often as the others people of the second class are drawn."""
SCHEMA = pmf.Schema.from_cardinalities([2] * N_QUESTIONS)
PRINTED = 100
"""Surveys after which coverage so far is printed."""
QUESTIONS = ("P(v0=1)", "P(v1=1 | v0=1)")


def plant_model() -> pmf.JointPMF:
    """The truth: two classes, of shares that are the mean over the units."""
    yes = np.linspace(0.15, 0.35, N_QUESTIONS)
    factors = np.stack([np.stack([yes, 1 - yes], axis=1), np.stack([1 - yes, yes], axis=1)], axis=2)
    shares = np.array([find_share(stratum) for stratum in range(N_STRATA)])
    prior = np.array([shares.mean(), 1 - shares.mean()])
    return pmf.JointPMF(prior, factors.reshape(-1, 2), SCHEMA, {"pseudo_count": 0.0})


def find_share(stratum: int) -> float:
    """Share of the first class in a stratum."""
    return 0.3 + 0.4 * stratum / (N_STRATA - 1)


def draw_survey(truth: pmf.JointPMF, seed: int) -> tuple[IntArray, pmf.SurveyDesign, FloatArray]:
    """Codes of a survey, its design, and its weights."""
    rng = np.random.default_rng(seed)
    n_units = N_STRATA * N_UNITS
    stratum = np.repeat(np.arange(N_STRATA), N_UNITS)
    mean = np.array([find_share(each) for each in stratum.tolist()])
    # of a beta distribution, whose mean is what is planted
    total = mean * (1 - mean) / SPREAD**2 - 1
    share = rng.beta(mean * total, (1 - mean) * total)
    # people of a unit: so many of equal standing, of which the first class is kept a third of the time
    first = rng.random((n_units, 4 * N_PEOPLE)) < share[:, None]
    kept = rng.random(first.shape) < np.where(first, 1 / OVERSAMPLED, 1.0) / 2
    unit, place = np.nonzero(kept)
    state = np.where(first[unit, place], 0, 1)
    weight = np.where(state == 0, OVERSAMPLED, 1.0)
    chances = truth.factors[1::2].T[state]
    codes = (rng.random(chances.shape) < chances).astype(np.int8)
    return codes, pmf.SurveyDesign(weight, stratum=stratum[unit], psu=unit), weight


def measure_coverage(n_surveys: int) -> None:
    """Print how often intervals hold, by what the fit knew of the survey."""
    truth = plant_model()
    asked = [float(truth.ask(each).table["probability"][0].as_py()) for each in QUESTIONS]
    kinds: dict[str, Callable[..., dict[str, float]]] = {
        "rows alike": lambda codes, design, weight: measure(truth, asked, codes, None),
        "weights": lambda codes, design, weight: measure(
            truth, asked, codes, pmf.SurveyDesign(weight)
        ),
        "design": lambda codes, design, weight: measure(truth, asked, codes, design),
    }
    sums: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    for seed in range(n_surveys):
        survey = draw_survey(truth, seed)
        for kind, find in kinds.items():
            for name, share in find(*survey).items():
                sums[kind][name] = sums[kind].get(name, 0.0) + share
        if (seed + 1) % PRINTED and seed + 1 < n_surveys:
            continue
        print(f"{seed + 1} surveys; intervals of 95 % that hold the truth")
        for kind, found in sums.items():
            shares = (f"{name} {total / (seed + 1):.3f}" for name, total in found.items())
            print(f"  {kind:10}", "  ".join(shares), flush=True)


def measure(
    truth: pmf.JointPMF, asked: list[float], codes: IntArray, design: pmf.SurveyDesign | None
) -> dict[str, float]:
    """Share of the intervals of a survey that hold the truth, by what they are of."""
    options = {"pseudo_count": 0.0, "tol": 1e-10}
    fitted = pmf.fit_em(codes, truth, design=design, **options).model  # type: ignore[arg-type]
    errors = pmf.standard_errors(fitted, codes, design)
    found: dict[str, float] = {}
    for name, planted in (("prior", truth.prior), ("factors", truth.factors)):
        inside = (errors[name].lower <= planted) & (planted <= errors[name].upper)
        found[name] = float(inside.mean())
    for question, true in zip(QUESTIONS, asked, strict=True):
        answer = fitted.ask(question, codes, design=design).table
        found[question] = float(answer["low"][0].as_py() <= true <= answer["high"][0].as_py())
    return found


def time_it(function: Callable[[], object]) -> float:
    """CPU seconds of the second call."""
    function()
    began = time.process_time()
    function()
    return time.process_time() - began


def measure_counting(rng: np.random.Generator, n_rows: int, n_variables: int, size: int) -> None:
    """Print what weights of more and more digits cost in counting."""
    codes = rng.integers(size, size=(n_rows, n_variables)).astype(np.int8)
    sizes = [size] * n_variables
    # kernels are loaded once they have something to save, beside the first calls
    plain = min(time_it(lambda: pmf.count_pairs(codes, sizes)) for _ in range(3))
    print(f"counting {n_rows:,} x {n_variables}: {plain * 1e3:.0f} ms without weights")
    for decimals in (0, 1, 3, 6):
        weight = np.maximum(np.round(rng.uniform(0.5, 9.5, n_rows), decimals), 1)
        count = partial(pmf.count_pairs, codes, sizes, weight=weight)
        weighted = min(time_it(count) for _ in range(3))
        print(f"  {decimals} decimals: {weighted * 1e3:.0f} ms, {weighted / plain:.1f} times")


def measure_cost(n_rows: int = 20_000) -> None:
    """Print what weights and replicates cost, next to a fit without."""
    rng = np.random.default_rng(0)
    for n_variables, size in ((20, 3), (81, 4)):
        measure_counting(rng, 5 * n_rows, n_variables, size)
    state = rng.integers(4, size=n_rows)
    chances = rng.uniform(0.05, 0.95, (4, 20))
    codes = (rng.random((n_rows, 20)) < chances[state]).astype(np.int8)
    weight = rng.gamma(4, 0.25, n_rows) + 0.1
    unweighted = time_it(lambda: pmf.fit_em(codes, rank=4))
    weighted = time_it(lambda: pmf.fit_em(codes, rank=4, weight=weight))
    print(
        f"fit of {n_rows:,} x 20, rank 4: {unweighted:.1f} s without weights, {weighted:.1f} s with"
    )
    model = pmf.fit_em(codes, rank=4, weight=weight).model
    kept = rng.random((n_rows // 100, 80)) < 0.5
    factors = np.repeat(np.where(kept, 1.5, 0.5), 100, axis=0)
    design = pmf.SurveyDesign(weight, replicates=weight[:, None] * factors, method="Fay", fay=0.5)
    errors = time_it(lambda: pmf.standard_errors(model, codes, design))
    print(f"  errors by 80 replicates {errors:.1f} s, {errors / unweighted:.1f} times the fit")


def measure_scale(n_people: int = 100_000, n_questions: int = 80, n_replicates: int = 80) -> None:
    """Print what a weighted fit with errors by replicates costs, next to a fit without weights."""
    rng = np.random.default_rng(0)
    state = rng.integers(4, size=n_people)
    # classes that are much like each other, so that refits take passes
    common, own = (
        rng.dirichlet(np.ones(4), n_questions),
        rng.dirichlet(np.ones(4), (4, n_questions)),
    )
    chances = (0.85 * common + 0.15 * own).cumsum(axis=2)
    codes = np.empty((n_people, n_questions), np.int8)
    for question in range(n_questions):
        uniform = rng.random(n_people)
        codes[:, question] = (uniform[:, None] > chances[state, question, :3]).sum(axis=1)
    codes[rng.random(codes.shape, np.float32) < 0.05] = -1
    schema = pmf.Schema.from_cardinalities([4] * n_questions)
    weight = rng.gamma(4, 0.25, n_people) + 0.1
    # half samples of 100 units, by Fay's method
    unit = np.arange(n_people) * 100 // n_people
    kept = rng.random((100, n_replicates)) < 0.5
    replicates = np.where(kept, 1.5, 0.5)[unit] * weight[:, None]
    design = pmf.SurveyDesign(weight, replicates=replicates, method="Fay", fay=0.5)
    # what is compiled or loaded is no cost of a fit
    pmf.fit_em(codes[:2000], rank=4, schema=schema, dependence="none", weight=weight[:2000])
    started = time.process_time()
    pmf.fit_em(codes, rank=4, schema=schema, dependence="none")
    plain = time.process_time() - started
    print(
        f"{n_people:,} x {n_questions}: fit without weights {plain:.1f} s of processor", flush=True
    )
    started = time.process_time()
    model = pmf.fit_em(codes, rank=4, schema=schema, dependence="none", weight=weight).model
    weighted = time.process_time() - started
    print(f"  with weights {weighted:.1f} s", flush=True)
    started = time.process_time()
    found = pmf.fit_replicates(model, codes, design)
    pairs = [found.find_errors(partial(read_pair, question)) for question in range(10)]
    errors = time.process_time() - started
    whole = (weighted + errors) / plain
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"  errors by {n_replicates} replicates, and of {len(pairs)} tables, {errors:.1f} s; with the fit {whole:.1f} "
        f"times the one without weights; {peak:.1f} GB at most"
    )


def read_pair(question: int, model: pmf.JointPMF) -> FloatArray:
    """Joint PMF of a question and the next one."""
    return model.marginal([question, question + 1])


def compare_stepmix() -> None:
    """Print the largest difference of a parameter from StepMix's, at the optimum of a weighted survey."""
    from stepmix.stepmix import StepMix

    truth = plant_model()
    codes, _, weight = draw_survey(truth, 0)
    weight = weight * np.random.default_rng(0).gamma(4, 0.25, len(weight))
    options = {"pseudo_count": 0.0, "tol": 1e-14, "max_passes": 20_000}
    ours = pmf.fit_em(codes, truth, weight=weight, **options).model  # type: ignore[arg-type]
    peer = StepMix(
        2, measurement="binary", max_iter=100_000, abs_tol=0, rel_tol=1e-15, random_state=0,
        verbose=0, progress_bar=0,
    )  # fmt: skip
    peer.fit(codes, sample_weight=weight)
    chances = peer.get_parameters()["measurement"]["pis"]
    order = np.argsort(chances[:, 0])
    mine = np.argsort(ours.factors[1])
    gap = max(
        float(np.abs(ours.prior[mine] - peer.weights_[order]).max()),
        float(np.abs(ours.factors[1::2].T[mine] - chances[order]).max()),
    )
    print(f"largest difference of a parameter from StepMix's: {gap:.1e}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what = sys.argv[1] if len(sys.argv) > 1 else "coverage"
    if what == "cost":
        measure_cost()
    elif what == "scale":
        measure_scale(int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
    elif what == "stepmix":
        compare_stepmix()
    else:
        measure_coverage(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
