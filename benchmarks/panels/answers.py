"""Answers on halves of tables, and how often intervals of answers, classes, items and designs hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pmflib as pmf
from benchmarks.panels.lines import Line, average
from benchmarks.panels.models import draw_kind
from benchmarks.panels.tables import draw_model, make_schema, read_codes
from pmflib.families.traits.trait_pmf import TraitPMF

N_QUESTIONS = 120
"""Questions to each table, of none to three conditions in turn."""
LEAST_OTHER = 20
"""Rows of the other half that meet the conditions, at least, for a squared error."""


def measure_answers(data: Path) -> Iterator[Line]:
    """Log-probability, squared error and coverage of answers on the other half; errors are over questions."""
    for name in ("mushroom", "krkopt", "fars", "nltcs", "plants", "adult"):
        codes = read_codes(data, name, 16_000)
        schema, rng = make_schema(codes), np.random.default_rng(0)
        first, second = np.array_split(codes, 2)
        fitted, unseen = np.split(first, [len(first) * 4 // 5])
        model = pmf.fit_em(fitted, schema=schema, rank=8).model
        model = pmf.answering.weigh_model(model, fitted, unseen)
        scores, squares, held = [], [], []
        for number in range(N_QUESTIONS):
            row = second[rng.integers(len(second))]
            observed = np.flatnonzero(row >= 0)
            target, *given = rng.choice(observed, number % 4 + 1, replace=False).tolist()
            words = [f"{schema[j].name}={schema[j].levels[row[j]]}" for j in given]
            bar = f" | {', '.join(words)}" if words else ""
            answer = model.ask(f"P({schema[target].name}{bar})", first)
            assert answer.intervals is not None
            levels = schema[target].levels
            order = [levels.index(label[0]) for label in answer.labels]
            chances = np.zeros(len(levels))
            chances[order] = answer.numbers
            meets = (second[:, given] == row[given]).all(axis=1)
            there = second[meets, target]
            truth = np.bincount(there[there >= 0], minlength=len(levels))
            n_other = truth.sum()
            scores.append(float(truth @ np.log(np.maximum(chances, 1e-6)) / n_other))
            if n_other >= LEAST_OTHER:
                # less what the sampling of the other half adds
                shares = truth / n_other
                noise = (shares * (1 - shares)).sum() / max(n_other - 1, 1)
                squares.append(1e3 * float(np.square(chances - shares).sum() - noise))
                spread = np.zeros(len(levels))
                spread[order] = np.diff(answer.intervals, axis=1)[:, 0] / (2 * 1.96)
                spread = np.sqrt(np.square(spread) + chances * (1 - chances) / n_other)
                common = chances * n_other >= 5
                distance = np.abs(shares - chances)[common]
                if common.any():
                    held.append(float(np.mean(distance <= 1.96 * spread[common])))
        yield average(f"answers, {name}: log-probability", scores, "more")
        yield average(f"answers, {name}: squared error x 1,000", squares, "less")
        yield average(f"answers, {name}: coverage", held, "nearer .95")


def cover(errors: Any, name: str, truth: np.ndarray) -> float:
    """Return the share of true parameters within their intervals, of those that are determined and inside."""
    found = errors[name]
    inner = found.is_determined & ~found.is_edge
    inside = (found.lower <= truth) & (truth <= found.upper)
    return float(inside[inner].mean()) if inner.any() else np.nan


def measure_coverage(_: Path) -> Iterator[Line]:
    """Coverage of intervals of .95 of parameters of drawn surveys, over surveys."""
    options = {"pseudo_count": 0.0, "max_passes": 5000, "tol": 1e-10, "accelerate": True}
    shares: dict[str, list[float]] = {"prior": [], "factors": []}
    for seed in range(60):
        truth = draw_model(8, 3, 3, np.random.default_rng([seed, 1]), 1.0)
        codes = truth.sample(1000, seed)
        model = pmf.fit_em(codes, truth, **options).model  # type: ignore[arg-type]
        errors = pmf.inference.standard_errors(model, codes)
        for name, known in (("prior", truth.prior), ("factors", truth.factors)):
            shares[name].append(cover(errors, name, known))
    for name, found in shares.items():
        line = f"coverage, classes: {name}"
        yield average(line, np.array(found)[np.isfinite(found)], "nearer .95")
    held = []
    for seed in range(12):
        many = draw_kind("traits", 1, 100_000, seed)
        schema, drawn = make_schema(many), many[:1000]
        # a fit of many more rows stands for the truth
        of_many = pmf.families.fit_item_responses(many, schema=schema, max_passes=100).model
        slopes = pmf.inference.standard_errors(
            pmf.families.fit_item_responses(drawn, schema=schema).model, drawn
        )["slopes"]
        assert isinstance(of_many, TraitPMF)
        planted = of_many.trait_model
        true = planted.slopes * np.sign((slopes.values * planted.slopes).sum())
        held.append(float(((slopes.lower <= true) & (true <= slopes.upper)).mean()))
    yield average("coverage, items: slopes", held, "nearer .95")
    designed = [cover_design(seed) for seed in range(60)]
    yield average("coverage, design: prior", designed, "nearer .95")


def cover_design(seed: int) -> float:
    """Return the share of class priors that intervals hold in a survey of strata, units and weights."""
    rng = np.random.default_rng([seed, 2])
    n_strata, n_units, n_people = 6, 12, 15
    stratum = np.arange(n_strata).repeat(n_units)
    middle = np.linspace(0.25, 0.7, n_strata)
    share = rng.beta(8 * middle[stratum], 8 * (1 - middle[stratum]))
    unit = np.arange(stratum.size).repeat(n_people)
    state = np.where(rng.random(unit.size) < share[unit], 0, 1)
    chances = np.array([[0.85, 0.2]] * 6)
    codes = (rng.random((unit.size, 6)) < chances[:, state].T).astype(np.int64)
    sizes = np.linspace(1.0, 3.0, n_strata)
    weight = sizes[stratum[unit]]
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum[unit], psu=unit)
    first = float(middle @ sizes / sizes.sum())
    factors = np.stack([1 - chances, chances], axis=1).reshape(-1, 2)
    schema = pmf.Schema.from_cardinalities([2] * 6)
    truth = pmf.JointPMF(np.array([first, 1 - first]), factors, schema)
    model = pmf.fit_em(codes, truth, weight=weight, pseudo_count=0.0, tol=1e-10).model
    found = pmf.inference.standard_errors(model, codes, design)["prior"]
    return float(((found.lower <= truth.prior) & (truth.prior <= found.upper)).mean())
