"""Nights of deliveries drawn from planted models, healthy or with an accident: rating and label logs, and a survey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.model.planted_models import planted_factors
from pmflib.model.sampling import sample_codes
from pmflib.schema import Schema, Variable

SIZE_DEVIATION = 0.15
"""Standard deviation of the logarithm of a night's number of samples."""
POPULATION_PRECISION = 150.0
"""Precision of the Dirichlet law of a night's shares of the latent states around the prior: nights differ naturally."""


FIRST_NIGHT = 1_700_000_000
"""Time of the first night of a log with returning people, seconds since 1970."""
DAY = 86_400
"""Seconds from night to night."""


@dataclass(frozen=True, eq=False)
class Generator:
    """Draws nights of one planted model.

    Parameters
    ----------
    layout
        "long" or "wide".
    schema
        Variables and levels.
    prior, factors
        The planted model.
    observed
        Probability that a sample answers a variable.
    samples
        Samples of a night in the median.
    """

    layout: str
    schema: Schema
    prior: FloatArray
    factors: FloatArray
    observed: float
    samples: int

    def draw(self, rng: np.random.Generator, *, drift: bool = False) -> IntArray:
        """Codes of a night's samples, int64 of shape (n_samples, n_variables), -1 missing.

        Parameters
        ----------
        rng
            Source of randomness.
        drift
            Whether another population answers: only people of the latent state that is the rarest otherwise.
        """
        n_samples = int(self.samples * np.exp(SIZE_DEVIATION * rng.standard_normal()))
        prior = rng.dirichlet(POPULATION_PRECISION * self.prior)
        if drift:
            prior = np.zeros_like(prior)
            prior[int(np.argmin(self.prior))] = 1.0
        drawn = sample_codes(prior, self.factors, self.schema.offsets, n_samples, rng)
        codes = drawn.astype(np.int64)
        codes[rng.random(codes.shape) >= self.observed] = -1
        return codes


def make_rating_log(seed: int) -> Generator:
    """Ratings from 1 to 5 of 12 films by 150 people a night; names are not ASCII."""
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors([5] * 12, 3, rng, concentration=1.5)
    # people like what they chose to see: scales are not symmetric
    factors = _tilt(factors, 5)
    values = (1.0, 2.0, 3.0, 4.0, 5.0)
    names = [f"été {index:02}" for index in range(1, 13)]
    schema = Schema(tuple(Variable(name, tuple("12345"), values) for name in names))
    return Generator("long", schema, prior, factors, 0.6, 150)


def make_survey(seed: int) -> Generator:
    """Answers of 300 people a night to 8 questions of one scale and 3 others."""
    rng = np.random.default_rng(seed)
    sizes = [4] * 8 + [2, 3, 6]
    prior, factors = planted_factors(sizes, 4, rng, concentration=0.5)
    scale, rest = ("never", "rarely", "often", "always"), "abcdef"
    variables = [Variable(f"q{index}", scale) for index in range(1, 9)]
    variables += [Variable(f"r{size}", tuple(rest[:size])) for size in sizes[8:]]
    return Generator("wide", Schema(tuple(variables)), prior, factors, 0.95, 300)


@dataclass(eq=False)
class ReturningLog:
    """Draws nights of a log whose people return, and of whom there are more every night.

    Rows are int64 of shape (n_rows, 4): person, variable, code, time in seconds since 1970; in the order of times.

    Parameters
    ----------
    schema
        Variables and levels.
    prior, factors
        The planted model.
    persons
        People of a night in the median.
    returning
        Share of them that were there before, once there are enough.
    answers
        Answers of a person and night, on average.
    again
        Probability that an answer is to a variable that the person has answered before.
    same
        Probability that such an answer is the one before.
    campaigns
        Probability that a night has four times as many new people.
    """

    schema: Schema
    prior: FloatArray
    factors: FloatArray
    persons: int
    returning: float
    answers: float
    again: float
    same: float
    campaigns: float
    layout: str = "long"

    def __post_init__(self) -> None:
        self._night = 0
        self._known = np.empty((0, self.schema.n_variables), np.int64)
        self._truth = np.empty((0, self.schema.n_variables), np.int64)

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Rows of the next night."""
        self._night += 1
        n_people = max(4, int(self.persons * np.exp(SIZE_DEVIATION * rng.standard_normal())))
        n_old = min(len(self._known), rng.binomial(n_people, self.returning))
        # a log begins with people that are all new
        n_new = n_people - rng.binomial(n_people, self.returning) if n_old else n_people
        n_new *= 4 if n_old and rng.random() < self.campaigns else 1
        old = rng.choice(len(self._known), n_old, replace=False)
        prior = rng.dirichlet(POPULATION_PRECISION * self.prior)
        codes = sample_codes(prior, self.factors, self.schema.offsets, n_new, rng)
        self._truth = np.concatenate([self._truth, codes.astype(np.int64)])
        nothing = np.full((n_new, self.schema.n_variables), -1)
        self._known = np.concatenate([self._known, nothing])
        new = np.arange(len(self._known) - n_new, len(self._known))
        rows = [row for person in [*old, *new] for row in self._answer(int(person), rng)]
        start = FIRST_NIGHT + self._night * DAY
        times = np.sort(rng.integers(start, start + DAY // 2, len(rows)))
        drawn = np.array(rows, np.int64).reshape(-1, 3)[rng.permutation(len(rows))]
        return np.column_stack([drawn, times])

    def _answer(self, person: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
        """Answers of a person: most to what was not answered yet."""
        known, rows = self._known[person], []
        for _ in range(1 + rng.poisson(self.answers - 1)):
            answered = known >= 0
            again = answered.any() and (answered.all() or rng.random() < self.again)
            variable = int(rng.choice(np.flatnonzero(answered if again else ~answered)))
            code = int(self._truth[person, variable])
            if again and rng.random() > self.same:
                code = int(rng.integers(self.schema.cardinalities[variable]))
            elif again:
                code = int(known[variable])
            known[variable] = code
            rows.append((person, variable, code))
        return rows

    def write(
        self, rows: IntArray, name: Callable[[int], str] = lambda person: str(1 + person)
    ) -> str:
        """CSV text of rows; people are numbered as they come."""
        lines = ["person,film,stars,time"]
        names = self.schema.names
        lines += [f"{name(p)},{names[v]},{code + 1},{time}" for p, v, code, time in rows.tolist()]
        return "\n".join(lines) + "\n"


def make_returning_log(seed: int) -> ReturningLog:
    """Ratings from 1 to 5 of some films by people who return; sizes and habits differ from seed to seed."""
    rng = np.random.default_rng([seed, 5])
    n_films = int(rng.integers(15, 40))
    prior, factors = planted_factors([5] * n_films, 3, rng, concentration=1.5)
    values = (1.0, 2.0, 3.0, 4.0, 5.0)
    names = [f"film {index:02}" for index in range(1, n_films + 1)]
    return ReturningLog(
        Schema(tuple(Variable(name, tuple("12345"), values) for name in names)),
        prior,
        _tilt(factors, 5),
        persons=int(rng.integers(80, 300)),
        returning=float(rng.uniform(0.3, 0.85)),
        answers=float(rng.uniform(3, 8)),
        again=float(rng.uniform(0.05, 0.25)),
        same=float(rng.uniform(0.6, 0.95)),
        campaigns=0.05,
    )


class LabelLog:
    """Draws nights of five labels for each of 100 new tasks, by 16 workers of whom 2 to 8 are new.

    Workers know 0.3 to 0.95 of the tasks, and guess otherwise; nobody knows a task in seven.
    """

    def __init__(self) -> None:
        self._skills = np.empty(0)

    def draw(self, rng: np.random.Generator, *, guess: bool) -> str:
        """CSV text of a night; if asked, three of five labels are random, by workers who never return."""
        n_known, night = self._skills.size, rng.integers(10**9)
        n_new = int(rng.integers(2, 9)) if n_known else 16
        workers = np.r_[rng.choice(n_known, 16 - n_new, False), n_known + np.arange(n_new)]
        self._skills = np.append(self._skills, rng.uniform(0.3, 0.95, n_new))
        chosen = workers.astype(np.int64)[rng.random((100, 16)).argsort(axis=1)[:, :5]]
        knows = rng.random((100, 5)) < self._skills[chosen] * (rng.random((100, 1)) > 1 / 7)
        if guess:
            chosen[:, 2:] = 10**6 + rng.random((100, 10)).argsort(axis=1)[:, :3]
            knows[:, 2:] = False
        truth = rng.choice(3, (100, 1), p=[0.5, 0.3, 0.2])
        labels = np.where(knows, truth, rng.integers(0, 3, (100, 5)))
        rows = zip(np.repeat(np.arange(100), 5), chosen.flat, labels.flat, strict=True)
        return "task,worker,label\n" + "".join(f"{night}-{t},w{w},c{k}\n" for t, w, k in rows)


def _tilt(factors: FloatArray, n_levels: int) -> FloatArray:
    """Make high levels likelier."""
    weights = np.tile(np.arange(1, n_levels + 1) ** 1.2, len(factors) // n_levels)[:, None]
    tilted = (factors * weights).reshape(-1, n_levels, factors.shape[1])
    shares: FloatArray = tilted / tilted.sum(axis=1, keepdims=True)
    return shares.reshape(factors.shape)


def write_ratings(
    generator: Generator,
    codes: IntArray,
    night: int,
    *,
    write_level: Callable[[int], str] = lambda level: str(level + 1),
    swap: bool = False,
) -> str:
    """CSV text of a night's ratings.

    Parameters
    ----------
    generator
        Names of the variables.
    codes
        Codes of the samples.
    night
        Number of the night: names the people, and is the time.
    write_level
        Text of a code.
    swap
        Whether the columns of people and films are exchanged.
    """
    lines = ["person,film,stars,time"]
    for sample, variable in np.argwhere(codes >= 0).tolist():
        columns = [f"p{night:02}-{sample:04}", generator.schema.names[variable]]
        columns = columns[::-1] if swap else columns
        level = write_level(int(codes[sample, variable]))
        lines.append(",".join([*columns, level, str(1000 * night)]))
    return "\n".join(lines) + "\n"


def write_answers(generator: Generator, codes: IntArray) -> str:
    """CSV text of a night's answers, a row per person."""
    lines = [",".join(generator.schema.names)]
    for row in codes.tolist():
        cells = zip(generator.schema.variables, row, strict=True)
        lines.append(
            ",".join("" if code < 0 else variable.levels[code] for variable, code in cells)
        )
    return "\n".join(lines) + "\n"
