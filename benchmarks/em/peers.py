"""Other people's EM passes, on the same samples: each peer is a function that makes a timer, or says why it cannot."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

CHUNK = 4096
"""Rows that NumPy works on at a time: larger products leave the caches and are slower."""

Timer = Callable[[], float]
"""Process CPU time of one pass, seconds."""


def timed(work: Callable[[], Any]) -> Timer:
    """Timer of a function's CPU time."""

    def timer() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return timer


def slope(fit: Callable[[int], Any], few: int, many: int, scale: float) -> Timer:
    """CPU time of one pass from two fits of a few and of many passes; set-up falls out."""

    def timer() -> float:
        times = []
        for passes in (few, many):
            began = time.process_time()
            fit(passes)
            times.append(time.process_time() - began)
        return max(times[1] - times[0], 1e-9) / (many - few) * scale

    return timer


def update(
    mass: np.ndarray, states: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """M-step."""
    totals = np.repeat(np.add.reduceat(mass, offsets[:-1], axis=0), np.diff(offsets), axis=0)
    return states / states.sum(), mass / np.maximum(totals, 1e-300)


def make_matrix(codes: np.ndarray, offsets: np.ndarray) -> scipy.sparse.csr_matrix:
    """One-hot matrix of the observed cells."""
    rows, variables = np.nonzero(codes >= 0)
    levels = offsets[variables] + codes[rows, variables]
    shape = (len(codes), int(offsets[-1]))
    return scipy.sparse.csr_matrix((np.ones(rows.size), (rows, levels)), shape)


def find_responsibilities(logs: np.ndarray) -> np.ndarray:
    """Rows normalised out of the log domain, in place; reductions over short rows would be several times slower."""
    logs -= functools.reduce(np.maximum, logs.T)[:, None]
    np.exp(logs, out=logs)
    logs /= (logs @ np.ones(logs.shape[1]))[:, None]
    return logs


def time_numpy(matrix: Any, offsets: np.ndarray, prior: np.ndarray, factors: np.ndarray) -> Timer:
    """NumPy: one-hot matrix products, the dense matrix given."""
    dense = matrix.toarray()

    def work() -> Any:
        log_prior, log_factors = (np.log(np.maximum(x, 1e-300)) for x in (prior, factors))
        mass, states = np.zeros_like(factors), np.zeros_like(prior)
        for start in range(0, len(dense), CHUNK):
            part = dense[start : start + CHUNK]
            posteriors = find_responsibilities(part @ log_factors + log_prior)
            mass += part.T @ posteriors
            states += posteriors.sum(axis=0)
        return update(mass, states, offsets)

    return timed(work)


def time_scipy(matrix: Any, offsets: np.ndarray, prior: np.ndarray, factors: np.ndarray) -> Timer:
    """SciPy: sparse one-hot matrix products, the matrix and its transpose given."""
    transposed = matrix.T.tocsr()

    def work() -> Any:
        log_prior, log_factors = (np.log(np.maximum(x, 1e-300)) for x in (prior, factors))
        posteriors = find_responsibilities(matrix @ log_factors + log_prior)
        return update(transposed @ posteriors, posteriors.sum(axis=0), offsets)

    return timed(work)


def time_stepmix(codes: np.ndarray, rank: int, passes: tuple[int, int], n_rows: int) -> Timer:
    """StepMix 3: slope of two fits on some of the rows, scaled to all of them."""
    from stepmix.stepmix import StepMix

    part = codes[:n_rows].astype(float)
    part[part < 0] = np.nan
    kind = "categorical" if codes.max() > 1 else "binary"
    if np.isnan(part).any():
        kind += "_nan"

    def fit(n_passes: int) -> Any:
        options = {"abs_tol": 0.0, "rel_tol": 0.0, "progress_bar": 0, "verbose": 0}
        model = StepMix(
            rank, n_init=1, max_iter=n_passes, measurement=kind, random_state=0, **options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(part)

    return slope(fit, *passes, len(codes) / len(part))


def time_pomegranate(codes: np.ndarray, cardinality: int, rank: int, n_rows: int) -> Timer:
    """Pomegranate: slope of two fits on some of the rows, scaled to all of them."""
    import torch
    from pomegranate.distributions import Categorical
    from pomegranate.gmm import GeneralMixtureModel

    torch.set_num_threads(1)
    part = torch.tensor(codes[:n_rows].astype(np.int64))
    rng = np.random.default_rng(0)

    def fit(n_passes: int) -> Any:
        states = [
            Categorical(rng.dirichlet(np.full(cardinality, 3.0), codes.shape[1]).tolist())
            for _ in range(rank)
        ]
        GeneralMixtureModel(states, max_iter=n_passes, tol=-1e9).fit(part)

    return slope(fit, 1, 4, len(codes) / n_rows)


def time_mixle(
    codes: np.ndarray, offsets: np.ndarray, prior: np.ndarray, factors: np.ndarray
) -> Timer:
    """Mixle: slope of two fits from the given model, complete rows encoded before.

    All rows, since its M-step makes an object per variable and state whatever their number. Initial passes only:
    it ends a fit whose likelihood no longer gains, whatever the number of passes asked for.

    The compiled engine is asked for: mixle takes it by itself from 1.5 million rows times passes on,
    and passes of its interpreted engine are many times slower.
    """
    from mixle.engines import FUSED_NUMPY_ENGINE
    from mixle.inference import optimize
    from mixle.stats import (
        CompositeDistribution,
        IntegerCategoricalDistribution,
        MixtureDistribution,
        seq_encode,
    )

    tables = np.split(factors, offsets[1:-1])
    states = [
        CompositeDistribution([IntegerCategoricalDistribution(0, table[:, k]) for table in tables])
        for k in range(prior.size)
    ]
    model = MixtureDistribution(states, prior)
    encoded = seq_encode([tuple(row) for row in codes.tolist()], model=model)

    def fit(n_passes: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = optimize(
                None,
                model.estimator(),
                max_its=n_passes,
                delta=None,
                prev_estimate=model,
                enc_data=encoded,
                engine=FUSED_NUMPY_ENGINE,
            )
        made = fitted.fit_provenance().iterations
        if made != n_passes:
            raise RuntimeError(f"mixle made {made} of {n_passes} passes: its slope means nothing.")

    return slope(fit, 1, 5, 1.0)


def time_crowdkit(tasks: np.ndarray, workers: np.ndarray, labels: np.ndarray) -> Timer:
    """Crowd-kit's Dawid-Skene: slope of two fits."""
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    table = pd.DataFrame({"task": tasks, "worker": workers, "label": labels})

    def fit(n_passes: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DawidSkene(n_iter=n_passes, tol=-1.0).fit(table)

    return slope(fit, 1, 5, 1.0)


def collect(makers: Mapping[str, Callable[[], Timer]]) -> tuple[dict[str, Timer], list[str]]:
    """Peers that are installed, and a line for each that is not."""
    timers, absent = {}, []
    for name, make in makers.items():
        try:
            timers[name] = make()
        except ImportError as error:
            absent.append(f"{name} skipped: {error}; pip install 'pmflib[bench]'")
    return timers, absent
