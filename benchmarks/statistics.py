"""What a statistician checks first: a line for each, with what it should be and what it is.

    python -m benchmarks.statistics [SEED]

Some minutes. Data of UCI (votes, car) stand in ``../shared/data``; all else is planted, from SEED (0) on. Longer proofs
of the same lines have programs of their own: `benchmarks.models.optima`, `benchmarks.models.coverage`,
`benchmarks.models.imputation`, `benchmarks.models.answer_errors` and `benchmarks.ranks.kinds`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np

import pmflib as pmf
from benchmarks.models.coverage import Cell
from benchmarks.models.coverage import measure as measure_coverage
from benchmarks.models.imputation import draw_survey
from benchmarks.models.optima import list_tables, run_stepmix
from benchmarks.ranks.kinds import SIZES, draw, draw_traits, name_model
from pmflib.core.arrays import FloatArray

Line = tuple[str, str, str]
"""What is checked, what it should be, what it is."""


def check_likelihoods() -> Iterator[Line]:
    """The likelihood that is printed is that of the model; and what is said to have converged has."""
    tables = list_tables()
    for name, rank in (("votes-level", 8), ("car", 8)):
        codes = tables[name][0]()
        found = pmf.fit_em(codes, rank=rank, rng=0)
        assert found.training is not None
        own = float(found.model.log_prob(codes).sum())
        difference = f"{abs(found.training.log_likelihood - own):.1e} nats"
        yield f"{name}, rank {rank}: printed less true log-likelihood", "0", difference
    codes = tables["votes-level"][0]()
    found = pmf.fit_em(codes, rank=4, pseudo_count=0, rng=0)
    once = pmf.fit_em(codes, found.model, pseudo_count=0, max_passes=1).model
    gain = float((once.log_prob(codes) - found.model.log_prob(codes)).mean())
    said = "converged" if found.converged else "not converged"
    yield "votes, rank 4: gain of one more pass where converged", "0", f"{gain:.1e} ({said})"


def check_optima() -> Iterator[Line]:
    """Optima are not below StepMix's best of ten starts."""
    codes = list_tables()["votes-level"][0]()
    for rank in (4, 8):
        mine = pmf.fit_em(codes, rank=rank, pseudo_count=0, rng=0).model.log_prob(codes).mean()
        theirs = "not installed"
        if importlib.util.find_spec("stepmix") is not None:
            theirs = f"{run_stepmix(codes, rank, 10)[0]:.4f}"
        text = f"votes, rank {rank}: log-likelihood per row, StepMix's best of ten"
        yield text, theirs, f"{mine:.4f}"


def check_choices(seed: int) -> Iterator[Line]:
    """What is planted is chosen."""
    for rank, n_rows, n_pairs in ((5, 1000, 0), (12, 10_000, 0), (2, 1000, 5), (2, 10_000, 5)):
        codes, schema = draw(rank, n_rows, n_pairs, seed), pmf.Schema.from_cardinalities(SIZES)
        model = pmf.fit_em(codes, rank="auto", schema=schema).model
        kind = "F" if n_pairs else "C"
        name = f"{rank} classes, {n_rows:,} rows, {n_pairs} dependent pairs"
        yield f"{name}: chosen", f"{kind}{rank}", name_model(model)
    for n_traits in (1, 2, 3):
        codes, sizes = draw_traits(n_traits, 1000, seed)
        schema = pmf.Schema.from_cardinalities(sizes)
        model = pmf.fit_em(codes, rank="auto", schema=schema).model
        yield f"{n_traits} traits, 1,000 rows: chosen", f"T{n_traits}", name_model(model)


def check_errors(seed: int) -> Iterator[Line]:
    """Intervals of parameters hold; what is not determined has none."""
    sums: FloatArray = np.zeros(15)
    for missing in ("none", "at random", "by another"):
        for each in range(20):
            sums = sums + measure_coverage(Cell(8, "blunt", missing), seed + each, "maximum")
    yield "60 surveys: intervals of 95 % of class shares", ".93 to .97", f"{sums[0] / sums[1]:.3f}"
    yield "the same of factors", ".93 to .97", f"{sums[7] / sums[8]:.3f}"
    for sizes, rank in (([4, 4], 2), ([3, 3, 3], 4)):
        rng = np.random.default_rng(seed)
        schema = pmf.Schema.from_cardinalities(sizes)
        codes = np.stack([rng.integers(0, size, 2000) for size in sizes], axis=1)
        errors = pmf.standard_errors(pmf.fit_em(codes, rank=rank, schema=schema).model, codes)
        n_open = int((~errors["prior"].is_determined).sum())
        name = f"{len(sizes)} variables of {sizes[0]} levels, {rank} classes: shares without errors"
        yield name, f"{rank}", f"{n_open}"
    held = []
    for each in range(20):
        many, sizes = draw_traits(1, 200_000, seed + 2 * each)
        schema, codes = pmf.Schema.from_cardinalities(sizes), many[:1000]
        # the fit of many more rows stands for the truth, which it is near enough to
        known = pmf.fit_item_responses(many, schema=schema)
        found = pmf.standard_errors(pmf.fit_item_responses(codes, schema=schema).model, codes)
        assert known.model.trait_model is not None
        truth = known.model.trait_model.slopes
        slopes = found["slopes"]
        truth = truth * np.sign((slopes.values * truth).sum())
        held.append((slopes.lower <= truth) & (truth <= slopes.upper))
    yield "20 tests: intervals of 95 % of item slopes", ".93 to .97", f"{np.mean(held):.3f}"


def check_imputation(seed: int) -> Iterator[Line]:
    """Filled tables are as varied, and as correlated, as what was hidden."""
    spread, slope, bias = [], [], []
    for each in range(12):
        survey = draw_survey(500, np.random.default_rng([seed, each]))
        filled = np.asarray(pmf.PMFImputer(random_state=0).fit_transform(survey.known), float)[
            :, :7
        ]
        whole = survey.answers[:, :7]
        spread.append(filled.var(axis=0) / whole.var(axis=0))
        slope.append(_find_slope(whole, filled))
        bias.append((filled.mean(axis=0) - whole.mean(axis=0)) / whole.std(axis=0))
    yield "30 % filled by default: variance, as a share", "1", f"{np.mean(spread):.2f}"
    yield "the same, slope of correlations", "1", f"{np.mean(slope):.2f}"
    yield "the same, bias of means", "0", f"{np.sqrt(np.mean(np.square(bias))):.3f}"


def _find_slope(whole: FloatArray, filled: FloatArray) -> float:
    """Slope of the correlations of a filled table on those before, through 0."""
    above = np.triu_indices(whole.shape[1], 1)
    before, after = (np.asarray(np.corrcoef(each.T))[above] for each in (whole, filled))
    return float(before @ after / (before @ before))


def check_answers(seed: int) -> Iterator[Line]:
    """Answers of forests have errors, and intervals stay within [0, 1]."""
    schema = pmf.Schema.from_cardinalities(SIZES)
    codes = draw(2, 3000, 5, seed)
    result = pmf.fit_em(codes, rank=2, schema=schema, dependence="tree")
    names = schema.names
    outside, without = 0, 0
    rng = np.random.default_rng(seed)
    for _ in range(40):
        a, b, c = rng.permutation(len(names))[:3]
        given = f"{names[b]}={rng.integers(4)}, {names[c]}=0"
        answer = result.model.ask(f"P({names[a]}={rng.integers(4)} | {given})", codes)
        if answer.interval is None:
            without += 1
        else:
            low, high = answer.interval
            outside += low < 0 or high > 1
    yield "40 answers of forests: without errors", "0", str(without)
    yield "the same: intervals that leave [0, 1]", "0", str(outside)


def check_times() -> Iterator[Line]:
    """Wide tables get the work that their observed cells deserve."""
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2, (200, 5000))
    levels = np.stack([rng.integers(0, size, 3000) for size in (1000, 2, 5)], axis=1)
    for name, codes, before in (
        ("200 rows x 5,000 variables of two levels", wide, 41),
        ("3,000 rows x 1,000, 2 and 5 levels", levels, 61),
    ):
        sizes = (codes.max(axis=0) + 1).tolist()
        began = time.process_time()
        pmf.fit_em(codes, rank=4, schema=pmf.Schema.from_cardinalities(sizes))
        taken = time.process_time() - began
        yield f"{name}: seconds, of which a tenth of {before}", f"{before / 10:.1f}", f"{taken:.1f}"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    print("| | should be | is |")
    print("|---|---|---|")
    for lines in (
        check_likelihoods(),
        check_optima(),
        check_choices(seed),
        check_errors(seed),
        check_imputation(seed),
        check_answers(seed),
        check_times(),
    ):
        for line in lines:
            print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
