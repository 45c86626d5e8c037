"""Diagnostics of pair counts for a model: support, rank above noise, conditioning and identifiability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, repeat_blocks, spread_pairs
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import check_schemas
from pmflib.counts.marginals import Marginals, estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.information.covariance import find_covariance
from pmflib.information.kinds import open_information
from pmflib.information.latent_classes import ClassInformation
from pmflib.information.parameter_errors import name_parameters
from pmflib.model import JointPMF
from pmflib.model.mixture import Mixture
from pmflib.papers.pair_matrix import cut_observed_pairs

NEAR_ZERO = 0.01
"""A level (nearly) rules out a state if the state's posterior given the level is below this."""

MAX_HALVINGS = 8
"""Maximum number of halvings of the folds for estimating the noise, which is their median."""
LEAST_SHARE = 0.01
"""Fraction of a pair's mass, divided evenly among its cells, below which a cell is nearly ruled out."""
MOST_WORK = 1e10
"""Work, as cells of pairs times squared entries of the model, up to which identifiability from pairs is computed: a few
seconds.
"""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Diagnostics of a model and of the counts to which it was fitted.

    Parameters
    ----------
    n_pairs, n_observed
        Number of pairs of variables, and number of observed pairs.
    least_support, median_support
        Number of samples per pair: minimum over observed pairs, median over all pairs; 0 without pairs.
    singular_values
        float64, decreasing: singular values of the marginals across a split of the variables, with cells divided by the
        square roots of their margins.
    noise
        Largest singular value expected from sampling noise; 0 if it cannot be estimated.
    effective_rank
        Number of singular values above the noise, at least 1: the number of states that pairs can distinguish. None
        with a single fold, which does not allow an estimate of the noise.
    rank
        Number of latent states of the model.
    n_parameters, n_moments
        Number of free parameters of the model, and of independent moments in the observed pairs.
    condition_numbers
        Condition numbers of the factors on both sides of the split, the second times the prior; infinite if states
        coincide.
    purity
        float64 of shape (rank,): largest posterior of each state given a single level. Values near 1 for all states
        indicate separability, which CNMF-SPA assumes.
    n_ruled_out
        int64 of shape (rank,): number of levels that (nearly) rule out each state. At least rank - 1 for all states is
        necessary for the factors to be sufficiently scattered.
    warnings
        One sentence for each potential problem.
    rank_warnings
        Warnings that there may be too many states; not applicable if held-out samples have chosen the rank.
    pair_warnings
        What pairs alone do not determine, however many samples there are; not applicable to a model refined on samples.
    """

    n_pairs: int
    n_observed: int
    least_support: int
    median_support: float
    singular_values: FloatArray
    noise: float
    effective_rank: int | None
    rank: int
    n_parameters: int
    n_moments: int
    condition_numbers: tuple[float, float]
    purity: FloatArray
    n_ruled_out: IntArray
    warnings: tuple[str, ...]
    rank_warnings: tuple[str, ...] = ()
    pair_warnings: tuple[str, ...] = ()

    @property
    def coverage(self) -> float:
        """Return the share of pairs of variables that were observed; 1 without pairs."""
        return self.n_observed / self.n_pairs if self.n_pairs else 1.0

    def to_json(self) -> dict[str, object]:
        """Return a summary in plain JSON types, without the arrays."""
        return {
            "coverage": self.coverage,
            "least_support": self.least_support,
            "median_support": self.median_support,
            "effective_rank": self.effective_rank,
            "parameters": self.n_parameters,
            "moments": self.n_moments,
            "warnings": list(self.warnings),
            "rank_warnings": list(self.rank_warnings),
        }

    def __str__(self) -> str:
        known = "unknown" if self.effective_rank is None else f"{self.effective_rank}"
        lines = [
            f"pairs observed     {self.n_observed} of {self.n_pairs} ({self.coverage:.1%}); support "
            f"least {self.least_support}, median {self.median_support:g}",
            f"effective rank     {known} (noise {self.noise:.3g}); the model has {self.rank} states",
            f"parameters         {self.n_parameters} free, from {self.n_moments} free numbers in the pairs",
            "condition numbers  " + " and ".join(f"{each:.3g}" for each in self.condition_numbers),
            f"purest levels      posterior {self.purity.min():.2f} to {self.purity.max():.2f}; "
            f"states ruled out by {self.n_ruled_out.min()} to {self.n_ruled_out.max()} levels",
        ]
        warnings = (*self.warnings, *self.pair_warnings)
        return "\n".join([*lines, *(f"warning: {each}" for each in warnings)])


def diagnose(counts: PairCounts, model: JointPMF) -> Diagnosis:
    """Diagnose how well counts support the states of a model.

    Parameters
    ----------
    counts
        Counts of the training samples, with several folds for an estimate of the noise.
    model
        Model with the same schema as the counts.

    Raises
    ------
    SchemaError
        If the schemas differ.

    Notes
    -----
    Noise is estimated by comparing halves of the folds: half their difference has the standard error of the whole. The
    cost is a few singular value decompositions of the marginals; no pass over the samples is needed. Pairs alone
    determine a model only up to a rotation of its states, unless enough levels rule out states;
    `pmflib.inference.standard_errors` computes standard errors of parameters from the samples.

    References
    ----------
    Huang, Sidiropoulos and Swami (2014), IEEE Transactions on Signal Processing 62(1), for the condition on levels that
    rule out states.
    """
    check_schemas(model=model, counts=counts)
    counts = counts.to_samples()
    marginals = Marginals.from_counts(counts)
    upper = np.triu_indices(marginals.observed.shape[0], 1)
    support, observed = marginals.support[upper], marginals.observed[upper]
    split = cut_observed_pairs(np.diff(marginals.offsets), marginals.observed)
    values, noise, effective_rank = _measure_rank(counts, marginals, split)
    rows = repeat_blocks(split, marginals.offsets)
    conditions = (_condition(model.factors[rows]), _condition(model.factors[~rows] * model.prior))
    posteriors = _invert(model)
    n_ruled_out = np.count_nonzero(posteriors < NEAR_ZERO, axis=0)
    n_moments = count_moments(marginals)
    rank_warnings = _warn_of_rank(model, effective_rank, n_moments)
    return Diagnosis(
        n_pairs=support.size,
        n_observed=int(observed.sum()),
        least_support=int(support[observed].min(initial=support.max(initial=0))),
        median_support=float(np.median(support)) if support.size else 0.0,
        singular_values=values,
        noise=noise,
        effective_rank=effective_rank,
        rank=model.rank,
        n_parameters=model.n_parameters,
        n_moments=n_moments,
        condition_numbers=conditions,
        purity=posteriors.max(axis=0),
        n_ruled_out=n_ruled_out,
        warnings=(*rank_warnings, *_warn(marginals, model)),
        rank_warnings=rank_warnings,
        pair_warnings=_warn_of_pairs(marginals, model, n_ruled_out),
    )


def count_moments(marginals: Marginals) -> int:
    """Return the number of independent moments in the observed marginals."""
    free = np.diff(marginals.offsets) - 1
    seen = np.diagonal(marginals.support) > 0
    pairs = np.triu(np.outer(free, free) * marginals.observed, 1)
    return int(free[seen].sum()) + int(pairs.sum())


def _measure_rank(
    counts: PairCounts, marginals: Marginals, split: BoolArray
) -> tuple[FloatArray, float, int | None]:
    """Return the singular values across the split, the largest one of the noise, and the number above it."""
    if not marginals.observed.any():
        return np.zeros(0), 0.0, 1
    singles = estimate_singles(counts)
    scaled = _scale(marginals, singles, split)
    values = np.asarray(np.linalg.svd(scaled, compute_uv=False), np.float64)
    filled = np.flatnonzero(counts.n_rows > 0)
    noises = []
    for pattern in range(1, min(len(filled), MAX_HALVINGS + 1)):
        # balanced, distinct halves, as the rows of a Hadamard matrix
        side = np.array([(index & pattern).bit_count() % 2 for index in range(len(filled))])
        halves = [
            _scale(Marginals.from_counts(counts.select_folds(filled[side == s])), singles, split)
            for s in (0, 1)
        ]
        noises.append(float(np.linalg.norm(halves[0] - halves[1], 2)) / 2)
    if not noises:
        return values, 0.0, None
    noise = float(np.median(noises))
    return values, noise, max(1, int(np.sum(values > noise)))


def _scale(marginals: Marginals, singles: FloatArray, split: BoolArray) -> FloatArray:
    """Return marginals across the split, divided by the square roots of their margins to make the noise homogeneous."""
    observed = spread_pairs(marginals.observed, marginals.offsets)
    rows = repeat_blocks(split, marginals.offsets)
    across = np.ix_(rows, ~rows)
    independent = np.outer(singles, singles)
    scaled: FloatArray = (np.where(observed, marginals.pairs, independent) / np.sqrt(independent))[
        across
    ]
    return scaled


def _condition(matrix: FloatArray) -> float:
    """Return the condition number; infinite with more columns than rows."""
    if matrix.shape[0] < matrix.shape[1]:
        return np.inf
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else np.inf


def _invert(model: JointPMF) -> FloatArray:
    """Return the posterior of the states given each level: (n_levels, rank); the prior for levels of probability 0."""
    joint = model.factors * model.prior
    totals = joint.sum(axis=1, keepdims=True)
    return np.where(totals > 0, joint / np.where(totals > 0, totals, 1.0), model.prior)


def _warn_of_rank(model: JointPMF, effective_rank: int | None, n_moments: int) -> tuple[str, ...]:
    """Warn if the pairs support fewer states."""
    warnings = []
    if effective_rank is not None and model.rank > effective_rank:
        warnings.append(
            f"the model has {model.rank} states, the pairs distinguish {effective_rank} from noise: states beyond "
            "rest on the samples' higher order, or on chance; compare held-out likelihoods"
        )
    if model.n_parameters > n_moments:
        warnings.append(
            f"{model.n_parameters} free parameters are more than the {n_moments} free numbers in the observed pairs: "
            "pairs alone cannot settle them; lower the rank, or refine by EM on the samples"
        )
    return tuple(warnings)


def _warn(marginals: Marginals, model: JointPMF) -> tuple[str, ...]:
    """Warn about the data."""
    warnings = []
    unseen = [
        name
        for name, seen in zip(model.schema.names, np.diagonal(marginals.support), strict=True)
        if not seen
    ]
    if unseen:
        warnings.append(
            f"{len(unseen)} variables were never observed ({', '.join(unseen[:5])}): their PMFs are uniform"
        )
    n_variables = len(marginals.observed)
    n_missing = n_variables * (n_variables - 1) // 2 - int(marginals.observed.sum()) // 2
    if n_missing:
        warnings.append(
            f"{n_missing} pairs were never observed together: the model fills them by itself"
        )
    return tuple(warnings)


def _warn_of_pairs(marginals: Marginals, model: JointPMF, n_ruled_out: IntArray) -> tuple[str, ...]:
    """Warn about parameters that exact pairs would not determine at the model."""
    is_plain = open_information(model).has_free_factors
    information = ClassInformation(model)
    entries, starts = information.entries, information.starts
    # at least as large as the entries, which are raised if they are 0
    opened = entries[: model.rank], entries[model.rank :].reshape(model.rank, -1).T
    block = _list_cells(marginals, Mixture(*opened, model.schema))
    if not is_plain or model.rank == 1 or block.n_rows * entries.size**2 > MOST_WORK:
        return ()
    found = information.sum_information([block])
    solved = find_covariance(entries, starts, found, np.zeros(entries.size))
    is_open = ~solved.spread()[1]
    factors = is_open[model.rank :].reshape(model.rank, -1).T
    names = name_parameters(model.schema, is_open[: model.rank], factors)
    if not names:
        return ()
    return (
        f"pairs alone do not determine {names}: there are {solved.loose.shape[1]} directions in which no pair changes, "
        f"and states are ruled out by {n_ruled_out.min()} levels or more; refine the model on the samples by fit_em, "
        "and ask standard_errors(model, samples)",
    )


def _list_cells(marginals: Marginals, model: Mixture) -> DenseBlock:
    """Return the cells of all observed pairs as weighted samples of two variables."""
    offsets, pairs = marginals.offsets, model.find_pairs()
    codes, weights = [], []
    for first, second in np.argwhere(np.triu(marginals.observed, 1)).tolist():
        own = pairs[offsets[first] : offsets[first + 1], offsets[second] : offsets[second + 1]]
        rows = np.full((own.size, offsets.size - 1), -1, np.int16)
        rows[:, first], rows[:, second] = (each.ravel() for each in np.indices(own.shape))
        codes.append(rows)
        # the score of a cell that the model rules out is nearly infinite: weight it by its squared share
        shares = own**2 / (own + LEAST_SHARE / own.size)
        weights.append(shares.ravel() * marginals.support[first, second])
    nothing = np.empty((0, offsets.size - 1), np.int16)
    return DenseBlock(np.concatenate([nothing, *codes]), np.concatenate([np.empty(0), *weights]))
