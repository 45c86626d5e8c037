"""The survey of the demonstration: people of four opinions on the buses of their town, with gaps and wrong rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from pmflib.arrays import FloatArray, IntArray

AGREEMENT = ("strongly disagree", "disagree", "neutral", "agree", "strongly agree")
SATISFACTION = (
    "very dissatisfied",
    "dissatisfied",
    "neutral",
    "satisfied",
    "very satisfied",
)
STATEMENTS = ("punctual", "affordable", "safe", "clean", "frequent", "easy_tickets", "recommend")
"""Columns of statements that people agree with, on the scale ``AGREEMENT``."""

SHARES = np.array([0.35, 0.25, 0.25, 0.15])
"""Share of each opinion: content riders, hurried commuters, people who drive, worried riders."""
MEAN_AGE = np.array([58.0, 34.0, 47.0, 29.0])
"""Mean age of the people of each opinion, years; the standard deviation is ``AGE_DEVIATION``."""
AGE_DEVIATION = 11.0
LEAST_AGE, GREATEST_AGE = 18, 92
"""Ages that are drawn, years."""
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
"""Nominal columns: levels, and their probabilities by opinion."""
MEAN_STEP = np.array(
    [
        [3.4, 3.1, 3.5, 3.2, 3.3, 3.0, 3.5, 3.4],
        [1.0, 2.0, 2.8, 2.3, 0.9, 2.9, 1.6, 1.3],
        [1.8, 0.9, 2.1, 1.6, 1.4, 1.2, 0.8, 1.5],
        [2.3, 1.8, 0.5, 0.7, 2.2, 2.4, 1.5, 1.6],
    ]
)
"""Mean step from 0 to 4 of ``STATEMENTS`` and of the satisfaction, by opinion."""
STEP_DEVIATION = 0.85
"""Standard deviation of steps about their mean."""
GAP = 0.06
"""Share of the answers that are empty."""
REFUSED = 0.03
"""Share of the ages that are given as "refused"."""
WRONG_EVERY = 250
"""A row of so many is wrong: too short, with an answer that is none of the scale, or a person for the second time."""
HEADER = ("id", "age", "sex", "region", "commute", *STATEMENTS, "satisfaction")


def write_demo_survey(path: Path, *, n_people: int, seed: int) -> int:
    """Write a survey with a row per person: likert answers, age, sex, region, gaps and some wrong rows.

    Parameters
    ----------
    path
        CSV file to write; its folder is made.
    n_people
        People, >= 1.
    seed
        Same seed, same bytes.

    Returns
    -------
    Rows written, the header apart: people, and those who are there twice.
    """
    rng = np.random.default_rng(seed)
    opinion = rng.choice(SHARES.size, n_people, p=SHARES)
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
    """Rows of text for people of these opinions, with gaps."""
    n_people = opinion.size
    age = np.rint(rng.normal(MEAN_AGE[opinion], AGE_DEVIATION)).clip(LEAST_AGE, GREATEST_AGE)
    columns = [
        np.where(rng.random(n_people) < REFUSED, "refused", age.astype(np.int64).astype(str))
    ]
    for levels, probabilities in CHOICES.values():
        edges = np.cumsum(probabilities[opinion], axis=1)[:, :-1]
        columns.append(np.array(levels)[(rng.random((n_people, 1)) > edges).sum(axis=1)])
    steps = np.rint(rng.normal(MEAN_STEP[opinion], STEP_DEVIATION)).clip(0, 4).astype(np.int64)
    columns += [np.array(AGREEMENT)[column] for column in steps.T[:-1]]
    columns.append(np.array(SATISFACTION)[steps[:, -1]])
    cells = np.stack(columns, axis=1).astype(object)
    cells[rng.random(cells.shape) < GAP] = ""
    return [[f"p{person:05d}", *row] for person, row in enumerate(cells.tolist(), start=1)]
