"""Differences between two runs of a store: their records, and their artefacts if these still exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pmflib.base.display.summary import SummaryTable
from pmflib.base.errors import StoreError
from pmflib.base.json_records import JsonRecord
from pmflib.counts.pair_counts import PairCounts, load_shape, load_singles
from pmflib.counts.zarr_tables import StoredTables
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.erasures import list_erased
from pmflib.store.run_records import RunRecord
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import FEATURES
from pmflib_tasks.file_changes import FileChanges, compare_files
from pmflib_tasks.gate.distribution_differences import (
    PairChange,
    StateChange,
    VariableChange,
    compare_models,
    compare_pairs,
    compare_singles,
)
from pmflib_tasks.guards.counts import align_levels

T = TypeVar("T")

MAX_PAIR_LEVELS = 6000
"""Maximum number of levels for which pairs are compared: two symmetric tables of int64 take 0.6 GB."""
COMPARED_KEYS = ("method", "rank", "pseudo_count", "passes", "converged")
"""Keys of the record of a model that are compared, beside its log-likelihoods."""


@dataclass(frozen=True)
class ValueChange:
    """A value in two runs.

    Parameters
    ----------
    name
        Name of the value; the parts of a nested name are joined by dots.
    first, second
        Its values in plain JSON types; None if a run has none.
    """

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class ChangedVariable:
    """A variable that differs between two schemas.

    Parameters
    ----------
    variable
        Name.
    levels_added, levels_removed
        Levels that only the second schema, or only the first schema, has.
    order_changed, values_changed, edges_changed, missing_changed, other_changed
        Whether the order of the shared levels, the values, the edges, the missing codes or the level for other values
        changed.
    """

    variable: str
    levels_added: list[str]
    levels_removed: list[str]
    order_changed: bool
    values_changed: bool
    edges_changed: bool
    missing_changed: bool
    other_changed: bool


@dataclass(frozen=True)
class SchemaChanges:
    """Differences between the variables and levels of two schemas.

    Parameters
    ----------
    added, removed
        Names of the variables that only the second schema, or only the first schema, has.
    changed
        Shared variables that differ.
    """

    added: list[str]
    removed: list[str]
    changed: list[ChangedVariable]


def compare_values(
    first: Mapping[str, Any], second: Mapping[str, Any], *, only_changed: bool = True
) -> list[ValueChange]:
    """Compare two nested mappings of plain JSON types.

    Parameters
    ----------
    first, second
        The mappings.
    only_changed
        Whether to leave out equal values.

    Returns
    -------
    A change per leaf, in the order of the second mapping, then the leaves of the first mapping only.
    """
    before, after = flatten(first), flatten(second)
    return [
        ValueChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys((*after, *before))
        if not only_changed or before.get(name) != after.get(name)
    ]


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Flatten a nested mapping; names of leaves are joined by dots, and lists are leaves."""
    leaves: dict[str, object] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{name}.")
        else:
            leaves[name] = value
    return leaves


def compare_schemas(first: Schema, second: Schema) -> SchemaChanges:
    """Compare the variables and levels of two schemas."""
    changed = []
    for variable in second:
        if variable.name not in first or first[variable.name] == variable:
            continue
        before = first[variable.name]
        levels = variable.levels
        changed.append(
            ChangedVariable(
                variable.name,
                [level for level in levels if level not in before.levels],
                [level for level in before.levels if level not in levels],
                order_changed=_list_shared(before.levels, levels)
                != _list_shared(levels, before.levels),
                values_changed=before.values != variable.values,
                edges_changed=before.edges != variable.edges,
                missing_changed=before.missing != variable.missing,
                other_changed=before.other != variable.other,
            )
        )
    return SchemaChanges(
        [name for name in second.names if name not in first],
        [name for name in first.names if name not in second],
        changed,
    )


def _list_shared(levels: Sequence[str], others: Sequence[str]) -> list[str]:
    """List the levels that also occur in others, in order."""
    known = set(others)
    return [level for level in levels if level in known]


class OwnDifference(Protocol):
    """How runs of an action of a feature differ: a dataclass of plain JSON types that tabulates itself."""

    def tabulate(self, runs: tuple[str, str]) -> Iterator[SummaryTable]:
        """Build tables of the difference, given the names of both runs."""


@dataclass
class RunDifference(JsonRecord):
    """Differences between two runs; parts that could not be compared are None, and ``missing`` has the reasons.

    Parameters
    ----------
    files, options, versions
        Raw files; options of the configuration; versions of packages, and the host.
    rows, scores
        Values of both runs, whether or not they changed.
    schema
        Variables and levels.
    variables, n_pairs, pairs
        Changes of all shared variables; number of compared pairs, and their largest changes.
    model, states
        Properties of both models, whether or not they changed; latent states, unless a model is a stack.
    labels
        Differences of labels, for two runs that label, which have no counts and no model of samples.
    missing
        Sentences that name what could not be compared, with reasons.
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
    labels: OwnDifference | None = None
    missing: list[str] = field(default_factory=list)


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
        Maximum number of changes of pairs.

    Returns
    -------
    The differences. Records are always compared; distributions, schemas and models only if the store still has the
    artefacts of both runs.
    """
    facts = RunFacts(first.facts), RunFacts(second.facts)
    found = RunDifference(
        compare_files(first.inputs, second.inputs),
        compare_values(first.options, second.options),
        compare_values(first.environment, second.environment),
        compare_values(
            *(_pick(each, "rows", "cells_made_missing") for each in facts), only_changed=False
        ),
        compare_values(*(_pick(each, "scores", "pairs") for each in facts), only_changed=False),
    )
    for record in (first, second):
        if not record.options:
            found.missing.append(f"the record of run {record.number} has no configuration")
    open_both = partial(_open, store, (first, second), collected, found.missing)
    own = {action: place for each in FEATURES for action, place in each.compare_runs.items()}
    if first.action == second.action in own:
        found.labels = own[first.action].load()(open_both, most_pairs)
        return found
    counts = open_both("counts", "pairs", _check_counts)
    if counts is not None:
        _compare_counts(*counts, found, most_pairs)
    models = open_both("model", "model", JointPMF.load)
    if models is not None:
        found.model = compare_values(*map(_describe_model, facts), only_changed=False)
        schemas = models[0].schema, models[1].schema
        if not any(each.origin.is_stack for each in models):
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
    stored = [StoredTables(path) for path in paths]
    if not all(each.is_complete for each in stored):
        found.missing.append("pairs are not compared: those of some variables are not counted")
        return
    n_levels = max(schema.n_levels for schema in schemas)
    if n_levels > MAX_PAIR_LEVELS:
        found.missing.append(
            f"pairs are not compared: {n_levels} levels are more than {MAX_PAIR_LEVELS}"
        )
        return
    tables = [PairCounts.load_total(path).to_samples().to_dense() for path in paths]
    found.n_pairs, found.pairs = compare_pairs(levels, *tables, most=most_pairs)


def _open(
    store: Store,
    runs: tuple[RunRecord, RunRecord],
    collected: Collection[int],
    missing: list[str],
    stage: str,
    name: str,
    load: Callable[[Path], T],
) -> tuple[T, T] | None:
    """Open an artefact of each of two runs; if one is gone, return None and add the reason to ``missing``."""
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


def _pick(facts: RunFacts, name: str, without: str) -> dict[str, object]:
    return {key: value for key, value in (facts.get(name) or {}).items() if key != without}


def _describe_model(facts: RunFacts) -> dict[str, object]:
    """Collect the properties of a model that are compared between runs."""
    model = facts.model
    described = {key: model[key] for key in COMPARED_KEYS if key in model}
    for name in ("log_likelihood_per_row", "held_out_per_row"):
        if history := model.get(name):
            # the value after the pass whose model was kept
            described[name] = history[min(model.get("best_pass", 0), len(history) - 1)]
    return described
