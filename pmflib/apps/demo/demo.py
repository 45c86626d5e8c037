"""Demonstration data: a rating log, a survey and a label log with known parameters, and the error of a fit."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pmflib.apps.demo.raw_logs import LogSummary, write_rating_log
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.planted_models import planted_factors
from pmflib.papers.metrics import factor_mse, match_factors
from pmflib.schema import Schema, Variable

N_MOVIES = 20
N_RATINGS = 5
RANK = 4
"""Variables, their levels, and latent states of the model from which the demonstration log is drawn."""


def write_demo_log(folder: Path, *, n_users: int, seed: int) -> tuple[LogSummary, JointPMF]:
    """Write a rating log of a known model, with one percent of its rows damaged as in `write_rating_log`.

    Parameters
    ----------
    folder
        New or empty folder for the files.
    n_users
        Number of users.
    seed
        Seed; equal seeds give equal bytes.

    Returns
    -------
    Summary of the rows, and the model from which they were drawn.
    """
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors([N_RATINGS] * N_MOVIES, RANK, rng, concentration=0.7)
    offsets = np.arange(N_MOVIES + 1, dtype=np.int64) * N_RATINGS
    summary = write_rating_log(
        folder,
        prior,
        factors,
        offsets,
        n_samples=n_users,
        ratings_per_sample=8,
        rng=rng,
        n_files=2,
        dirt=0.01,
    )
    values = tuple(float(level) for level in summary.levels)
    schema = Schema(tuple(Variable(name, summary.levels, values) for name in summary.variables))
    return summary, JointPMF(prior, factors, schema, ModelOrigin(method="planted"))


@dataclass(frozen=True)
class StateErrors:
    """A true latent state: its prior, the estimated prior, and the largest error of its conditional probabilities."""

    true: float
    recovered: float
    largest_error: float


@dataclass(frozen=True)
class ModelErrors:
    """Error of a fitted model relative to the true one.

    Parameters
    ----------
    states
        The true states, in order.
    factor_mse
        Mean squared error of the factors plus that of the prior, after matching states.
    """

    states: list[StateErrors]
    factor_mse: float


def compare_with_truth(model: JointPMF, truth: JointPMF) -> ModelErrors:
    """Compare a fitted model with the model from which the data were drawn.

    Parameters
    ----------
    model
        The fitted model.
    truth
        The true model, with the same variables in any order.
    """
    rows = np.concatenate(
        [
            np.arange(model.schema.n_levels)[model.schema.rows_of(name)]
            for name in truth.schema.names
        ]
    )
    factors = model.factors[rows]
    partner = match_factors(truth.prior, truth.factors, model.prior, factors)
    states = []
    for state, found in enumerate(partner.tolist()):
        worst = (
            float(np.abs(truth.factors[:, state] - factors[:, found]).max()) if found >= 0 else 1.0
        )
        recovered = float(model.prior[found]) if found >= 0 else 0.0
        states.append(StateErrors(float(truth.prior[state]), recovered, worst))
    mse = factor_mse(model.prior, factors, truth.prior, truth.factors, truth.schema.n_variables)
    return ModelErrors(states, mse)


CLASSES = ("cat", "dog", "fox")
"""Labels given by workers."""
CLASS_SHARES = np.array([0.5, 0.3, 0.2])
"""Share of each class among the tasks."""
SKILLS = (0.97, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6)
"""Accuracies of ten workers; of two more, one guesses and one always answers "dog"."""
LABELS_EACH = 4
"""Number of labels per task, from different workers."""
KNOWN_SHARE = 0.05
"""Share of tasks with a known true label."""


@dataclass(frozen=True, eq=False)
class DemoLabels:
    """A drawn label log: codes of tasks, workers and labels.

    Parameters
    ----------
    task, worker, label
        int64 of shape (n_labels,): the columns of the log.
    truth
        int64 of shape (n_tasks,): true class of each task.
    """

    task: IntArray
    worker: IntArray
    label: IntArray
    truth: IntArray


def write_demo_labels(folder: Path, *, n_tasks: int, seed: int) -> DemoLabels:
    """Write ``labels.csv`` with the columns task, worker, label, and ``known.csv`` with the true labels of a few tasks.

    Parameters
    ----------
    folder
        Folder for the two files; created if necessary.
    n_tasks
        Number of tasks, >= 1; each has ``LABELS_EACH`` labels.
    seed
        Seed; equal seeds give equal bytes.

    Returns
    -------
    The drawn data.
    """
    rng = np.random.default_rng(seed)
    n_classes, n_workers = len(CLASSES), len(SKILLS) + 2
    confusion = np.full((n_workers, n_classes, n_classes), 1 / n_classes)
    for index, skill in enumerate(SKILLS):
        confusion[index] = (1 - skill) / (n_classes - 1)
        np.fill_diagonal(confusion[index], skill)
    confusion[-1] = np.eye(n_classes)[[CLASSES.index("dog")]].T
    truth: IntArray = rng.choice(n_classes, n_tasks, p=CLASS_SHARES)
    task: IntArray = np.repeat(np.arange(n_tasks), LABELS_EACH)
    worker = rng.random((n_tasks, n_workers)).argsort(axis=1)[:, :LABELS_EACH].ravel()
    label = _draw(confusion[worker, :, truth[task]], rng)
    known = np.sort(rng.choice(n_tasks, max(1, round(KNOWN_SHARE * n_tasks)), replace=False))
    folder.mkdir(parents=True, exist_ok=True)
    names = [_name_task(index) for index in range(n_tasks)]
    rows = zip(task.tolist(), worker.tolist(), label.tolist(), strict=True)
    log = [(names[t], f"w{w + 1:02d}", CLASSES[k]) for t, w, k in rows]
    _write(folder / "labels.csv", ("task", "worker", "label"), log)
    answers = [(names[t], CLASSES[truth[t]]) for t in known.tolist()]
    _write(folder / "known.csv", ("task", "label"), answers)
    return DemoLabels(task, worker, label, truth)


@dataclass(frozen=True)
class LabelErrors:
    """Share of tasks with a wrong label.

    Parameters
    ----------
    error
        Error of the estimated labels.
    majority_error
        Error of the majority vote; ties go to the first class.
    """

    error: float
    majority_error: float


def measure_errors(found: Path, crowd: DemoLabels) -> LabelErrors:
    """Compare estimated labels, and the majority vote, with the truth.

    Parameters
    ----------
    found
        Folder of Parquet files with the columns task and label.
    crowd
        Return value of `write_demo_labels`.
    """
    table = pq.read_table(found, columns=["task", "label"])
    labels = dict(zip(table["task"].to_pylist(), table["label"].to_pylist(), strict=True))
    truth = [CLASSES[each] for each in crowd.truth.tolist()]
    wrong = [labels[_name_task(index)] != true for index, true in enumerate(truth)]
    votes = np.zeros((crowd.truth.size, len(CLASSES)), np.int64)
    np.add.at(votes, (crowd.task, crowd.label), 1)
    majority_wrong = votes.argmax(axis=1) != crowd.truth
    return LabelErrors(float(np.mean(wrong)), float(majority_wrong.mean()))


def _draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a level for each row of probabilities, (n_rows, n_levels): int64 of shape (n_rows,)."""
    edges = np.cumsum(probabilities, axis=1)[:, :-1]
    drawn: IntArray = (rng.random((len(probabilities), 1)) > edges).sum(axis=1)
    return drawn


def _name_task(index: int) -> str:
    return f"t{index + 1:04d}"


def _write(path: Path, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


AGREEMENT = ("strongly disagree", "disagree", "neutral", "agree", "strongly agree")
SATISFACTION = (
    "very dissatisfied",
    "dissatisfied",
    "neutral",
    "satisfied",
    "very satisfied",
)
STATEMENTS = ("punctual", "affordable", "safe", "clean", "frequent", "easy_tickets", "recommend")
"""Statements rated on the scale ``AGREEMENT``."""

OPINION_SHARES = np.array([0.35, 0.25, 0.25, 0.15])
"""Share of each opinion type: content riders, hurried commuters, drivers, worried riders."""
MEAN_AGE = np.array([58.0, 34.0, 47.0, 29.0])
"""Mean age by opinion type, years; the standard deviation is ``AGE_DEVIATION``."""
AGE_DEVIATION = 11.0
LEAST_AGE, GREATEST_AGE = 18, 92
"""Range of ages, years."""
CHOICES: dict[str, tuple[tuple[str, ...], FloatArray]] = {
    "sex": (
        ("female", "male"),
        np.array([[0.60, 0.40], [0.48, 0.52], [0.38, 0.62], [0.66, 0.34]]),
    ),
    "region": (
        ("north", "east", "south", "west"),
        np.array(
            [[0.40, 0.20, 0.25, 0.15], [0.15, 0.45, 0.2, 0.2], [0.1, 0.2, 0.2, 0.5], [0.25] * 4]
        ),
    ),
    "commute": (
        ("bus", "car", "bicycle", "on foot"),
        np.array(
            [
                [0.62, 0.13, 0.08, 0.17],
                [0.55, 0.20, 0.20, 0.05],
                [0.06, 0.82, 0.08, 0.04],
                [0.40, 0.25, 0.20, 0.15],
            ]
        ),
    ),
}
"""Nominal columns: levels, and their probabilities by opinion type."""
MEAN_STEP = np.array(
    [
        [3.4, 3.1, 3.5, 3.2, 3.3, 3.0, 3.5, 3.4],
        [1.0, 2.0, 2.8, 2.3, 0.9, 2.9, 1.6, 1.3],
        [1.8, 0.9, 2.1, 1.6, 1.4, 1.2, 0.8, 1.5],
        [2.3, 1.8, 0.5, 0.7, 2.2, 2.4, 1.5, 1.6],
    ]
)
"""Mean step from 0 to 4 for ``STATEMENTS`` and satisfaction, by opinion type."""
STEP_DEVIATION = 0.85
"""Standard deviation of the steps."""
GAP = 0.06
"""Share of missing answers."""
REFUSED = 0.03
"""Share of ages given as "refused"."""
WRONG_EVERY = 250
"""One row in this many is invalid: too short, with an answer outside the scale, or a repeated person."""
HEADER = ("id", "age", "sex", "region", "commute", *STATEMENTS, "satisfaction")


def write_demo_survey(path: Path, *, n_people: int, seed: int) -> int:
    """Write a survey with one row per person: Likert answers, age, sex, region, missing answers and some invalid rows.

    Parameters
    ----------
    path
        CSV file to write; its folder is created if necessary.
    n_people
        Number of people, >= 1.
    seed
        Seed; equal seeds give equal bytes.

    Returns
    -------
    Number of rows without the header, including repeated people.
    """
    rng = np.random.default_rng(seed)
    opinion = rng.choice(OPINION_SHARES.size, n_people, p=OPINION_SHARES)
    rows = _draw_rows(opinion, rng)
    for number, row in enumerate(list(rows[WRONG_EVERY - 1 :: WRONG_EVERY])):
        if number % 3 == 0:
            del row[-4:]
        elif number % 3 == 1:
            row[HEADER.index("clean")] = "see the other side"
        else:
            rows.append([*row[:-1], "neutral"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)
    return len(rows)


def _draw_rows(opinion: IntArray, rng: np.random.Generator) -> list[list[str]]:
    """Draw rows of text for people with these opinion types, with missing answers."""
    n_people = opinion.size
    age = np.rint(rng.normal(MEAN_AGE[opinion], AGE_DEVIATION)).clip(LEAST_AGE, GREATEST_AGE)
    columns = [
        np.where(rng.random(n_people) < REFUSED, "refused", age.astype(np.int64).astype(str))
    ]
    for levels, probabilities in CHOICES.values():
        columns.append(np.array(levels)[_draw(probabilities[opinion], rng)])
    steps = np.rint(rng.normal(MEAN_STEP[opinion], STEP_DEVIATION)).clip(0, 4).astype(np.int64)
    columns += [np.array(AGREEMENT)[column] for column in steps.T[:-1]]
    columns.append(np.array(SATISFACTION)[steps[:, -1]])
    cells = np.stack(columns, axis=1).astype(object)
    cells[rng.random(cells.shape) < GAP] = ""
    return [[f"p{person:05d}", *row] for person, row in enumerate(cells.tolist(), start=1)]
