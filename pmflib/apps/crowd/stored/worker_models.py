"""Save, compare and apply worker models, also when the set of workers changes.

For some folds, a model has a copy that was estimated without the labels of the fold. Two models are compared by how
well these copies predict each label of a held-out task from its other labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from pmflib.apps.crowd.e_step import LogWeights
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel, CrowdModel
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.comparison import N_SUMS, PairedGain, estimate_gain_per_cell
from pmflib.store.array_groups import check_expansion, read_arrays
from pmflib.store.zarr_arrays import write_arrays

KIND = "worker-model"
MODEL = "worker-model"
"""Zarr group of the model, in the folder of its artefact."""
ENOUGH_HELD_OUT = 20_000
"""Approximate number of held-out labels, for which the standard error of the gain is about a thousandth of a nat. In
small logs, all folds are held out in turn."""
HALF_LABEL = 0.5
"""Pseudo-count in every cell of unshrunk confusion matrices, for predictions."""


@dataclass(frozen=True, eq=False)
class WorkerModel:
    """A crowd model with its workers and classes.

    Parameters
    ----------
    model
        Prior and confusion matrices.
    workers, classes
        Names.
    passes, converged
        Number of passes, and whether they converged.
    held_out
        For some folds, the model estimated without the labels of the fold.
    """

    model: CrowdModel
    workers: Sequence[str]
    classes: Sequence[str]
    passes: int
    converged: bool
    held_out: Mapping[int, CrowdModel]

    def save(self, path: Path) -> None:
        """Write a Zarr group; the folder must not exist."""
        model = self.model
        arrays = {
            "states": (model.states, ("state",)),
            "mass": (model.mass, ("worker", "label", "state")),
            "held_out_states": (self._stack("states"), ("fold", "state")),
            "held_out_mass": (self._stack("mass"), ("fold", "worker", "label", "state")),
        }
        if model.intercepts is not None:
            arrays["intercepts"] = (model.intercepts, ("class",))
        attributes = {
            "kind": KIND,
            # erasures need the dimensions
            "dimensions": {name: dims for name, (_, dims) in arrays.items()},
            "workers": list(self.workers),
            "classes": list(self.classes),
            "passes": self.passes,
            "converged": self.converged,
            "folds": list(self.held_out),
            "has_intercepts": model.intercepts is not None,
            "pseudo_count": model.pseudo_count,
            "vote_weight": model.vote_weight,
            "annotator_model": {**asdict(model.annotator_model), "copiers": ()},
            # by name, because workers may change
            "copiers": _name_copiers(model.annotator_model, self.workers),
        }
        write_arrays(path, arrays, attributes)

    def _stack(self, name: str) -> FloatArray:
        like = getattr(self.model, name)
        each = [getattr(model, name) for model in self.held_out.values()]
        return np.array(each).reshape(len(each), *like.shape)

    @classmethod
    def load(cls, path: Path) -> WorkerModel:
        """Read a model written by `save`, bitwise equal.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or not a worker model.
        """
        check_expansion(path)
        arrays, content = read_arrays(path, kind=KIND)
        kind = AnnotatorModel(**content["annotator_model"])
        kind = _place_copiers(kind, content["copiers"], content["workers"])
        pseudo_count = float(content["pseudo_count"])
        model = CrowdModel(
            arrays["states"],
            arrays["mass"],
            pseudo_count,
            kind,
            float(content["vote_weight"]),
            arrays["intercepts"] if content["has_intercepts"] else None,
        )
        held_out = {
            int(fold): CrowdModel(
                arrays["held_out_states"][index], arrays["held_out_mass"][index], pseudo_count, kind
            )
            for index, fold in enumerate(content["folds"])
        }
        names = tuple(content["workers"]), tuple(content["classes"])
        return cls(model, *names, int(content["passes"]), bool(content["converged"]), held_out)

    def fit_to(self, workers: Sequence[str]) -> WorkerModel:
        """Return the model for other workers: unknown ones have the pooled confusion matrix."""
        if tuple(workers) == tuple(self.workers):
            return self
        places = {name: index for index, name in enumerate(self.workers)}
        rows = np.array([places.get(name, -1) for name in workers], np.int64)

        kind = self.model.annotator_model
        kind = _place_copiers(kind, _name_copiers(kind, self.workers), workers)

        def choose(model: CrowdModel) -> CrowdModel:
            return replace(model, mass=_choose_workers(model, rows), annotator_model=kind)

        held_out = {fold: choose(model) for fold, model in self.held_out.items()}
        return replace(self, model=choose(self.model), workers=tuple(workers), held_out=held_out)


def _name_copiers(kind: AnnotatorModel, workers: Sequence[str]) -> list[list[list[str | float]]]:
    """Return the groups of workers who repeat each other, by name, with their weights."""
    return [[[workers[worker], weight] for worker, weight in group] for group in kind.copiers]


def _place_copiers(
    kind: AnnotatorModel, named: Sequence[Sequence[Sequence[str | float]]], workers: Sequence[str]
) -> AnnotatorModel:
    """Set the groups of workers who repeat each other, given by name; at least two of a group must be present."""
    places = {name: index for index, name in enumerate(workers)}
    groups = (
        tuple(
            sorted((places[str(name)], float(weight)) for name, weight in group if name in places)
        )
        for group in named
    )
    return replace(kind, copiers=tuple(group for group in groups if len(group) > 1))


def _choose_workers(model: CrowdModel, rows: IntArray) -> FloatArray:
    """Return the mass of some workers, (n_chosen, n_classes, n_states); row -1 means an unknown worker."""
    pooled = model.mass.sum(axis=0)
    pooled = pooled / np.maximum(pooled.sum(axis=0), FLOOR) * max(model.pseudo_count, 1.0)
    mass = np.concatenate([model.mass, pooled[None]])
    return np.asarray(mass[rows])


def count_held_out_folds(n_labels: int, n_folds: int, least: int) -> int:
    """Return the number of folds with about ``ENOUGH_HELD_OUT`` labels, at least ``least``."""
    needed = -(-ENOUGH_HELD_OUT * n_folds // max(n_labels, 1))
    return min(n_folds, max(least, needed, 1))


def sum_gains(labels: SparseBlock, new: CrowdModel, live: CrowdModel) -> FloatArray:
    """Sum the gains of one model over another in predicting each label from the other labels of its task.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``; tasks with one label are ignored.
    new, live
        Models of the same workers and classes, both estimated without these tasks.

    Returns
    -------
    float64 of shape (N_SUMS,), for `pmflib.base.comparison.estimate_gain_per_cell`.
    """
    rows = np.flatnonzero(np.diff(labels.indptr) > 1)
    labels = labels.take(rows)
    lengths = np.diff(labels.indptr).astype(np.float64)
    gains = _predict_others(labels, new) - _predict_others(labels, live)
    parts = np.ones(rows.size), lengths, gains, lengths**2, gains * lengths, gains**2
    return np.array([part.sum() for part in parts])


def _predict_others(labels: SparseBlock, model: CrowdModel) -> FloatArray:
    """Compute the log-probability of each label given the others of its task, summed by task, (n_tasks,), nats."""
    if model.pseudo_count == 0:
        model = replace(model, mass=model.mass + HALF_LABEL)
    weights = LogWeights.from_model(model, with_votes=False)
    own = weights.labels[labels.indices]
    lengths = np.diff(labels.indptr)
    tasks = np.repeat(np.arange(labels.n_rows), lengths)
    totals = np.zeros((labels.n_rows, weights.n_states))
    for state in range(weights.n_states):
        totals[:, state] = np.bincount(tasks, own[:, state], minlength=labels.n_rows)
    scores = totals[tasks] - own + weights.states
    scores -= scores.max(axis=1, keepdims=True, initial=-np.inf)
    chances = np.exp(scores)
    given = model.mass / np.maximum(model.mass.sum(axis=1, keepdims=True), FLOOR)
    likely = given.reshape(-1, weights.n_states)[labels.indices]
    found = (chances * likely).sum(axis=1) / chances.sum(axis=1)
    logs = np.log(np.maximum(found, FLOOR))
    return np.bincount(tasks, logs, minlength=labels.n_rows).astype(np.float64)


def make_gain(sums: FloatArray) -> PairedGain:
    """Estimate the gain of a model from sums of `sum_gains`."""
    found = estimate_gain_per_cell(sums)
    return PairedGain(found.mean, found.error, int(sums[1]), int(sums[0]))


NO_GAIN = np.zeros(N_SUMS)
"""Sums of no gains."""
