"""Answers of a survey predicted from all other questions: one joint PMF next to gradient boosting, fitted per question.

    python -m benchmarks.models.pisa
    python -m benchmarks.models.pisa --targets 3 --ranks 8 --averaged 4
    python -m benchmarks.models.pisa --hidden 0.2 --train 2000 --ranks auto --averaged 1

Of 6,000 students of pisa2009, drawn at random, 4,000 are learnt from, 800 choose, and 1,200 are tested. Each of some
questions, drawn at random, is predicted from the other 80, of which 2 % are missing. `pmf` is fitted once for all 81
questions: plain latent classes, ten averaged, then forests, one model and several averaged; the rank, as everything
else of a fit, is chosen on the 800. The peer is `HistGradientBoostingClassifier` per question, which handles missing
answers itself: as it comes but for early stopping on the 800, and the best on them of numbers in the order of the
answers or categories, each in two settings. With --hidden, that share of the answers of each validation and test row is
hidden, and of the questions those that are hidden are predicted from what is left; boosting learns from rows in which
as many are. --ranks auto is `fit_em` with rank "auto" and all else left open, in place of models with forests.

Of the students of seed 0, validation rows had a part in the design of forests' shrinkage, and test rows were seen
meanwhile; those of other seeds were not looked at.

Log-probability per answer in nats, with its difference from plain latent classes and the standard error of that over
students; the share of the gap between these and the better of the boosted ones that is closed. Seconds are of
processor time per question that is predicted: of a joint PMF a share of 1/81 of the fits of all ranks, and its
prediction.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.models.targets import read_lines

N_STUDENTS, N_TRAIN, N_VALID = 6000, 4000, 800
LEAST_PROBABILITY = 1e-12
SMALL_TREES: dict[str, Any] = {
    "learning_rate": 0.05,
    "max_leaf_nodes": 8,
    "max_features": 0.3,
    "min_samples_leaf": 40,
    "l2_regularization": 5.0,
}
DEFAULTS: tuple[tuple[bool, dict[str, Any]], ...] = ((True, {}),)
GRID = (*DEFAULTS, (False, {}), (True, SMALL_TREES), (False, SMALL_TREES))
"""Settings of boosting, each with whether answers are categories, or else numbers in their order."""


@dataclass(frozen=True)
class Survey:
    """Codes of students, (n_rows, n_variables), -1 missing, of one schema."""

    schema: pmf.Schema
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    targets: tuple[int, ...]
    hidden: float

    def show(self, codes: np.ndarray, seed: int) -> np.ndarray:
        """Codes of which a share is hidden at random."""
        gone = np.random.default_rng(seed).random(codes.shape) < self.hidden
        return np.where(gone, -1, codes)

    def ask(self, codes: np.ndarray, seed: int) -> np.ndarray:
        """Codes that are to be predicted, where some are hidden: those alone."""
        shown = self.show(codes, seed)
        return np.where(shown < 0, codes, -1) if self.hidden else codes


@dataclass(frozen=True)
class Answers:
    """How a predictor does: log-probability and hit of each answer, (n_test, n_targets), NaN where it is missing."""

    name: str
    logs: np.ndarray
    hits: np.ndarray
    seconds: float


VALID, TEST, TRAIN = 1, 2, 3
"""Seeds of what is hidden."""


def read_survey(n_targets: int, seed: int, n_train: int = N_TRAIN, hidden: float = 0.0) -> Survey:
    """Students and questions, drawn at random; levels in the order of the answers."""
    lines = read_lines(DATA / "pisa2009" / "pisaitems.csv.gz", ",")
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(lines) - 1)[:N_STUDENTS] + 1
    frame = pd.DataFrame(lines[rows], columns=lines[0]).replace("", None)
    schema = pmf.Schema.infer(frame)
    codes = schema.encode(frame)
    train, valid, test = np.split(codes, [N_TRAIN, N_TRAIN + N_VALID])
    targets = rng.permutation(schema.n_variables)[:n_targets]
    return Survey(schema, train[:n_train], valid, test, tuple(targets.tolist()), hidden)


def assess(codes: np.ndarray, target: int, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability and hit of every row under the PMFs of a target, NaN where it is missing."""
    truth = codes[:, target]
    of_truth = found[np.arange(len(codes)), np.maximum(truth, 0)]
    logs = np.log(np.maximum(of_truth, LEAST_PROBABILITY))
    hits = (found.argmax(axis=1) == truth).astype(np.float64)
    return np.where(truth < 0, np.nan, logs), np.where(truth < 0, np.nan, hits)


def predict_each(
    model: pmf.JointPMF, survey: Survey, codes: np.ndarray, hidden_by: int
) -> np.ndarray:
    """Log-probabilities and hits of the targets: (2, n_rows, n_targets)."""
    shown, asked = survey.show(codes, hidden_by), survey.ask(codes, hidden_by)
    found = [assess(asked, target, model.predict_proba(shown, target)) for target in survey.targets]
    return np.stack(found, axis=2)


def fit_ranks(
    survey: Survey,
    dependence: Literal["none", "tree"] | None,
    ranks: Sequence[int | Literal["auto"]],
    members: int,
    seed: int,
) -> Answers:
    """Fit every rank, and take the one that predicts the targets of the 800 best."""
    began = time.process_time()
    best, score = None, -np.inf
    for rank in ranks:
        result = pmf.fit_em(
            survey.train,
            rank=rank,
            schema=survey.schema,
            validation=survey.valid,
            members=members,
            dependence=dependence,
            rng=seed,
        )
        reached = float(np.nanmean(predict_each(result.model, survey, survey.valid, VALID)[0]))
        if reached > score:
            best, score, chosen = result.model, reached, rank
    assert best is not None
    seconds = (time.process_time() - began) / survey.schema.n_variables
    began = time.process_time()
    logs, hits = predict_each(best, survey, survey.test, TEST)
    seconds += (time.process_time() - began) / len(survey.targets)
    kind = "latent classes" if dependence == "none" else "with forests"
    if chosen == "auto":
        kind, chosen = f"default, {type(best).__name__}", best.rank
    name = f"{kind}, rank {chosen}" + (f", {members} averaged" if members > 1 else "")
    return Answers(name, logs, hits, seconds)


def boost(
    survey: Survey, name: str, settings: Sequence[tuple[bool, dict[str, Any]]], seed: int
) -> Answers:
    """Fit a classifier per target with each of some settings, and take the best on the 800."""
    began = time.process_time()
    found = [_boost_best(survey, target, settings, seed) for target in survey.targets]
    seconds = (time.process_time() - began) / len(survey.targets)
    logs, hits = np.stack(found, axis=2)
    return Answers(name, logs, hits, seconds)


def _boost_best(
    survey: Survey, target: int, settings: Sequence[tuple[bool, dict[str, Any]]], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    inputs, held, asked = [], [], []
    for codes, hidden_by in ((survey.train, TRAIN), (survey.valid, VALID), (survey.test, TEST)):
        others = np.delete(survey.show(codes, hidden_by), target, axis=1).astype(np.float64)
        inputs.append(np.where(others < 0, np.nan, others))
        held.append(codes[:, target] >= 0)
        asked.append(survey.ask(codes, hidden_by))
    best, score = None, -np.inf
    for are_categories, options in settings:
        model = HistGradientBoostingClassifier(
            categorical_features=[are_categories] * inputs[0].shape[1],
            early_stopping=True,
            max_iter=2000,
            random_state=seed,
            **options,
        )
        model.fit(
            inputs[0][held[0]],
            survey.train[held[0], target],
            X_val=inputs[1][held[1]],
            y_val=survey.valid[held[1], target],
        )
        logs, _ = assess(asked[1], target, _spread(model, inputs[1], survey, target))
        if np.nanmean(logs) > score:
            best, score = model, np.nanmean(logs)
    return assess(asked[2], target, _spread(best, inputs[2], survey, target))


def _spread(model: Any, inputs: np.ndarray, survey: Survey, target: int) -> np.ndarray:
    """PMFs of all levels of a target, 0 of those that no student in training has."""
    found = np.zeros((len(inputs), int(survey.schema.cardinalities[target])))
    found[:, model.classes_.astype(np.int64)] = model.predict_proba(inputs)
    return found


def print_row(row: Answers, plain: Answers, boosted: Answers) -> None:
    """Print a predictor; the gap is that between plain latent classes and boosting."""
    less = row.logs - plain.logs
    mean = np.nanmean(less)
    error = np.sqrt((np.nansum(less - mean, axis=1) ** 2).sum()) / np.isfinite(less).sum()
    gap = np.nanmean(boosted.logs) - np.nanmean(plain.logs)
    print(
        f"{row.name:<38}{np.nanmean(row.logs):>9.4f}{mean:>12.4f}{error:>8.4f}{mean / gap:>8.0%}"
        f"{np.nanmean(row.hits):>10.4f}{row.seconds:>9.3f}{row.seconds / boosted.seconds:>7.3f}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--plain-ranks", default="16,32")
    parser.add_argument("--ranks", default="8,16", help="of models with forests; or auto")
    parser.add_argument("--train", type=int, default=N_TRAIN, help="students to learn from")
    parser.add_argument("--hidden", type=float, default=0.0, help="share of answers to hide")
    parser.add_argument("--averaged", type=int, default=4, help="models with forests")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pmf.ConvergenceWarning)
    survey = read_survey(options.targets, options.seed, options.train, options.hidden)
    plain_ranks = [int(each) for each in options.plain_ranks.split(",")]
    is_auto = options.ranks == "auto"
    ranks: list[int | Literal["auto"]] = (
        ["auto"] if is_auto else [int(each) for each in options.ranks.split(",")]
    )
    pmf.fit_em(survey.train[:200], rank=2, schema=survey.schema, dependence="tree", max_passes=2)
    plain = fit_ranks(survey, "none", plain_ranks, 10, options.seed)
    boosted = boost(survey, "boosting, best of four settings", GRID, options.seed)
    print(
        f"{'':<38}{'log-prob':>9}{'less plain':>12}{'s.e.':>8}{'of gap':>8}{'accuracy':>10}{'s each':>9}{'ratio':>7}"
    )
    print_row(boosted, plain, boosted)
    print_row(boost(survey, "boosting, one setting", DEFAULTS, options.seed), plain, boosted)
    print_row(plain, plain, boosted)
    for members in sorted({1, options.averaged}):
        fitted = fit_ranks(survey, None if is_auto else "tree", ranks, members, options.seed)
        print_row(fitted, plain, boosted)


if __name__ == "__main__":
    main()
