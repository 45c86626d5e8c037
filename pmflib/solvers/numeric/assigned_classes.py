"""Means, PMFs and logits of a class that is known with error: estimates, and what each row has to do with them.

Each row is assigned to classes, and how often rows of each true class are assigned to each class is known. Two
corrections take that into account: weights that undo the errors on average (BCH), and the likelihood of what was
assigned (ML). Both solve equations that are sums over rows, and the parts of these give errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray

MAX_STEPS = 500
"""Steps after which an estimate is said not to have converged: EM and Newton's steps take some tens."""
DECREMENT = 1e-12
"""Squared step per sample, in standard errors of the rows' own scale, below which an estimate has converged."""
NULL_SHARE = 1e-9
"""Share of the largest curvature below which a direction has none: of sums that are 1 in any case, 1e-16 is left."""
LEAST_VARIANCE = 1e-6
"""Least variance of an outcome in a class, as a share of that of all rows: a class must not end at a single row."""
BATCH_NUMBERS = 1 << 21
"""Derivatives of rows in memory at a time."""


class Design(Protocol):
    """What is said of a row and each class it may be in, and how that changes with the parameters."""

    def start(self) -> FloatArray:
        """Parameters (n_parameters,) to start from."""

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Log-probability of each class and of the row's outcome in it: (n_rows, n_classes)."""

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Derivatives of these terms by the parameters: (n_taken, n_classes, n_parameters)."""

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Second derivatives of the terms, summed over rows and classes by (n_rows, n_classes) expected ones."""

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Parameters that raise the sum of the terms, weighted by the expected classes."""


@dataclass(frozen=True, eq=False)
class Logits:
    """Classes by covariates: a multinomial logit, with coefficients for every class, of which one set is free to add.

    Parameters
    ----------
    covariates
        float64 of shape (n_rows, n_covariates), with a column of ones.
    n_classes
        Number of classes.
    """

    covariates: FloatArray
    n_classes: int

    def start(self) -> FloatArray:
        """Classes of one size."""
        return np.zeros(self.n_classes * self.covariates.shape[1])

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Logarithms of the classes' probabilities."""
        return _log_shares(self.covariates @ parameters.reshape(self.n_classes, -1).T)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Class less its probability, times the covariates."""
        part = Logits(self.covariates[rows], self.n_classes)
        residuals = np.eye(self.n_classes) - np.exp(part.log_terms(parameters))[:, None]
        found = residuals[..., None] * part.covariates[:, None, None, :]
        return np.asarray(found).reshape(len(part.covariates), self.n_classes, -1)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Minus the variances of classes, times products of covariates."""
        shares, totals = np.exp(self.log_terms(parameters)), expected.sum(axis=1)
        n_classes, n_covariates = self.n_classes, self.covariates.shape[1]
        found = np.empty((n_classes, n_covariates, n_classes, n_covariates))
        for first in range(n_classes):
            for second in range(first + 1):
                own = totals * shares[:, first] * (shares[:, second] - (first == second))
                found[first, :, second] = (self.covariates * own[:, None]).T @ self.covariates
                found[second, :, first] = found[first, :, second].T
        return np.asarray(found.reshape(n_classes * n_covariates, -1))

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Newton's step, halved until it gains."""
        before = self.log_terms(parameters)
        residuals = expected - np.exp(before) * expected.sum(axis=1, keepdims=True)
        step: FloatArray = (
            invert_fall(self.curve(parameters, expected)) @ (residuals.T @ self.covariates).ravel()
        )
        least = float((expected * before).sum())
        for _ in range(20):
            if float((expected * self.log_terms(parameters + step)).sum()) >= least:
                return parameters + step
            step = step / 2
        return parameters


@dataclass(frozen=True, eq=False)
class NormalOutcome:
    """An outcome that is normal in each class, with a mean and a variance of its own; and the sizes of the classes.

    Parameters are logits of the sizes, means, and logarithms of the variances, (n_classes,) each.

    Parameters
    ----------
    outcome
        float64 of shape (n_rows,).
    n_classes
        Number of classes.
    """

    outcome: FloatArray
    n_classes: int

    def start(self) -> FloatArray:
        """Classes that are all alike."""
        same = np.ones(self.n_classes)
        spread = np.log(max(self.outcome.var(), FLOOR))
        return np.concatenate([0 * same, self.outcome.mean() * same, spread * same])

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Log-size of the class, and log-density of the outcome in it."""
        logits, means, spreads = parameters.reshape(3, -1)
        squares = (self.outcome[:, None] - means) ** 2 / np.exp(spreads)
        return np.asarray(_log_shares(logits) - (np.log(2 * np.pi) + spreads + squares) / 2)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """By logits, means, and log-variances."""
        logits, means, spreads = parameters.reshape(3, -1)
        apart, own = self.outcome[rows, None] - means, np.eye(self.n_classes)
        of_sizes = np.broadcast_to(
            own - np.exp(_log_shares(logits)), (*apart.shape, self.n_classes)
        )
        of_means = own * (apart / np.exp(spreads))[..., None]
        of_spreads = own * ((apart**2 / np.exp(spreads) - 1) / 2)[..., None]
        return np.concatenate([of_sizes, of_means, of_spreads], axis=2)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Blocks of the sizes; and of means and spreads, class by class."""
        logits, means, spreads = parameters.reshape(3, -1)
        n_classes, variances = self.n_classes, np.exp(spreads)
        apart = self.outcome[:, None] - means
        found = np.zeros((3, n_classes, 3, n_classes))
        found[0, :, 0] = _curve_shares(logits, float(expected.sum()))
        places = np.arange(n_classes)
        found[1, places, 1, places] = -expected.sum(axis=0) / variances
        crossed = -(expected * apart).sum(axis=0) / variances
        found[1, places, 2, places] = found[2, places, 1, places] = crossed
        found[2, places, 2, places] = -(expected * apart**2).sum(axis=0) / variances / 2
        return found.reshape(3 * n_classes, -1)

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Sizes, weighted means and variances."""
        totals = np.maximum(expected.sum(axis=0), FLOOR)
        means = self.outcome @ expected / totals
        squares = (expected * (self.outcome[:, None] - means) ** 2).sum(axis=0) / totals
        least = max(LEAST_VARIANCE * float(self.outcome.var()), FLOOR)
        return np.concatenate([np.log(totals), means, np.log(np.maximum(squares, least))])


@dataclass(frozen=True, eq=False)
class LevelOutcome:
    """An outcome of several levels, with a PMF in each class; and the sizes of the classes.

    Parameters are logits of the sizes, (n_classes,), and of the levels, (n_classes, n_levels).

    Parameters
    ----------
    codes
        int64 of shape (n_rows,), in [0, n_levels).
    n_levels, n_classes
        Their numbers.
    """

    codes: IntArray
    n_levels: int
    n_classes: int

    def start(self) -> FloatArray:
        """Classes that are all alike."""
        return np.zeros(self.n_classes * (1 + self.n_levels))

    def split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithms of the sizes, and of the PMFs, (n_classes, n_levels)."""
        levels = parameters[self.n_classes :].reshape(self.n_classes, -1)
        return _log_shares(parameters[: self.n_classes]), _log_shares(levels)

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Log-size of the class, and log-probability of the level in it."""
        sizes, levels = self.split(parameters)
        return np.asarray(sizes + levels.T[self.codes])

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Class, or level in the class, less its probability."""
        sizes, levels = self.split(parameters)
        codes, own = self.codes[rows], np.eye(self.n_classes)
        of_sizes = np.broadcast_to(own - np.exp(sizes), (codes.size, *own.shape))
        residuals = np.eye(self.n_levels)[codes][:, None] - np.exp(levels)
        of_levels = own[:, :, None] * residuals[:, :, None, :]
        return np.concatenate([of_sizes, of_levels.reshape(codes.size, self.n_classes, -1)], axis=2)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """A block of the sizes, and one of each class's levels."""
        n_classes, n_levels = self.n_classes, self.n_levels
        found = np.zeros((parameters.size, parameters.size))
        found[:n_classes, :n_classes] = _curve_shares(parameters[:n_classes], float(expected.sum()))
        levels = parameters[n_classes:].reshape(n_classes, -1)
        for each, total in enumerate(expected.sum(axis=0).tolist()):
            first = n_classes + each * n_levels
            own = slice(first, first + n_levels)
            found[own, own] = _curve_shares(levels[each], total)
        return found

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Sizes, and weighted shares of the levels."""
        held = np.array(
            [np.bincount(self.codes, each, minlength=self.n_levels) for each in expected.T]
        )
        totals = np.log(np.maximum(held.sum(axis=1), FLOOR))
        return np.concatenate([totals, np.log(np.maximum(held, FLOOR)).ravel()])


@dataclass(frozen=True, eq=False)
class Means:
    """Means of columns in each class, whatever their law; indicators of levels have shares as means.

    Parameters
    ----------
    columns
        float64 of shape (n_rows, n_columns).
    n_classes
        Number of classes.
    """

    columns: FloatArray
    n_classes: int

    def start(self) -> FloatArray:
        """Means of all rows."""
        return np.tile(self.columns.mean(axis=0), self.n_classes)

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Minus half of the squared distance, which the mean makes least."""
        apart = self.columns[:, None] - parameters.reshape(self.n_classes, -1)
        return np.asarray(-(apart**2).sum(axis=2) / 2)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Distances from the means."""
        apart = self.columns[rows, None] - parameters.reshape(self.n_classes, -1)
        found = np.eye(self.n_classes)[:, :, None] * apart[:, :, None, :]
        return found.reshape(len(apart), self.n_classes, -1)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Minus the rows of each class."""
        return -np.diag(np.repeat(expected.sum(axis=0), self.columns.shape[1]))

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Weighted means."""
        return np.asarray((expected.T @ self.columns / expected.sum(axis=0)[:, None]).ravel())


class Solution(NamedTuple):
    """Where the equations of the rows are solved, and the parts that errors are made of.

    Parameters
    ----------
    parameters
        float64 of shape (n_parameters,).
    scores
        float64 of shape (n_rows, n_parameters): what each row adds to the equations, with its weight.
    bread
        float64 of shape (n_parameters, n_parameters): how far the solution moves by a unit of the equations.
    by_errors
        float64 of shape (n_parameters, n_classes, n_classes): derivatives of the equations by the errors of
        classification.
    converged
        Whether steps have become nothing.
    """

    parameters: FloatArray
    scores: FloatArray
    bread: FloatArray
    by_errors: FloatArray
    converged: bool


@dataclass(frozen=True, eq=False)
class Assigned:
    """Rows that are assigned to classes.

    Parameters
    ----------
    shares
        float64 of shape (n_rows, n_classes): how much of a row is assigned to each class; rows sum to 1.
    errors
        float64 of shape (n_classes, n_classes): probability that a row of a true class, in rows, is assigned to each.
    weights
        float64 of shape (n_rows,), above 0.
    correction
        "bch" or "ml".
    """

    shares: FloatArray
    errors: FloatArray
    weights: FloatArray
    correction: str

    @cached_property
    def _inverse(self) -> FloatArray:
        return np.asarray(np.linalg.inv(self.errors), np.float64)

    def solve(self, design: Design) -> Solution:
        """Estimate the parameters of a design, by EM and Newton's steps.

        References
        ----------
        Bolck, Croon, Hagenaars (2004), Political Analysis 12(1); Vermunt (2010), Political Analysis 18(4); Bakk, Tekle,
        Vermunt (2013), Sociological Methodology 43(1).
        """
        parameters = design.update(design.start(), self.shares * self.weights[:, None])
        converged, total = False, float(self.weights.sum())
        for step in range(MAX_STEPS):
            updated = design.update(parameters, self._expect(design, parameters))
            if step < 3:
                parameters = updated
                continue
            score, curvature = self._measure(design, parameters)
            newton = invert_fall(curvature) @ score
            if abs(float(score @ newton)) <= DECREMENT * total:
                converged = True
                break
            by_newton, by_em = (
                self._score(design, each) for each in (parameters + newton, updated)
            )
            parameters = parameters + newton if by_newton > by_em else updated
        scores, by_errors = self._differentiate(design, parameters)
        bread = invert_fall(self._measure(design, parameters)[1])
        return Solution(parameters, scores, bread, by_errors, converged)

    def _expect(self, design: Design, parameters: FloatArray) -> FloatArray:
        """Classes expected of each row, times its weight: of BCH what undoes the errors, which may be below 0."""
        if self.correction == "bch":
            return np.asarray(self.shares @ self._inverse * self.weights[:, None])
        terms, marginals = self._mix(design.log_terms(parameters))
        return np.asarray(
            terms * ((self.shares / marginals) @ self.errors.T) * self.weights[:, None]
        )

    def _score(self, design: Design, parameters: FloatArray) -> float:
        """What the estimate makes largest."""
        logs = design.log_terms(parameters)
        if self.correction == "bch":
            return float((self._expect(design, parameters) * logs).sum())
        highest = logs.max(axis=1)
        _, marginals = self._mix(logs)
        chances = (self.shares * np.log(marginals)).sum(axis=1)
        return float(self.weights @ (highest + chances))

    def _mix(self, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Terms over their largest, and the probability of each assignment over the same: (n_rows, n_classes) each."""
        terms = np.exp(logs - logs.max(axis=1, keepdims=True))
        return terms, np.maximum(terms @ self.errors, FLOOR)

    def _measure(self, design: Design, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum of the scores, and second derivatives of what is made largest."""
        expected = self._expect(design, parameters)
        curvature, score = design.curve(parameters, expected), np.zeros(parameters.size)
        for rows, slopes in self._iterate(design, parameters):
            score += np.einsum("it,itp->p", expected[rows], slopes)
            if self.correction == "bch":
                continue
            flat = slopes.reshape(-1, parameters.size)
            curvature += (flat * expected[rows].reshape(-1, 1)).T @ flat
            terms, marginals = self._mix(design.log_terms(parameters)[rows])
            for column, errors in enumerate(self.errors.T):
                own = terms * errors / marginals[:, column, None]
                mean = np.einsum("it,itp->ip", own, slopes)
                held = self.shares[rows, column] * self.weights[rows]
                curvature -= (mean * held[:, None]).T @ mean
        return score, curvature

    def _differentiate(
        self, design: Design, parameters: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of the rows, and their sum's derivatives by the classification errors."""
        expected, n_classes = self._expect(design, parameters), len(self.errors)
        scores = np.empty((len(expected), parameters.size))
        by_errors = np.zeros((parameters.size, n_classes, n_classes))
        for rows, slopes in self._iterate(design, parameters):
            scores[rows] = np.einsum("it,itp->ip", expected[rows], slopes)
            if self.correction == "bch":
                by_class = np.einsum("it,iup->ptu", expected[rows], slopes)
                by_errors -= by_class @ self._inverse.T
                continue
            terms, marginals = self._mix(design.log_terms(parameters)[rows])
            for column, errors in enumerate(self.errors.T):
                shares = terms / marginals[:, column, None]
                mean = np.einsum("it,itp->ip", shares * errors, slopes)
                held = shares * (self.shares[rows, column] * self.weights[rows])[:, None]
                by_errors[:, :, column] += np.einsum("it,itp->pt", held, slopes - mean[:, None])
        return scores, by_errors

    def _iterate(
        self, design: Design, parameters: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Derivatives of the terms of some rows at a time."""
        step = max(1, BATCH_NUMBERS // (len(self.errors) * parameters.size))
        for start in range(0, len(self.shares), step):
            rows = slice(start, min(start + step, len(self.shares)))
            yield rows, design.slopes(parameters, rows)


def invert_fall(curvature: FloatArray) -> FloatArray:
    """Inverse of minus a curvature, in the directions in which it falls; nothing moves along the others."""
    scale = np.sqrt(np.maximum(np.abs(np.diagonal(curvature)), FLOOR))
    values, vectors = np.linalg.eigh(-curvature / scale / scale[:, None])
    kept = values > NULL_SHARE * max(float(values.max(initial=0.0)), FLOOR)
    roots = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    return np.asarray(roots @ roots.T)


def _log_shares(logits: FloatArray) -> FloatArray:
    """Logarithms of the shares that logits stand for, along the last axis."""
    raised = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(raised - np.log(np.exp(raised).sum(axis=-1, keepdims=True)))


def _curve_shares(logits: FloatArray, total: float) -> FloatArray:
    """Second derivatives of a log-probability by its logits, times a number of samples."""
    shares = np.exp(_log_shares(logits))
    return np.asarray(total * (np.outer(shares, shares) - np.diag(shares)))
