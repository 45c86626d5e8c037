"""Nights of deliveries drawn from planted models, healthy or with an accident: a rating log, and a survey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.model.sampling import sample_codes
from pmflib.schema import Schema, Variable
from pmflib.synthetic.planted_models import planted_factors

SIZE_DEVIATION = 0.15
"""Standard deviation of the logarithm of a night's number of samples."""
POPULATION_PRECISION = 150.0
"""Precision of the Dirichlet law of a night's shares of the latent states around the prior: nights differ naturally."""


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
        codes = sample_codes(prior, self.factors, self.schema.offsets, n_samples, rng)
        codes = codes.astype(np.int64)
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
