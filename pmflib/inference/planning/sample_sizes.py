"""Sample sizes: numbers of rows for an error of answers or factors, from a pilot or by the form of the theorems."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import Interval, OneOf, at_least, check
from pmflib.base.errors import PmfError, RankError
from pmflib.em.block_source import BlocksInMemory
from pmflib.information.covariance import PMFCovariance
from pmflib.information.kinds import open_single_fit
from pmflib.information.latent_classes import ClassInformation
from pmflib.model import JointPMF
from pmflib.model.sampling import sample_codes

Asked: TypeAlias = Literal["answers", "factors"]

SCORES = 1 << 32
"""Products of scores summed for the information of drawn rows: some seconds."""
MOST_ROWS = 20_000
LEAST_ROWS = 1_000
"""Limits of the number of drawn rows, whose information is per row."""
BOUNDS = {"samples": 1.7, "pairs": 18.0}
"""Constants of `bound_sample_size`, from ``python -m benchmarks.fitting.sample_sizes --bound``."""


@dataclass(frozen=True)
class SampleSize:
    """Number of rows for an error, and the error for a number of rows.

    Parameters
    ----------
    of
        What has the error: "answers" or "factors".
    of_one_row
        Root mean square standard error times the square root of the number of rows.
    accuracy
        Error asked for.
    n_undetermined
        Number of probabilities that no number of rows determines with these gaps; they are left out.
    """

    of: Asked
    of_one_row: float
    accuracy: float
    n_undetermined: int

    @property
    def n_rows(self) -> int:
        """Number of rows for the accuracy, at least 1."""
        return max(1, math.ceil((self.of_one_row / self.accuracy) ** 2))

    def find_error(self, n_rows: int) -> float:
        """Root mean square error that a number of rows, at least 1, leaves."""
        check(Interval(whole=True), n_rows=n_rows)
        return self.of_one_row / math.sqrt(max(n_rows, 1))

    def __str__(self) -> str:
        """Return a sentence."""
        left_out = (
            f", {self.n_undetermined:,} undetermined ones left out" if self.n_undetermined else ""
        )
        return f"{self.n_rows:,} samples for an error of {self.accuracy:g} of {self.of}{left_out}"


def sample_size(
    model: JointPMF,
    accuracy: float,
    *,
    observed: float | FloatArray = 1.0,
    of: Asked = "answers",
    seed: int = 0,
) -> SampleSize:
    """Find the number of rows from which a model like this one is learnt with a given error.

    Parameters
    ----------
    model
        Latent classes fitted to a pilot, or planned: their Fisher information is that of one row of the survey. For
        labels, a variable is a worker and a level a label, so that factors are confusion matrices and rows are tasks.
    accuracy
        Root mean square standard error, in (0, 1).
    observed
        Chance that an answer is observed, in (0, 1]: a number, or float64 of shape (n_variables,). Answers are missing
        at random.
    of
        "answers": P(a variable | another), over all pairs of variables, conditions weighted by their probability; the
        shares of the levels if there is one variable. "factors": all entries of the factors.
    seed
        Seed of the rows drawn from the model.

    Returns
    -------
    The number of rows, and the error of any other number.

    Raises
    ------
    PmfError
        If the model is an average, or has traits or a forest; accuracy, observed or of is out of range.
    RankError
        If nothing is determined.
    MemoryPlanError
        If prior and factors have more than 2,000 entries.

    Notes
    -----
    Errors are asymptotic: they hold where the states are found, and the error is small beside the probabilities. A
    pilot that is too small to separate its states promises too little; compare two of them.

    References
    ----------
    Louis (1982), JRSS B 44(2), for the information of incomplete data. The rate S ~ 1 / (p accuracy^2) is that of
    theorems 3 and 4 of Ibrahim and Fu (2021), "Recovering Joint Probability of Discrete Random Variables From Pairwise
    Marginals", whose constants are bounds: `bound_sample_size`.
    """
    information = open_single_fit(model)
    n_entries = model.rank * (1 + model.schema.n_levels)
    if not isinstance(information, ClassInformation) or information.n_entries != n_entries:
        raise PmfError(
            "model has traits or a forest; sample sizes are of latent classes: fit_em with dependence='none'"
        )
    check_accuracy(accuracy)
    check(OneOf(("answers", "factors")), of=of)
    n_rows = min(MOST_ROWS, max(LEAST_ROWS, SCORES // n_entries**2))
    offsets = model.schema.offsets
    codes = sample_codes(
        model.prior, model.factors, offsets, n_rows, np.random.default_rng(seed), observed=observed
    )
    source = BlocksInMemory.cut(DenseBlock(codes), offsets, model.rank)
    solved = information.invert(information.gather(source))
    variances, weights = _find_variances(model, solved, of)
    is_known = np.isfinite(variances)
    if not weights[is_known].any():
        raise RankError(
            f"observed = {np.mean(observed):g} leaves nothing determined of a model of rank {model.rank}: lower the "
            "rank, or have more answers observed"
        )
    one = n_rows * np.average(variances[is_known], weights=weights[is_known])
    return SampleSize(of, math.sqrt(one), float(accuracy), int(np.sum(~is_known)))


def _find_variances(
    model: JointPMF, solved: PMFCovariance, of: Asked
) -> tuple[FloatArray, FloatArray]:
    """Variances of the probabilities asked for, NaN where undetermined, and their weights."""
    n_levels, schema = len(model.factors), model.schema
    if of == "factors":
        by_state = solved.spread()[0][model.rank :]
        return by_state**2, np.ones(by_state.size)
    if schema.n_variables == 1:
        return solved.spread(_derive_answers(model, None))[0] ** 2, np.ones(n_levels)
    found, weights = [], []
    shares = model.factors @ model.prior
    for variable in range(schema.n_variables):
        rows = schema.rows_of(variable)
        for row in range(rows.start, rows.stop):
            if shares[row] > 0:
                jacobian = np.delete(_derive_answers(model, row), rows, axis=0)
                found.append(solved.spread(jacobian)[0] ** 2)
                weights.append(np.full(len(jacobian), shares[row]))
    return np.concatenate(found), np.concatenate(weights)


def _derive_answers(model: JointPMF, given: int | None) -> FloatArray:
    """Derivatives of P(each level | a given level) by prior and factors, those of the states first.

    Returns
    -------
    float64 of shape (n_levels, rank * (1 + n_levels)). Rows of the given level's own variable have no meaning.
    """
    prior, factors = model.prior, model.factors
    n_levels, rank = factors.shape
    at = np.ones(rank) if given is None else factors[given]
    share = float(prior @ at)
    answers = factors @ (prior * at) / share
    by_prior = (factors - answers[:, None]) * at / share
    by_factors = np.zeros((n_levels, rank, n_levels))
    own = np.arange(n_levels)
    by_factors[own, :, own] = prior * at / share
    if given is not None:
        by_factors[:, :, given] += prior * (factors - answers[:, None]) / share
    return np.concatenate([by_prior, by_factors.reshape(n_levels, -1)], axis=1)


def bound_sample_size(
    n_variables: int,
    n_levels: int,
    rank: int,
    accuracy: float,
    *,
    observed: float = 1.0,
    learnt_from: Literal["samples", "pairs"] = "samples",
    failure: float = 0.05,
) -> int:
    """Bound the number of rows for an error of every entry of the factors, before any data are there.

    Parameters
    ----------
    n_variables, n_levels, rank
        Numbers of variables, of levels of each, and of equally probable latent states, at least 1.
    accuracy
        Largest error of an entry, in (0, 1).
    observed
        Chance that an answer is observed, in (0, 1].
    learnt_from
        "samples": EM, or another fit to samples. "pairs": CNMF-SPA, CNMF-OPT or SymNMF, which see pairs only.
    failure
        Chance that an entry is further off, in (0, 1).

    Returns
    -------
    c F log(12 N F I / failure) / (p accuracy^2) rows, with p squared for pairs, and a c for either that was sufficient
    in 95 % of planted models whose columns are uniform on the simplex. States that are harder to tell apart need more:
    fit a pilot, and ask `sample_size`.

    References
    ----------
    Ibrahim and Fu (2021), "Recovering Joint Probability of Discrete Random Variables From Pairwise Marginals": theorem
    4 for samples, with 48 in place of c; theorem 3 for the rate of pairs.
    """
    check(at_least(1, whole=True), n_variables=n_variables, n_levels=n_levels, rank=rank)
    check_accuracy(accuracy)
    check(Interval(0, 1, "right"), observed=observed)
    check(Interval(0, 1, "neither"), failure=failure)
    pairs = observed if learnt_from == "samples" else observed**2
    entries = math.log(12 * n_variables * rank * n_levels / failure)
    return math.ceil(BOUNDS[learnt_from] * rank * entries / (pairs * accuracy**2))


def check_accuracy(accuracy: float) -> None:
    """Check that an error of probabilities is in (0, 1)."""
    check(Interval(0, 1, "neither", "an error of probabilities, as 0.02"), accuracy=accuracy)
