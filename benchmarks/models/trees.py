"""Local dependence: forests found where they are planted, none where there are none, and density estimation with them.

    python -m benchmarks.models.trees planted --samples 1e5
    python -m benchmarks.models.trees none
    python -m benchmarks.models.trees density ../shared/data/nltcs --ranks 5,10,20 --members 5
    python -m benchmarks.models.trees passes --samples 2e5

``planted`` draws samples from latent classes with a forest, for some numbers of classes and shares of dependence,
fits them with ``dependence="auto"``, and compares edges with the planted ones, and the test log-likelihood with that of
EM from the truth. ``none`` draws from plain latent classes: 15 variables of 10 levels. ``density`` takes a folder as
`benchmarks.models.density` does: validation samples choose everything, test samples are only looked at for the table.
Nats per row, wall seconds. ``passes`` prints processor seconds of a pass of EM, medians of five taken in turn, with a
forest per class, with one for all, and without, over samples with gaps and without; and nanoseconds of a pass with a
forest per class for a cell and a class.

What limits these ratios. Without forests, all classes look the same tables up: a row of 20 variables of 4 levels and
8 classes is some four to seven entries of 8 neighbouring numbers, each read and added to as one vector; a pass takes
17 to 25 ns a row. With a forest per class the entry is another one in each class, and each is a number of its own. A
star of five variables has 4 ** 5 = 1024 entries, 8 KiB, with its masses twice that; with one more it outgrows the
nearest cache of 32 to 48 KiB together with the next. So a class has seven to eight stars, a row 60: 60 loads and
products at half a nanosecond make 31 ns with the sums that say where to look, 60 loads, sums and stores 32 ns,
turning the row into columns 9 ns, and posteriors 10 ns: 80 ns of the 90 that are measured, four to five times the
pass without forests. Fewer are only to be had where classes share a forest, or look tables up that are no longer in
the cache.

With a tenth of the cells missing, stars hold four variables next to "missing", and a class has some five centres with
stars of their own: four rows of ten miss one. Each asks for 4 loads and products on the way up and 8 loads, sums and
stores on the way down, one after the other, some 20 ns, in four places of the 8 classes of a row: with finding them
more than all else: 300 ns in all. With 8 levels each sum is twice as long, and stars hold three variables: 600 ns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

import pmflib as pmf
from benchmarks.em.passes import time_alternately
from benchmarks.em.peers import timed
from benchmarks.models.density import Split, read_split, standard_error
from pmflib.base.arrays import IntArray
from pmflib.base.defaults import Limits
from pmflib.counts.marginals import estimate_singles
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.latent_classes import evaluate_models
from pmflib.families.forests.em import TreeOptions, add_up, load_samples, run_tree_em
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_pmf import TreePMF

CELLS = (
    (2, 12, 3, 0.5, True),
    (2, 12, 3, 0.2, True),
    (4, 15, 3, 0.5, True),
    (4, 15, 3, 0.2, True),
    (4, 15, 3, 0.5, False),
    (3, 15, 4, 0.2, True),
    (8, 15, 2, 0.7, False),
    (8, 20, 3, 0.5, True),
)
"""Classes, variables, levels, share that depends on the parent, and whether all classes have one tree."""
TEST_ROWS = 20_000

Dependence: TypeAlias = Literal["none", "auto", "tree"]
KINDS: tuple[Dependence, ...] = ("none", "auto", "tree")
WITHOUT_AND_AUTO: tuple[Dependence, ...] = ("none", "auto")


def plant(
    rng: np.random.Generator,
    classes: int,
    variables: int,
    levels: int,
    share: float,
    shared: bool = True,
) -> TreePMF:
    """Latent classes with random trees: a PMF given the parent is (1 - share) own PMF and share a random one."""
    schema = pmf.Schema.from_cardinalities([levels] * variables)

    def draw_tree() -> IntArray:
        order, parents = rng.permutation(variables), np.full(variables, -1, np.int32)
        for index in range(1, variables):
            parents[order[index]] = order[rng.integers(index)]
        return parents

    trees = [draw_tree() for _ in range(1 if shared else classes)]
    forest = Forest(np.array([trees[k % len(trees)] for k in range(classes)]), schema.offsets)
    tables = np.empty(forest.n_entries)
    for state in range(classes):
        for index in range(variables):
            table = forest.view_table(tables, state, index)
            table[:] = rng.dirichlet(np.ones(levels))
            if len(table) > 1:
                table *= 1 - share
                table += share * rng.dirichlet(np.full(levels, 0.3), len(table))
    return TreePMF.make(
        TreeParameters(rng.dirichlet(np.full(classes, 5.0)), forest, tables), schema
    )


def count_edges(found: pmf.JointPMF, truth: TreePMF) -> tuple[int, int, int]:
    """Edges found that are planted, planted in all, and found that are not: of states matched by profile."""
    from pmflib.papers.metrics import match_factors

    planted = [_list_edges(truth.forest, state) for state in range(truth.rank)]
    if not isinstance(found, TreePMF):
        return 0, sum(map(len, planted)), 0
    partners = match_factors(truth.prior, truth.factors, found.prior, found.factors)
    hits = extra = 0
    for state, partner in enumerate(partners.tolist()):
        edges = _list_edges(found.forest, partner) if partner >= 0 else set()
        hits += len(edges & planted[state])
        extra += len(edges - planted[state])
    return hits, sum(map(len, planted)), extra


def _list_edges(forest: Forest, state: int) -> set[tuple[int, int]]:
    parents = forest.parents[state].tolist()
    return {(min(n, p), max(n, p)) for n, p in enumerate(parents) if p >= 0}


def run_planted(n_samples: int, seed: int) -> None:
    """Print a line for each planted model."""
    print(
        "classes variables levels share one tree |   truth   from truth  none     auto    auto - from truth | "
        "edges found of extra |  s none  s auto"
    )
    for classes, variables, levels, share, shared in CELLS:
        rng = np.random.default_rng(seed)
        truth = plant(rng, classes, variables, levels, share, shared)
        codes, test = truth.sample(n_samples, 1 + seed), truth.sample(TEST_ROWS, 1000 + seed)
        schema = truth.schema
        best = fit_from_truth(truth, codes, shared)
        seconds, models = [], []
        for dependence in WITHOUT_AND_AUTO:
            began = time.perf_counter()
            result = pmf.fit_em(codes, rank=classes, schema=schema, dependence=dependence, rng=seed)
            seconds.append(time.perf_counter() - began)
            models.append(result.model)
        scores = [each.log_prob(test) for each in (truth, best, *models)]
        means = "  ".join(f"{each.mean():8.4f}" for each in scores)
        hits, planted, extra = count_edges(models[1], truth)
        print(
            f"{classes:7} {variables:9} {levels:6} {share:8} {shared!s:>8} | {means}  "
            f"{(scores[3] - scores[1]).mean():8.4f} +- {standard_error(scores[3] - scores[1]):.4f} | "
            f"{hits:5} of {planted:4} {extra:5} | {seconds[0]:7.1f} {seconds[1]:7.1f}",
            flush=True,
        )


def fit_from_truth(truth: TreePMF, codes: IntArray, shared: bool) -> TreePMF:
    """EM from the planted model: what a fit can reach."""
    counts = pmf.count_pairs(codes, truth.schema)
    samples = load_samples(codes, truth.schema.offsets, truth.rank)
    options = TreeOptions(shared=shared)
    run = run_tree_em(
        samples,
        truth.parameters,
        options,
        estimate_singles(counts),
        limits=Limits(100, 1e-7, 10),
    )
    return TreePMF.make(run.parameters, truth.schema)


def run_none(n_samples: int, seed: int) -> None:
    """Print what choosing costs where classes are plain."""
    print("classes |  none      auto     | s none  s auto | edges")
    for classes in (5, 10):
        rng = np.random.default_rng(seed)
        truth = plant(rng, classes, 15, 10, 0.0)
        plain = pmf.JointPMF(truth.prior, truth.factors, truth.schema)
        codes, test = plain.sample(n_samples, 1 + seed), plain.sample(TEST_ROWS, 1000 + seed)
        means, seconds, edges = [], [], 0
        for dependence in (WITHOUT_AND_AUTO[0], *WITHOUT_AND_AUTO):
            began = time.perf_counter()
            found = pmf.fit_em(
                codes, rank=classes, schema=truth.schema, dependence=dependence, rng=seed
            ).model
            seconds.append(time.perf_counter() - began)
            means.append(found.log_prob(test).mean())
            edges = found.forest.n_edges if isinstance(found, TreePMF) else 0
        print(
            f"{classes:7} | {means[1]:.5f} {means[2]:.5f} | {seconds[1]:6.2f} {seconds[2]:7.2f} | {edges}",
            flush=True,
        )


def run_density(
    split: Split, ranks: list[int], members: int, seed: int, kinds: list[Dependence]
) -> None:
    """Print the scores of one model and of averages; validation chooses the rank."""
    print(f"{'model':<34}{'valid':>10}{'test':>10}{'s.e.':>8}{'edges':>8}{'s':>8}")
    for number in sorted({1, members}):
        for dependence in kinds:
            best = -np.inf
            for rank in ranks:
                began = time.perf_counter()
                result = pmf.fit_em(
                    split.train,
                    rank=rank,
                    schema=split.schema,
                    validation=split.valid,
                    members=number,
                    dependence=dependence,
                    rng=seed,
                )
                seconds = time.perf_counter() - began
                valid = float(result.model.log_prob(split.valid).mean())
                scores = result.model.log_prob(split.test)
                is_best, best = valid > best, max(valid, best)
                edges = result.model.origin.get("edges_per_state", 0)
                name = f"{dependence}, rank {rank}" + (f", {number} averaged" if number > 1 else "")
                print(
                    f"{name:<34}{valid:>10.4f}{scores.mean():>10.4f}{standard_error(scores):>8.4f}{edges:>8.1f}"
                    f"{seconds:>8.1f}{' *' if is_best else ''}",
                    flush=True,
                )
                print(*(f"    {note}" for note in result.notes), sep="\n", flush=True)


def run_passes(n_samples: int, seed: int) -> None:
    """Print what a pass takes with forests and without."""
    print("classes levels observed |  without  shared  per class | times: shared  per class | ns")
    for (classes, levels), observed in product(((8, 4), (8, 8), (32, 4)), (1.0, 0.9, 0.5)):
        rng = np.random.default_rng(seed)
        own = plant(rng, classes, 20, levels, 0.5, False)
        shared = plant(rng, classes, 20, levels, 0.5)
        codes = own.sample(n_samples, seed)
        codes[rng.random(codes.shape) >= observed] = -1
        offsets = own.schema.offsets
        plain = BlocksInMemory.cut(codes, offsets, classes)
        samples = load_samples(codes, offsets, classes)
        timers = {
            "without": timed(partial(evaluate_models, plain, [(own.prior, own.factors)])),
            "shared": timed(partial(add_up, samples, shared.parameters)),
            "own": timed(partial(add_up, samples, own.parameters)),
        }
        without, one, each = time_alternately(timers, 5).values()
        print(
            f"{classes:7} {levels:6} {observed:8} | {without:8.3f} {one:7.3f} {each:10.3f} | "
            f"{one / without:13.1f} {each / without:10.1f} | {each / (20 * n_samples * classes) * 1e9:.2f}",
            flush=True,
        )


def main() -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("planted", "none", "density", "passes"))
    parser.add_argument("paths", nargs="*", type=Path, help="a folder, or TRAIN VALID TEST")
    parser.add_argument("--samples", type=float, default=1e5)
    parser.add_argument("--ranks", default="5,10,20")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--dependence", default="none,tree")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
    if options.what == "planted":
        run_planted(int(options.samples), options.seed)
    elif options.what == "none":
        run_none(int(options.samples), options.seed)
    elif options.what == "passes":
        run_passes(int(options.samples), options.seed)
    else:
        ranks = [int(each) for each in options.ranks.split(",")]
        requested = options.dependence.split(",")
        kinds = [each for each in KINDS if each in requested]
        run_density(read_split(options.paths), ranks, options.members, options.seed, kinds)


if __name__ == "__main__":
    main()
