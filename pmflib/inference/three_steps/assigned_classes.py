"""Bias-corrected three-step estimation: means, PMFs and logits by class, given classification errors.

Each row is assigned to classes, and the probabilities of assignment given the true class are known. Two corrections use
them: weights that undo the errors on average (BCH), and the likelihood of the assignments (ML). Both solve estimating
equations that are sums over rows, whose terms also give standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg

from pmflib.base.arrays import FLOOR, FloatArray, IntArray

MAX_STEPS = 500
"""Number of steps after which an estimate has not converged; EM and Newton's method usually take a few tens."""
DECREMENT = 1e-12
"""Convergence threshold: squared step per sample, in standard errors on the scale of single rows."""
NULL_SHARE = 1e-9
"""Relative curvature below which a direction has none; constraints such as sums of 1 leave 1e-16."""
LEAST_VARIANCE = 1e-6
"""Smallest variance of an outcome within a class, relative to its total variance, so that no class collapses to a
single row.
"""
LEAST_INFORMATION = 1e-8
"""Least information of a direction of logits relative to that of its covariates: the mean of p (1 - p). Fits stop at
1e-9 to 1e-12 where a covariate separates classes; below 100 million rows no such probability can be estimated.
"""
BATCH_NUMBERS = 1 << 21
"""Number of row derivatives in memory at a time."""


class Design(Protocol):
    """Model of the third step: log-probability terms of each row and class, and their derivatives."""

    def start(self) -> FloatArray:
        """Return starting values of the parameters (n_parameters,)."""

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Return the log-probability of each class and of the row's outcome in it: (n_rows, n_classes)."""

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Return derivatives of these terms with respect to the parameters: (n_taken, n_classes, n_parameters)."""

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return second derivatives of the terms, summed over rows and classes with weights ``expected``."""

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return parameters that increase the sum of the terms weighted by the expected classes."""


@dataclass(frozen=True, eq=False)
class Logits:
    """Multinomial logit of the classes on covariates; one class is redundant in the coefficients.

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
        """Start with equal class sizes."""
        return np.zeros(self.n_classes * self.covariates.shape[1])

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Return the log-probabilities of the classes."""
        return _log_shares(self.covariates @ parameters.reshape(self.n_classes, -1).T)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Return indicator minus probability, times the covariates."""
        part = Logits(self.covariates[rows], self.n_classes)
        residuals = np.eye(self.n_classes) - np.exp(part.log_terms(parameters))[:, None]
        found = residuals[..., None] * part.covariates[:, None, None, :]
        return np.asarray(found).reshape(len(part.covariates), self.n_classes, -1)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return the negative covariance of class indicators times products of covariates."""
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
        """Take a Newton step, halved until the objective increases."""
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

    def find_separated(self, parameters: FloatArray, weights: FloatArray, base: int) -> FloatArray:
        """Find the directions in which coefficients are infinite, as the covariates separate classes.

        Parameters
        ----------
        parameters
            Estimated coefficients.
        weights
            float64 of shape (n_rows,).
        base
            Class whose coefficients stay 0.

        Returns
        -------
        float64 of shape (n_directions, n_classes, n_covariates); no direction if all coefficients are finite.
        """
        n_classes, n_covariates = self.n_classes, self.covariates.shape[1]
        others = np.delete(np.arange(n_classes), base)
        places = (others[:, None] * n_covariates + np.arange(n_covariates)).ravel()
        known = -self.curve(parameters, weights[:, None])[np.ix_(places, places)]
        most = np.kron(
            np.eye(others.size), (self.covariates * weights[:, None]).T @ self.covariates
        )
        shares, vectors = scipy.linalg.eigh(known, most)
        found = np.zeros((int((shares < LEAST_INFORMATION).sum()), n_classes, n_covariates))
        found[:, others] = vectors.T[shares < LEAST_INFORMATION].reshape(
            -1, others.size, n_covariates
        )
        return found


@dataclass(frozen=True, eq=False)
class NormalOutcome:
    """Normally distributed outcome, with a mean and variance per class, and class sizes.

    Parameters are logits of the sizes, means, and log-variances, (n_classes,) each.

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
        """Start with identical classes."""
        same = np.ones(self.n_classes)
        spread = np.log(max(self.outcome.var(), FLOOR))
        return np.concatenate([0 * same, self.outcome.mean() * same, spread * same])

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Return the log size of the class plus the log-density of the outcome in it."""
        logits, means, spreads = parameters.reshape(3, -1)
        squares = (self.outcome[:, None] - means) ** 2 / np.exp(spreads)
        return np.asarray(_log_shares(logits) - (np.log(2 * np.pi) + spreads + squares) / 2)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Return derivatives with respect to logits, means, and log-variances."""
        logits, means, spreads = parameters.reshape(3, -1)
        apart, own = self.outcome[rows, None] - means, np.eye(self.n_classes)
        of_sizes = np.broadcast_to(
            own - np.exp(_log_shares(logits)), (*apart.shape, self.n_classes)
        )
        of_means = own * (apart / np.exp(spreads))[..., None]
        of_spreads = own * ((apart**2 / np.exp(spreads) - 1) / 2)[..., None]
        return np.concatenate([of_sizes, of_means, of_spreads], axis=2)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return one block for the sizes, and one for the means and log-variances of each class."""
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
        """Return sizes, weighted means and weighted variances."""
        totals = np.maximum(expected.sum(axis=0), FLOOR)
        means = self.outcome @ expected / totals
        squares = (expected * (self.outcome[:, None] - means) ** 2).sum(axis=0) / totals
        least = max(LEAST_VARIANCE * float(self.outcome.var()), FLOOR)
        return np.concatenate([np.log(totals), means, np.log(np.maximum(squares, least))])


@dataclass(frozen=True, eq=False)
class LevelOutcome:
    """Categorical outcome, with a PMF per class, and class sizes.

    Parameters are logits of the sizes, (n_classes,), and of the levels, (n_classes, n_levels).

    Parameters
    ----------
    codes
        int64 of shape (n_rows,), in [0, n_levels).
    n_levels, n_classes
        Number of levels and of classes.
    """

    codes: IntArray
    n_levels: int
    n_classes: int

    def start(self) -> FloatArray:
        """Start with identical classes."""
        return np.zeros(self.n_classes * (1 + self.n_levels))

    def split(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logarithms of the sizes and of the PMFs, (n_classes, n_levels)."""
        levels = parameters[self.n_classes :].reshape(self.n_classes, -1)
        return _log_shares(parameters[: self.n_classes]), _log_shares(levels)

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Return the log size of the class plus the log-probability of the level in it."""
        sizes, levels = self.split(parameters)
        return np.asarray(sizes + levels.T[self.codes])

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Return indicators of the class, or of the level in the class, minus their probabilities."""
        sizes, levels = self.split(parameters)
        codes, own = self.codes[rows], np.eye(self.n_classes)
        of_sizes = np.broadcast_to(own - np.exp(sizes), (codes.size, *own.shape))
        residuals = np.eye(self.n_levels)[codes][:, None] - np.exp(levels)
        of_levels = own[:, :, None] * residuals[:, :, None, :]
        return np.concatenate([of_sizes, of_levels.reshape(codes.size, self.n_classes, -1)], axis=2)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return one block for the sizes, and one for the levels of each class."""
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
        """Return sizes, and weighted shares of the levels."""
        held = np.array(
            [np.bincount(self.codes, each, minlength=self.n_levels) for each in expected.T]
        )
        totals = np.log(np.maximum(held.sum(axis=1), FLOOR))
        return np.concatenate([totals, np.log(np.maximum(held, FLOOR)).ravel()])


@dataclass(frozen=True, eq=False)
class Means:
    """Means of columns by class, without distributional assumptions; the mean of a level's indicator is its share.

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
        """Start from the overall means."""
        return np.tile(self.columns.mean(axis=0), self.n_classes)

    def log_terms(self, parameters: FloatArray) -> FloatArray:
        """Return minus half of the squared distance, which the mean minimises."""
        apart = self.columns[:, None] - parameters.reshape(self.n_classes, -1)
        return np.asarray(-(apart**2).sum(axis=2) / 2)

    def slopes(self, parameters: FloatArray, rows: slice) -> FloatArray:
        """Return distances from the means."""
        apart = self.columns[rows, None] - parameters.reshape(self.n_classes, -1)
        found = np.eye(self.n_classes)[:, :, None] * apart[:, :, None, :]
        return found.reshape(len(apart), self.n_classes, -1)

    def curve(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return minus the number of rows of each class."""
        return -np.diag(np.repeat(expected.sum(axis=0), self.columns.shape[1]))

    def update(self, parameters: FloatArray, expected: FloatArray) -> FloatArray:
        """Return weighted means."""
        return np.asarray((expected.T @ self.columns / expected.sum(axis=0)[:, None]).ravel())


class Solution(NamedTuple):
    """Solution of the estimating equations, with the components of its standard errors.

    Parameters
    ----------
    parameters
        float64 of shape (n_parameters,).
    scores
        float64 of shape (n_rows, n_parameters): contribution of each row to the equations, weighted.
    bread
        float64 of shape (n_parameters, n_parameters): derivative of the solution with respect to the equations.
    by_errors
        float64 of shape (n_parameters, n_classes, n_classes): derivatives of the equations with respect to the
        classification errors.
    converged
        Whether the iteration converged.
    """

    parameters: FloatArray
    scores: FloatArray
    bread: FloatArray
    by_errors: FloatArray
    converged: bool


@dataclass(frozen=True, eq=False)
class Assigned:
    """Rows assigned to classes with error.

    Parameters
    ----------
    shares
        float64 of shape (n_rows, n_classes): assignment of each row to the classes; rows sum to 1.
    errors
        float64 of shape (n_classes, n_classes): probability of each assignment (columns) given the true class (rows).
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

    def solve(
        self, design: Design, on_step: Callable[[int, int, str], None] = lambda *_: None
    ) -> Solution:
        """Estimate the parameters of a design by EM and Newton's method.

        Parameters
        ----------
        design
            The design.
        on_step
            Called before each step with its number, their maximum, and what it is.

        References
        ----------
        Bolck, Croon, Hagenaars (2004), Political Analysis 12(1); Vermunt (2010), Political Analysis 18(4); Bakk, Tekle,
        Vermunt (2013), Sociological Methodology 43(1).
        """
        parameters = design.update(design.start(), self.shares * self.weights[:, None])
        converged, total = False, float(self.weights.sum())
        for step in range(MAX_STEPS):
            on_step(step, MAX_STEPS, "steps of Newton's method at most")
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
        """Compute the weighted expected classes of each row; those of BCH may be negative."""
        if self.correction == "bch":
            return np.asarray(self.shares @ self._inverse * self.weights[:, None])
        terms, marginals = self._mix(design.log_terms(parameters))
        return np.asarray(
            terms * ((self.shares / marginals) @ self.errors.T) * self.weights[:, None]
        )

    def _score(self, design: Design, parameters: FloatArray) -> float:
        """Compute the objective function."""
        logs = design.log_terms(parameters)
        if self.correction == "bch":
            return float((self._expect(design, parameters) * logs).sum())
        highest = logs.max(axis=1)
        _, marginals = self._mix(logs)
        chances = (self.shares * np.log(marginals)).sum(axis=1)
        return float(self.weights @ (highest + chances))

    def _mix(self, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return terms minus their maximum, and assignment probabilities on that scale: (n_rows, n_classes)."""
        terms = np.exp(logs - logs.max(axis=1, keepdims=True))
        return terms, np.maximum(terms @ self.errors, FLOOR)

    def _measure(self, design: Design, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the gradient and the Hessian of the objective."""
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
        """Compute the scores of the rows, and derivatives of their sum in the classification errors."""
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
        """Yield derivatives of the terms for batches of rows."""
        step = max(1, BATCH_NUMBERS // (len(self.errors) * parameters.size))
        for start in range(0, len(self.shares), step):
            rows = slice(start, min(start + step, len(self.shares)))
            yield rows, design.slopes(parameters, rows)


class Penalised(Assigned):
    """Rows assigned to classes with error, with Jeffreys' prior of a logit, under which all coefficients are finite.

    The prior adds to the expected classes of a row half of its leverage in each class, as in Firth's logit.

    References
    ----------
    Firth (1993), Biometrika 80(1); Heinze, Schemper (2002), Statistics in Medicine 21(16); Kosmidis, Firth (2011),
    Biometrika 98(3), for several classes.
    """

    def _expect(self, design: Design, parameters: FloatArray) -> FloatArray:
        """Compute the weighted expected classes of each row, with what the prior adds."""
        shares = np.exp(design.log_terms(parameters)) * self.weights[:, None]
        inverse = invert_fall(design.curve(parameters, shares))
        leverages = np.empty(shares.shape)
        for rows, slopes in self._iterate(design, parameters):
            leverages[rows] = shares[rows] * np.einsum("itp,itp->it", slopes @ inverse, slopes)
        return super()._expect(design, parameters) + leverages / 2

    def _score(self, design: Design, parameters: FloatArray) -> float:
        """Compute the objective function with the logarithm of the prior."""
        shares = np.exp(design.log_terms(parameters)) * self.weights[:, None]
        values = np.linalg.eigvalsh(-design.curve(parameters, shares))
        # as many are 0 as one class has coefficients
        known = values[values.size // len(self.errors) :]
        prior = float(np.log(np.maximum(known, FLOOR)).sum()) / 2
        return super()._score(design, parameters) + prior


def invert_fall(curvature: FloatArray) -> FloatArray:
    """Invert a negated curvature in the directions in which it is negative; other directions are set to 0."""
    scale = np.sqrt(np.maximum(np.abs(np.diagonal(curvature)), FLOOR))
    values, vectors = np.linalg.eigh(-curvature / scale / scale[:, None])
    kept = values > NULL_SHARE * max(float(values.max(initial=0.0)), FLOOR)
    roots = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    return np.asarray(roots @ roots.T)


def _log_shares(logits: FloatArray) -> FloatArray:
    """Compute the log-softmax of logits along the last axis."""
    raised = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(raised - np.log(np.exp(raised).sum(axis=-1, keepdims=True)))


def _curve_shares(logits: FloatArray, total: float) -> FloatArray:
    """Compute second derivatives of a log-probability with respect to its logits, times a number of samples."""
    shares = np.exp(_log_shares(logits))
    return np.asarray(total * (np.outer(shares, shares) - np.diag(shares)))
