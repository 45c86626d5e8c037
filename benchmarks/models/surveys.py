"""Planted surveys of strata, sampling units and unequal weights: how often intervals hold, and what weights cost.

    python -m benchmarks.models.surveys coverage [N_SURVEYS] [SEED]
    python -m benchmarks.models.surveys cost
    python -m benchmarks.models.surveys scale [N_PEOPLE]
    python -m benchmarks.models.surveys stepmix
    python -m benchmarks.models.surveys pisa

People are of two classes. The share of the first varies from unit to unit, and people of the second are drawn three
times as often, which their weights undo. `coverage` fits each survey as if its rows were independent and alike, with
its weights alone, and with its design, and counts the intervals of 95 % that hold the truth: shares of classes,
probabilities given the class, PMFs of single questions and answers given another one. `cost` has CPU seconds of
counting with weights next to without, and of a fit with errors by replicates next to the fit. `scale` has those of a
survey of 80 questions and many people with 80 replicate weights, and the memory: a fit without weights, one with,
errors of all parameters and of tables, to first order, and by refits of up to 50,000 people, with the ratio of both.
`pisa` has errors to first order next to those of refits for 66,690 pupils and eleven questions of PISA 2009 with
planted weights and schools of 25, in 200 groups and one by one. `stepmix` fits the same weighted survey by StepMix, and
prints the largest difference of a parameter.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.models.targets import read_lines
from benchmarks.pipeline.weighted_answers import SHAPE, STANDS_FOR
from pmflib.base import variance
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model.origin import ModelOrigin
from pmflib.surveys.design.replicates import Method

N_STRATA, N_UNITS, N_PEOPLE = 5, 20, 20
"""Strata, units of each, and people of each unit."""
N_QUESTIONS = 6
SPREAD = 0.25
"""Standard deviation of the share of the first class over the units."""
OVERSAMPLED = 3.0
"""Times as often as the others people of the second class are drawn."""
SCHEMA = pmf.Schema.from_cardinalities([2] * N_QUESTIONS)
YES = np.stack(
    [np.linspace(0.85, 0.65, N_QUESTIONS), np.linspace(0.15, 0.35, N_QUESTIONS)]
)  # fmt: skip
"""Chance of "yes" to each question, by class."""
UNEVEN = 0.5
"""Standard deviation of the logits of these over the units, where units differ in them."""
POPULATION = 100_000
"""Units of the population whose shares of answers are the truth where units differ in answers."""
WEIGHTS_BY_CLASS = "weights by class, units of other class shares"
"""What is said of surveys whose units and weights differ in classes alone."""
PRINTED = 100
"""Surveys after which coverage so far is printed."""
REFITTED = 50_000
"""People up to whom errors are found by refits as well."""
QUESTIONS = ("P(v0=1)", "P(v1=1 | v0=1)")


def plant_model(is_related: bool = False) -> pmf.JointPMF:
    """The truth: two classes, of shares that are the mean over the units; the ones nearest to what all would answer."""
    chances = YES[:, :, None]
    factors = np.stack([1 - chances, chances], axis=2).reshape(2, -1).T
    shares = np.array([find_share(stratum) for stratum in range(N_STRATA)])
    prior = np.array([shares.mean(), 1 - shares.mean()])
    model = pmf.JointPMF(
        prior, np.ascontiguousarray(factors), SCHEMA, ModelOrigin(pseudo_count=0.0)
    )
    if not is_related:
        return model
    cells = list_cells()
    options: dict[str, Any] = {"pseudo_count": 0.0, "tol": 1e-14, "max_passes": 20_000}
    return pmf.fit_em(cells, model, weight=find_population(cells), **options).model


def find_share(stratum: int) -> float:
    """Share of the first class in a stratum."""
    return 0.3 + 0.4 * stratum / (N_STRATA - 1)


def draw_units(
    rng: np.random.Generator, stratum: IntArray, is_related: bool
) -> tuple[FloatArray, FloatArray]:
    """Share of the first class in each unit, and the chances of "yes" there: (n_units, 2, n_questions)."""
    mean = np.array([find_share(each) for each in range(N_STRATA)])[stratum]
    # of a beta distribution, whose mean is what is planted
    total = mean * (1 - mean) / SPREAD**2 - 1
    share = rng.beta(mean * total, (1 - mean) * total)
    logits = np.tile(np.log(YES / (1 - YES)), (stratum.size, 1, 1))
    if is_related:
        logits += rng.normal(0, UNEVEN, logits.shape)
    return share, 1 / (1 + np.exp(-logits))


def list_cells() -> IntArray:
    """All combinations of answers."""
    return np.indices([2] * N_QUESTIONS).reshape(N_QUESTIONS, -1).T.astype(np.int8)


def find_answers(truth: pmf.JointPMF, is_related: bool) -> list[float]:
    """What is true of the population, for each of `QUESTIONS`."""
    cells = list_cells()
    shares = find_population(cells) if is_related else np.exp(truth.log_prob(cells))
    yes = cells == 1
    both = float(shares[yes[:, 0] & yes[:, 1]].sum())
    one = float(shares[yes[:, 0]].sum())
    return [one, both / one]


def find_population(cells: IntArray) -> FloatArray:
    """Shares of all combinations of answers in the population, whose units differ in what their classes answer."""
    rng = np.random.default_rng(0)
    share, chances = draw_units(rng, np.arange(POPULATION) % N_STRATA, True)
    shares = np.stack([share, 1 - share], axis=1)
    found = []
    for cell in cells.tolist():
        each = np.where(np.array(cell) == 1, chances, 1 - chances).prod(axis=2)
        found.append(float((shares * each).sum(axis=1).mean()))
    return np.array(found)


def draw_survey(
    seed: int, is_related: bool = False
) -> tuple[IntArray, pmf.surveys.SurveyDesign, FloatArray]:
    """Codes of a survey, its design, and its weights."""
    rng = np.random.default_rng(seed)
    stratum = np.repeat(np.arange(N_STRATA), N_UNITS)
    share, chances = draw_units(rng, stratum, is_related)
    # people of a unit: so many of equal standing, of which the first class is kept a third of the time
    n_asked = 4 * N_PEOPLE
    state = np.where(rng.random((stratum.size, n_asked)) < share[:, None], 0, 1)
    own = np.take_along_axis(chances, state[:, :, None], axis=1)
    answers = (rng.random(own.shape) < own).astype(np.int8)
    weight = np.where(state == 0, OVERSAMPLED, 1.0)
    if is_related:
        weight *= np.where(answers[:, :, 0] == 1, 2.0, 1.0)
    unit, place = np.nonzero(rng.random(state.shape) < 1 / (2 * weight))
    codes, weight = answers[unit, place], weight[unit, place]
    return codes, pmf.surveys.SurveyDesign(weight, stratum=stratum[unit], psu=unit), weight


def measure_coverage(n_surveys: int, first: int, is_related: bool) -> None:
    """Print how often intervals hold, by what the fit knew of the survey."""
    truth = plant_model(is_related)
    asked = find_answers(truth, is_related)
    sums: dict[str, dict[str, float]] = {"rows alike": {}, "weights": {}, "design": {}}
    what = "weights by class and answer, units of other answers" if is_related else WEIGHTS_BY_CLASS
    for seed in range(n_surveys):
        codes, design, weight = draw_survey(first + seed, is_related)
        known = {"rows alike": None, "weights": pmf.surveys.SurveyDesign(weight), "design": design}
        for kind, each in known.items():
            for name, share in measure(truth, asked, codes, each).items():
                sums[kind][name] = sums[kind].get(name, 0.0) + share
        if (seed + 1) % PRINTED and seed + 1 < n_surveys:
            continue
        print(f"{seed + 1} surveys, {what}; intervals of 95 % that hold the truth")
        for kind, found in sums.items():
            shares = (f"{name} {total / (seed + 1):.3f}" for name, total in found.items())
            print(f"  {kind:10}", "  ".join(shares), flush=True)


def measure(
    truth: pmf.JointPMF,
    asked: list[float],
    codes: IntArray,
    design: pmf.surveys.SurveyDesign | None,
) -> dict[str, float]:
    """Share of the intervals of a survey that hold the truth, by what they are of."""
    options = {"pseudo_count": 0.0, "tol": 1e-10}
    fitted = pmf.fit_em(codes, truth, weight=design, **options).model  # type: ignore[arg-type]
    errors = pmf.inference.standard_errors(fitted, codes, design)
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
    design = pmf.surveys.SurveyDesign(
        weight, replicates=weight[:, None] * factors, method="Fay", fay=0.5
    )
    errors = time_it(lambda: pmf.inference.standard_errors(model, codes, design))
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
    design = pmf.surveys.SurveyDesign(weight, replicates=replicates, method="Fay", fay=0.5)
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
    methods: list[Method] = ["linear", "refit"] if n_people <= REFITTED else ["linear"]
    of_methods: dict[Method, FloatArray] = {}
    for method in methods:
        started = time.process_time()
        found = pmf.surveys.fit_replicates(model, codes, design, method=method)
        pairs = [found.find_errors(partial(read_pair, question))[1] for question in range(10)]
        of_parameters = found.find_errors(list_parameters)[1]
        errors = time.process_time() - started
        of_methods[method] = np.concatenate([of_parameters, *(each.ravel() for each in pairs)])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"  {method}: errors of all parameters and {len(pairs)} tables {errors:.1f} s; with the fit "
            f"{(weighted + errors) / plain:.1f} times the one without weights; {peak:.1f} GB at most",
            flush=True,
        )
    if len(methods) > 1:
        ratios = of_methods["linear"] / of_methods["refit"]
        ends = np.quantile(ratios, [0.0, 0.05, 0.5, 0.95, 1.0])
        shown = ", ".join(f"{end:.3f}" for end in ends)
        print(
            f"  errors to first order over those of refits: {shown} (least, 5 %, middle, 95 %, most)"
        )


def list_parameters(model: pmf.JointPMF) -> FloatArray:
    """Prior and factors."""
    return np.concatenate([model.prior, model.factors.ravel()])


def read_pair(question: int, model: pmf.JointPMF) -> FloatArray:
    """Joint PMF of a question and the next one."""
    return model.marginal([question, question + 1])


def measure_pisa() -> None:
    """Print errors to first order over those of refits, and what they take."""
    lines = read_lines(DATA / "pisa2009" / "pisaitems.csv.gz", ",")
    country, table = lines[1:, 0], lines[1:, 1:12]
    rng = np.random.default_rng(0)
    mean = np.array([STANDS_FOR[each] for each in country.tolist()])
    weight = mean * rng.gamma(SHAPE, 1 / SHAPE, len(country))
    design = pmf.surveys.SurveyDesign(weight, stratum=country, psu=np.arange(len(country)) // 25)
    frame = pd.DataFrame(table, columns=lines[0, 1:12]).replace("", None)
    model = pmf.fit_em(frame, rank=4, weight=design, dependence="none").model
    found = {}
    for name, method, most in (
        ("to first order", "linear", variance.MOST_REPLICATES),
        ("by refits in groups", "refit", variance.MOST_REPLICATES),
        ("by all refits", "refit", design.n_units),
    ):
        variance.MOST_REPLICATES = most
        started = time.process_time()
        replicates = pmf.surveys.fit_replicates(model, frame, design, method=method)  # type: ignore[arg-type]
        found[name] = replicates.find_errors(list_parameters)[1]
        seconds = time.process_time() - started
        print(f"{name}: {replicates.method}, {seconds:.1f} s of processor", flush=True)
    for name in list(found)[:2]:
        ends = np.quantile(found[name] / found["by all refits"], [0.0, 0.05, 0.5, 0.95, 1.0])
        print(f"  errors {name} over all refits:", ", ".join(f"{end:.3f}" for end in ends))


def compare_stepmix() -> None:
    """Print the largest difference of a parameter from StepMix's, at the optimum of a weighted survey."""
    from stepmix.stepmix import StepMix

    truth = plant_model()
    codes, _, weight = draw_survey(0)
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
    elif what == "pisa":
        measure_pisa()
    elif what == "stepmix":
        compare_stepmix()
    else:
        n_surveys = int(sys.argv[2]) if len(sys.argv) > 2 else 200
        for is_related in (False, True):
            measure_coverage(n_surveys, int(sys.argv[3]) if len(sys.argv) > 3 else 0, is_related)
