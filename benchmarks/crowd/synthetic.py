"""Tables 6 and 7 of the paper: errors of the confusion matrices of crowds drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crowd.baselines.methods import WITH_CONFUSION, run_baseline
from benchmarks.crowd.noiseless import measure_freedom, measure_noiseless
from benchmarks.crowd.planted_crowds import Crowd, Version, draw_published_crowd
from benchmarks.crowd.published_tables import (
    AGAIN_SYNTHETIC,
    OURS,
    Numbers,
    average,
    read_published,
    show,
)
from pmflib.apps.crowd import LabelLog, aggregate, read_labels
from pmflib.apps.crowd.aggregation import fit_crowd_model
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel

VERSIONS: tuple[Version, ...] = ("code", "text")
SAMPLES = (1000, 5000, 10_000)
MASKED = (0.7, 0.5, 0.3)
SETTLED: dict[str, Any] = {"max_passes": 1000, "tol": 1e-6}
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: OURS[name] for name in ("RobSymNMF", "DesSymNMF", "MultiSPA", "CNMF", "MV-EM")},
    "RobSymNMF-EM": ("robust", SETTLED),
    "DesSymNMF-EM": ("designated", SETTLED),
    "CNMF-EM": ("cnmf", SETTLED),
    "RobSymNMF, each": OURS["RobSymNMF, each"],
    "default": ("auto", {}),
}
ON_PAIRS: dict[str, Any] = {"RobSymNMF": "robust", "DesSymNMF": "designated"}
TRUTH = "EM from the truth"


def measure_methods(crowd: Crowd, log: LabelLog) -> dict[str, float]:
    """Mean squared error of each method of ours, and of passes from the truth on."""
    errors = {}
    for name, (how, options) in METHODS.items():
        found = aggregate(log, how, **options)
        errors[name] = crowd.measure(found.prior, found.confusion)
    start = CrowdModel.from_probabilities(crowd.prior, crowd.confusion)
    best = fit_crowd_model(log, start, **SETTLED)[0].parameters
    return errors | {TRUTH: crowd.measure(best.prior, best.confusion)}


def measure_baselines(crowd: Crowd, log: LabelLog) -> dict[str, float]:
    """Mean squared error of the baselines that estimate confusion matrices."""
    errors = {}
    for name in WITH_CONFUSION:
        found = run_baseline(name, log)
        assert found is not None
        assert found.prior is not None
        assert found.confusion is not None
        errors[name] = crowd.measure(found.prior, found.confusion)
    return errors


def take_medians(trials: list[dict[str, float]]) -> dict[str, float]:
    """Median over trials of each method."""
    return {name: float(np.median([trial[name] for trial in trials])) for name in trials[0]}


def take_standard_errors(trials: list[dict[str, float]]) -> dict[str, float]:
    """Standard error of the mean over trials of each method."""
    return {
        name: float(np.std([trial[name] for trial in trials], ddof=1) / np.sqrt(len(trials)))
        for name in trials[0]
    }


def show_synthetic(reference: Path, trials: int) -> None:
    """Table 7 under both generators."""
    published = read_published(reference)
    for version in VERSIONS:
        for index, n in enumerate(SAMPLES):
            mine, theirs = [], []
            for trial in range(trials):
                rng = np.random.default_rng([trial, n])
                crowd = draw_published_crowd(n, rng, version=version)
                log = read_labels(crowd.log, classes=range(crowd.prior.size))
                mine.append(measure_methods(crowd, log))
                theirs.append(measure_baselines(crowd, log))
            paper = published["ds-7", f"synthetic M=25 K=3 p=0.3 N={n}"]
            again = {name: values[index] for name, values in AGAIN_SYNTHETIC.items()}
            columns = {
                "published": paper,
                "again": again if version == "code" else {},
                "recomputed": average(theirs),
                "(median)": take_medians(theirs),
                "ours": average(mine),
                "(s.e.)": take_standard_errors(mine),
                "(median) ": take_medians(mine),
            }
            title = f"table 7, generator of the {version}, {n} tasks: MSE, {trials} trials"
            show(title, columns, digits="#.3g")
            compare(paper, average(mine))


def compare(paper: Numbers, mine: Numbers) -> None:
    """Print our means over the best published one, and over EM from the truth."""
    best = min(paper, key=lambda name: paper[name])
    print(f"best published: {best}, {paper[best]:#.3g}; {TRUTH}: {mine[TRUTH]:#.3g}")
    for name in ("RobSymNMF-EM", "DesSymNMF-EM", "default"):
        ratios = f"{mine[name] / paper[best]:.3f} of the first, {mine[name] / mine[TRUTH]:.3f}"
        print(f"  {name}: {mine[name]:#.3g}, {ratios} of the second")


def show_noiseless(reference: Path, trials: int) -> None:
    """Table 6 under both generators: exact pairs, some of them hidden, by share."""
    published = read_published(reference)
    for version in VERSIONS:
        for share in MASKED:
            paper = published["ds-6", f"synthetic noiseless M=25 K=3 miss={share:.0%}"]
            show_hidden(paper, version, share, trials)
        free = [measure_freedom(version, np.random.default_rng([t, 6])) for t in range(trials)]
        found = [{"random": random, "mean": centre} for random, centre in free]
        means, errors = average(found), take_standard_errors(found)
        print(
            f"a random exact factorisation of all pairs: {means['random']:#.3g} (s.e. {errors['random']:#.2g}); "
            f"the mean of all: {means['mean']:#.3g} (s.e. {errors['mean']:#.2g})"
        )


def show_hidden(paper: Numbers, version: Version, share: float, trials: int) -> None:
    """Table 6 for a share of hidden pairs."""
    mine = [
        {
            name: measure_noiseless(how, share, version, np.random.default_rng([trial, 6]))
            for name, how in ON_PAIRS.items()
        }
        for trial in range(trials)
    ]
    means, errors = average(mine), take_standard_errors(mine)
    columns = {"published": paper, "ours": means, "(s.e.)": errors, "(median)": take_medians(mine)}
    title = f"table 6, generator of the {version}, {share:.0%} of the pairs hidden"
    show(f"{title}: MSE, {trials} trials", columns, digits="#.3g")
    best = min(paper.values())
    ratios = [f"{name} {means[name] / best:.2f} +- {errors[name] / best:.2f}" for name in means]
    print(f"over the best published: {', '.join(ratios)}")
