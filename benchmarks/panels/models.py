"""Models: held-out likelihood, planted recovery, choices of kind and rank, classes, ratings, cells, optima."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pmflib as pmf
from benchmarks.panels.commands import run_pmf
from benchmarks.panels.lines import Line, average
from benchmarks.panels.tables import draw_model, make_schema, read_codes
from pmflib.families.traits.trait_pmf import TraitPMF

N_STARTS = 10
"""Random starts whose best likelihood a fit is compared with."""


def measure_likelihood(data: Path) -> Iterator[Line]:
    """Log-probability of unseen rows, nats; the standard error is over rows."""
    for name in ("adult", "pisa2009", "plants", "nltcs", "mushroom"):
        codes = read_codes(data, name, 6000)
        schema = make_schema(codes)
        for title, options, most in (
            ("rank 8", {"rank": 8}, 4000),
            ("rank auto", {"rank": "auto"}, 1000),
        ):
            model = pmf.fit_em(codes[:most], schema=schema, **options).model
            scores = np.asarray(model.log_prob(codes[4000:]))
            yield average(f"likelihood, {name}, {title}", scores, "more")


def measure_recovery(_: Path) -> Iterator[Line]:
    """Share of the gain of EM from the truth over independence that a fit reaches on unseen rows."""
    for n_rows, rank, sharpness in ((1000, 4, 1.0), (2000, 8, 2.0), (5000, 12, 2.0)):
        shares = []
        for seed in range(8):
            rng = np.random.default_rng([seed, n_rows])
            truth = draw_model(12, 5, rank, rng, sharpness)
            codes, test = truth.sample(n_rows, seed), truth.sample(20_000, seed + 100)
            fits = [
                pmf.fit_em(codes, rank=1, schema=truth.schema),
                pmf.fit_em(codes, rank=rank, schema=truth.schema),
                pmf.fit_em(codes, truth),
            ]
            alone, found, best = (float(np.mean(each.model.log_prob(test))) for each in fits)
            shares.append((found - alone) / (best - alone))
        yield average(f"recovery, {n_rows} rows, rank {rank}", shares, "more")


def draw_kind(kind: str, size: int, n_rows: int, seed: int) -> np.ndarray:
    """Draw a table of latent classes, of classes with dependent pairs, or of traits."""
    rng = np.random.default_rng([seed, size, n_rows])
    if kind == "traits":
        traits, columns = rng.standard_normal((n_rows, size)), []
        for place in range(12):
            slopes = rng.uniform(0.8, 1.8) * np.linspace(-1, 1, 4)
            logits = rng.normal(0, 0.7, 4) + traits[:, place % size, None] * slopes
            ends = np.exp(logits).cumsum(axis=1)
            columns.append((rng.random((n_rows, 1)) * ends[:, -1:] > ends[:, :-1]).sum(axis=1))
        return np.stack(columns, axis=1)
    codes = np.array(draw_model(10, 4, size, rng, 0.5).sample(n_rows, seed))
    for first in range(0, 6 if kind == "forests" else 0, 2):
        copied = rng.random(n_rows) < 0.4
        codes[:, first + 1] = np.where(copied, codes[:, first], codes[:, first + 1])
    return codes


def measure_kinds(_: Path) -> Iterator[Line]:
    """Shares of planted tables of which the kind, and the rank, are chosen."""
    for kind, size, n_rows in (
        ("classes", 3, 1000),
        ("classes", 5, 4000),
        ("forests", 2, 2000),
        ("traits", 1, 1000),
        ("traits", 2, 2000),
    ):
        kinds, sizes = [], []
        for seed in range(5):
            codes = draw_kind(kind, size, n_rows, seed)
            model = pmf.fit_em(codes, rank="auto", schema=make_schema(codes)).model
            found, number = model.kind, model.rank
            if isinstance(model, TraitPMF):
                number = model.trait_model.n_traits
            kinds.append(found == kind)
            sizes.append(found == kind and number == size)
        title = f"kinds, {size} {kind}, {n_rows} rows"
        yield average(f"{title}: kind", kinds, "more")
        yield average(f"{title}: kind and size", sizes, "more")


def measure_accuracy(data: Path) -> Iterator[Line]:
    """Accuracy of the classifier at defaults by target, over five splits."""
    for name, target in (("car", -1), ("votes", 0), ("mushroom", 0), ("nltcs", 15), ("adult", -1)):
        rights = []
        for seed in range(5):
            codes = read_codes(data, name, 2000, seed)
            known, unseen = np.split(codes, [len(codes) * 3 // 4])
            features, answers = np.delete(known, target, axis=1), known[:, target]
            found = pmf.PMFClassifier().fit(features, answers)
            predicted = found.predict(np.delete(unseen, target, axis=1))
            rights.append(float(np.mean(predicted == unseen[:, target])))
        yield average(f"accuracy, {name}", rights, "more")


def measure_cells(data: Path) -> Iterator[Line]:
    """Log-probability of hidden cells of rows that were not fitted, nats; the standard error is over rows."""
    for name in ("votes", "car", "nltcs", "adult", "pisa2009"):
        codes = read_codes(data, name, 2000)
        n_fitted = len(codes) * 3 // 5
        options = {"rank": "auto" if name != "pisa2009" else 8, "members": 4}
        model = pmf.fit_em(codes[:n_fitted], schema=make_schema(codes), **options).model  # type: ignore[arg-type]
        test = codes[n_fitted:]
        hidden = (np.random.default_rng(11).random(test.shape) < 0.2) & (test >= 0)
        shown, sums = np.where(hidden, -1, test), np.zeros(len(test))
        for place in range(test.shape[1]):
            rows = np.flatnonzero(hidden[:, place])
            if rows.size:
                given = model.predict_proba(shown[rows], place)
                sums[rows] += np.log(
                    np.maximum(given[np.arange(rows.size), test[rows, place]], 1e-9)
                )
        n_hidden = np.maximum(hidden.sum(axis=1), 1)
        yield average(f"cells, {name}", (sums / n_hidden)[hidden.any(axis=1)], "more")


def measure_optima(data: Path) -> Iterator[Line]:
    """Log-likelihood per row of a fit less that of the best of many random starts, nats; not of StepMix."""
    gaps = []
    for name, most in (("votes", 435), ("car", 1728), ("mushroom", 600), ("nltcs", 1000)):
        codes = read_codes(data, name, most)
        for rank in (2, 4, 8):
            options: dict[str, Any] = {
                "rank": rank,
                "schema": make_schema(codes),
                "pseudo_count": 0.0,
            }
            mine = np.mean(pmf.fit_em(codes, **options).model.log_prob(codes))
            options |= {"start": "random", "accelerate": True}
            best = max(
                np.mean(pmf.fit_em(codes, rng=seed, **options).model.log_prob(codes))
                for seed in range(N_STARTS)
            )
            gaps.append(min(float(mine - best), 0.0))
    yield average(f"optima, nats below the best of {N_STARTS} random starts", gaps, "more")
    missed = np.array(gaps) < -1e-3
    yield average("optima, share of cells more than .001 below", missed, "less")


def measure_ratings(data: Path) -> Iterator[Line]:
    """Root mean squared error of hidden ratings of ml-100k through the pipeline; the error is over ratings."""
    with gzip.open(data / "ml-100k" / "u.data.gz", "rt") as file:
        log = np.loadtxt(file, dtype=np.int64)
    log = log[np.bincount(log[:, 1])[log[:, 1]] >= 100]
    hidden = np.random.default_rng(0).random(len(log)) < 0.2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        head = "user,movie,rating,ts"
        for title, rows in (("known", log[~hidden]), ("questions", log[hidden])):
            np.savetxt(folder / f"{title}.csv", rows, "%d", ",", header=head, comments="")
        words = "--sample user --variable movie --value rating --time ts --rank 5".split()
        run_pmf("infer", folder / "known.csv", *words, "--output", folder)
        run_pmf("run", folder / "pipeline.toml")
        found = score_questions(folder)
    (errors,) = found["errors"].values()
    value, n_hidden = errors["rmse"], int(hidden.sum())
    yield Line("ratings, RMSE of ml-100k", value, value / (2 * n_hidden) ** 0.5, "less")


def score_questions(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Score hidden cells by the live model of a pipeline."""
    words = ["score", "pipeline.toml", "--questions", "questions.csv", "--json"]
    command = [sys.executable, "-m", "pmflib_flows", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    found: dict[str, dict[str, dict[str, float]]] = json.loads(done.stdout)
    return found
