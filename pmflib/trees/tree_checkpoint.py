"""Checkpoints of EM with forests: the state of a run, and what the search before it has found, in a file each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.arrays import IntArray
from pmflib.selection.comparison import Comparison
from pmflib.store.checkpoints import load_arrays, save_arrays
from pmflib.trees.forest import Forest
from pmflib.trees.tree_em import TreeOptions, TreeRun, TreeState
from pmflib.trees.tree_statistics import TreeParameters

Arrays = Mapping[str, npt.NDArray[Any]]


def save_tree_state(path: Path, state: TreeState) -> None:
    """Save the state of a run after a pass."""
    arrays = _pack("current", state.current) | _pack("best", state.best)
    arrays["log_likelihoods"] = np.array(state.log_likelihoods)
    arrays["held_out"] = np.array(state.held_out)
    arrays["passes"] = np.array([state.best_pass, state.last_change, state.due, state.gap])
    save_arrays(path, arrays)


def load_tree_state(path: Path, offsets: IntArray) -> TreeState | None:
    """Read what `save_tree_state` wrote, to the same bits; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    likelihoods, held_out = (
        tuple(arrays[name].tolist()) for name in ("log_likelihoods", "held_out")
    )
    current, best = (_unpack(name, arrays, offsets) for name in ("current", "best"))
    return TreeState(current, best, likelihoods, held_out, *arrays["passes"].tolist())


def save_search(path: Path, runs: Sequence[TreeRun], comparisons: Sequence[Comparison]) -> None:
    """Save what a search has found: the model and the options of each run, and what was compared."""
    found = {
        "options": [each.options._asdict() for each in runs],
        "comparisons": [each.to_json() for each in comparisons],
    }
    arrays: dict[str, npt.NDArray[Any]] = {"found": np.array(json.dumps(found))}
    for number, run in enumerate(runs):
        arrays |= _pack(f"{number}", run.parameters)
    save_arrays(path, arrays)


def load_search(path: Path, offsets: IntArray) -> tuple[list[TreeRun], list[Comparison]] | None:
    """Read what `save_search` wrote, without the passes that led there; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    found = json.loads(str(arrays["found"]))
    runs = [
        TreeRun.begin(_unpack(f"{number}", arrays, offsets), TreeOptions(**options))
        for number, options in enumerate(found["options"])
    ]
    return runs, [*map(Comparison.from_json, found["comparisons"])]


def _pack(name: str, model: TreeParameters) -> dict[str, npt.NDArray[Any]]:
    return {
        f"{name}_prior": model.prior,
        f"{name}_parents": model.forest.parents,
        f"{name}_tables": model.tables,
    }


def _unpack(name: str, arrays: Arrays, offsets: IntArray) -> TreeParameters:
    forest = Forest(arrays[f"{name}_parents"], offsets)
    return TreeParameters(arrays[f"{name}_prior"], forest, arrays[f"{name}_tables"])
