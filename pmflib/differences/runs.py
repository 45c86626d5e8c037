"""What differs between two runs of a store, as far as their artefacts are still there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pmflib.counting.pair_counts import PairCounts, load_shape, load_singles
from pmflib.differences.alignment import align_levels
from pmflib.differences.distributions import (
    PairChange,
    VariableChange,
    compare_pairs,
    compare_singles,
)
from pmflib.differences.facts import (
    FileChanges,
    SchemaChanges,
    ValueChange,
    compare_files,
    compare_schemas,
    compare_values,
)
from pmflib.differences.model_differences import StateChange, compare_models
from pmflib.errors import StoreError
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.erasures import list_erased
from pmflib.store.run_records import RunRecord

T = TypeVar("T")

MAX_PAIR_LEVELS = 6000
"""Levels up to which pairs are compared: two symmetric tables of int64 then take 0.6 GB."""
MODEL_FACTS = ("method", "rank", "pseudo_count", "passes", "converged")
"""Facts of a model that are compared, beside its log-likelihoods."""


@dataclass
class RunDifference:
    """What differs between two runs; the parts that are None could not be compared, and ``missing`` says why.

    Parameters
    ----------
    files, options, versions
        Raw files; options of the configuration; versions of packages, and the host.
    rows, scores
        Values of both runs, changed or not.
    schema
        Variables and levels.
    variables, n_pairs, pairs
        Distributions of all shared variables; number of pairs compared, and the largest changes of pairs.
    model, states
        Facts of both models, changed or not; latent states.
    missing
        Sentences: what could not be compared, and why.
    """

    files: FileChanges
    options: list[ValueChange]
    versions: list[ValueChange]
    rows: list[ValueChange]
    scores: list[ValueChange]
    schema: SchemaChanges | None = None
    variables: list[VariableChange] | None = None
    n_pairs: int = 0
    pairs: list[PairChange] | None = None
    model: list[ValueChange] | None = None
    states: list[StateChange] | None = None
    missing: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Difference as plain JSON types."""
        return asdict(self)


def compare_runs(
    store: Store,
    first: RunRecord,
    second: RunRecord,
    *,
    collected: Collection[int] = (),
    most_pairs: int = 50,
) -> RunDifference:
    """Compare two runs.

    Parameters
    ----------
    store
        Store of both.
    first, second
        Their records.
    collected
        Numbers of the runs that `pmf gc` did not keep.
    most_pairs
        Changes of pairs to return, at most.

    Returns
    -------
    The difference. What the records hold is always compared; distributions, schemas and models as far as the artefacts
    of both runs are in the store.
    """
    facts = first.facts, second.facts
    found = RunDifference(
        compare_files(first.inputs, second.inputs),
        compare_values(first.options, second.options),
        compare_values(first.environment, second.environment),
        compare_values(
            *(_pick(each, "rows", "cells_made_missing") for each in facts), only_changed=False
        ),
        compare_values(*(_pick(each, "scores") for each in facts), only_changed=False),
    )
    for record in (first, second):
        if not record.options:
            found.missing.append(f"the record of run {record.number} has no configuration")
    runs = first, second
    counts = _open(store, runs, "counts", "pairs", _check_counts, collected, found.missing)
    if counts is not None:
        _compare_counts(*counts, found, most_pairs)
    models = _open(store, runs, "model", "model", JointPMF.load, collected, found.missing)
    if models is not None:
        found.model = compare_values(*map(_describe_model, facts), only_changed=False)
        schemas = models[0].schema, models[1].schema
        found.states = compare_models(align_levels(*schemas), *models)
        found.schema = found.schema or compare_schemas(*schemas)
    return found


def _compare_counts(
    first: tuple[Path, Schema], second: tuple[Path, Schema], found: RunDifference, most_pairs: int
) -> None:
    """Compare schemas and distributions."""
    paths, schemas = (first[0], second[0]), (first[1], second[1])
    found.schema = compare_schemas(*schemas)
    levels = align_levels(*schemas)
    found.variables = compare_singles(levels, *map(load_singles, paths))
    n_levels = max(schema.n_levels for schema in schemas)
    if n_levels > MAX_PAIR_LEVELS:
        found.missing.append(
            f"pairs are not compared: {n_levels} levels are more than {MAX_PAIR_LEVELS}"
        )
        return
    tables = [PairCounts.load_total(path).to_dense() for path in paths]
    found.n_pairs, found.pairs = compare_pairs(levels, *tables, most=most_pairs)


def _open(
    store: Store,
    runs: tuple[RunRecord, RunRecord],
    stage: str,
    name: str,
    load: Callable[[Path], T],
    collected: Collection[int],
    missing: list[str],
) -> tuple[T, T] | None:
    """Open an artefact of each of two runs; None, and a sentence, where one is not there."""
    opened = []
    for record in runs:
        reference = record.stages.get(stage)
        if reference is None:
            missing.append(f"run {record.number}, which ended {record.outcome!r}, has no {stage}")
            continue
        try:
            opened.append(load(store.locate(reference) / name))
        except StoreError as error:
            why = "collected by `pmf gc`" if record.number in collected else error
            if reference.identity in list_erased(store):
                why = "it held samples that were erased"
            missing.append(f"{stage} of run {record.number}: {why}")
    return (opened[0], opened[1]) if len(opened) == 2 else None


def _check_counts(path: Path) -> tuple[Path, Schema]:
    return path, load_shape(path)[0]


def _pick(facts: Mapping[str, Any], name: str, *without: str) -> dict[str, Any]:
    content = facts.get(name) or {}
    return {key: value for key, value in content.items() if key not in without}


def _describe_model(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a model that two runs can be compared by."""
    model = facts.get("model") or {}
    described = {key: model[key] for key in MODEL_FACTS if key in model}
    for name in ("log_likelihood_per_row", "held_out_per_row"):
        if history := model.get(name):
            # after the pass whose model was kept
            described[name] = history[min(model.get("best_pass", 0), len(history) - 1)]
    return described
