"""What answers of a model in a store rest on: the counts that it was fitted to, and its fits without each fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import IntArray, Parameters
from pmflib.counting.folded import check_folds
from pmflib.counting.pair_counts import PairCounts, load_fold_singles
from pmflib.counting.stored_tables import PAIRS, StoredTables
from pmflib.errors import StoreError
from pmflib.model import JointPMF
from pmflib.questions.evidence import Evidence, Refits, explain_no_refits, make_models
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import holds
from pmflib.store.run_records import find_run_of
from pmflib.store.zarr_arrays import read_arrays, write_arrays

MAX_LEVELS = 1_000
"""Levels of the largest schema whose tables of pairs are read for a question: 8 MB a fold, read in an instant."""
KIND = "fits without folds"
"""Attribute ``kind`` of the Zarr group of such fits."""
VERSION = 1


def open_evidence(
    store: Store,
    name: str,
    reference: Reference,
    model: JointPMF,
    on_refit: Callable[[int], None] = lambda n_folds: None,
) -> Evidence | None:
    """Find what a model was fitted to.

    Parameters
    ----------
    store, name
        Store of the pipeline, and its name.
    reference, model
        The model, where it is and what it is.
    on_refit
        Called with the number of folds before the model is fitted again without each, which takes seconds.

    Returns
    -------
    The evidence, of the folds that the model was fitted to; None where there are no counts, or those of another schema.
    Nothing is read of the tables of pairs until an answer asks for it, and nothing at all above ``MAX_LEVELS`` levels.

    Raises
    ------
    StoreError
        If the counts are damaged.
    """
    made = find_run_of(store, name, reference)
    if made is None or "counts" not in made.stages:
        return None
    counts = made.stages["counts"]
    if not holds(store.root / counts.path / PAIRS):
        return None
    stored = StoredTables(store.locate(counts) / PAIRS)
    if stored.schema != model.schema:
        return None
    entry = store.find(reference.identity)
    wanted = None if entry is None else entry.options.get("train")
    folds = check_folds(wanted, stored.n_folds)
    is_wide = model.schema.n_levels > MAX_LEVELS
    refits = _Refits(store, {"counts": counts, "model": reference}, model, folds, on_refit)
    return Evidence(
        int(stored.n_rows[folds].sum()),
        load_fold_singles(stored.path)[folds].sum(axis=0),
        None if is_wide else _PairReader(stored, folds),
        refits,
    )


class _PairReader:
    """Reads the tables of pairs once, when first asked for."""

    def __init__(self, stored: StoredTables, folds: list[int]) -> None:
        self.stored = stored
        self.folds = folds
        self.table: IntArray | None = None

    def __call__(self, levels: IntArray) -> IntArray:
        if self.table is None:
            self.table = PairCounts.add_up(self.stored, self.folds).tables[0]
        upper: IntArray = self.table[levels[:, None], levels[None, :]]
        # only one of the two triangles of the whole table is filled
        return np.maximum(upper, upper.T)


class _Refits:
    """Fits without each fold: those of the store, which are made there when first asked for."""

    def __init__(
        self,
        store: Store,
        inputs: Mapping[str, Reference],
        model: JointPMF,
        folds: list[int],
        on_refit: Callable[[int], None],
    ) -> None:
        self.store = store
        self.inputs = inputs
        self.model = model
        self.folds = folds
        self.on_refit = on_refit
        self.known: Refits | None = None

    def __call__(self) -> Refits:
        if self.known is None:
            self.known = self.find()
        return self.known

    def find(self) -> Refits:
        path = self.store.locate(self.inputs["counts"]) / PAIRS
        n_filled = int(np.count_nonzero(StoredTables(path).n_rows[self.folds]))
        if why := explain_no_refits(self.model, n_filled):
            return (), why
        try:
            entry = self.store.build(
                "refits",
                inputs=self.inputs,
                options={"folds": self.folds},
                version=VERSION,
                write=self.write,
            )
        except StoreError:
            # a store that may only be read keeps nothing
            return make_models(self.fit(), self.model), ""
        folder = self.store.locate(entry.reference)
        arrays, _ = read_arrays(folder / "refits", ["priors", "factors"], kind=KIND)
        return make_models((arrays["priors"], arrays["factors"]), self.model), ""

    def fit(self) -> Parameters:
        # the solver takes a while to import, and most questions have their fits already
        from pmflib.diagnosis.jackknife import refit_without_folds

        self.on_refit(len(self.folds))
        counts = PairCounts.load(self.store.locate(self.inputs["counts"]) / PAIRS)
        return refit_without_folds(counts.select_folds(self.folds), self.model)

    def write(self, folder: Path, work: Path) -> dict[str, Any]:
        priors, factors = self.fit()
        write_arrays(
            folder / "refits",
            {
                "priors": (priors, ("fold", "state")),
                "factors": (factors, ("fold", "level", "state")),
            },
            {"kind": KIND, "units": "probability"},
        )
        return {"folds": len(priors)}
