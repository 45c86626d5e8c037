"""Several EM runs in the same passes: blocks are read once for all runs that have not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pmflib.base.arrays import Arrays, IntArray
from pmflib.base.blocks import Block
from pmflib.base.defaults import Limits
from pmflib.base.machine import count_processors
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.family import Family, State
from pmflib.store.sample_blocks import BlockGroup

RunStates: TypeAlias = tuple[State[Any], ...]
"""States of runs side by side."""


@dataclass(frozen=True, eq=False)
class SideBySide(Family[RunStates, list[Any]]):
    """Runs of several families in the same passes, each with its own limits and stopped by held-out samples on its own.

    Parameters of this family are the states of the runs; its statistics are those of the runs that have not ended, in
    their order. `pmflib.em.family.run_em` fits it without held-out samples, which belong to the runs.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    families
        Family of each run.
    limits
        Stopping criteria of each run.
    held_out
        Held-out samples that choose the best pass of each run; None for runs that end by their limits alone.
    """

    offsets: IntArray
    families: Sequence[Family[Any, Any]]
    limits: Sequence[Limits]
    held_out: BlockSource | None = None

    def begin(self, states: Sequence[State[Any]]) -> State[RunStates]:
        """Return the state before the first pass; starts are eligible as best models."""
        if self.held_out is not None:
            states = [
                replace(
                    each,
                    held_out=(family.score(self.held_out, each.parameters),),
                    best=each.parameters,
                )
                for family, each in zip(self.families, states, strict=True)
            ]
        return State(tuple(states))

    def add(self, parameters: RunStates, blocks: Iterable[Block]) -> list[Any]:
        """Compute the statistics of the runs that have not ended."""
        active = self._list_active(parameters)
        return add_models(blocks, [(self.families[k], parameters[k].parameters) for k in active])

    def start(self, source: BlockSource, state: State[RunStates]) -> Callable[[], list[Any]]:
        """Start a pass: one map for all runs but those that need maps of their own."""
        active = self._list_active(state.parameters)
        joined = [k for k in active if self.families[k].is_plain(state.parameters[k])]
        models = [(self.families[k], state.parameters[k].parameters) for k in joined]
        waits: dict[int, Callable[[], Any]] = {}
        if models:
            n_bytes = sum(family.measure(parameters) for family, parameters in models)
            merge = partial(merge_models, [family.merge for family, _ in models])
            wait = source.start(add_to_group, merge, models, result_bytes=n_bytes, name="pass")
        for k in set(active) - set(joined):
            waits[k] = self.families[k].start(source, state.parameters[k])

        def collect() -> list[Any]:
            found = dict(zip(joined, wait(), strict=True)) if models else {}
            n_threads = count_processors() if isinstance(source, BlocksInMemory) else 1
            with ThreadPoolExecutor(n_threads) as pool:
                found |= zip(waits, pool.map(lambda each: each(), waits.values()), strict=True)
            return [found[k] for k in active]

        return collect

    def update(self, state: State[RunStates], statistics: list[Any]) -> State[RunStates]:
        """Perform the M-step of each run that has not ended, and evaluate the new models."""
        runs, active = list(state.parameters), self._list_active(state.parameters)
        for k, each in zip(active, statistics, strict=True):
            runs[k] = self._score(k, self.families[k].update(runs[k], each))
        mean = sum(runs[k].log_likelihoods[-1] for k in active) / max(len(active), 1)
        return state.after(tuple(runs), mean)

    def has_converged(self, state: State[RunStates], limits: Limits) -> bool:
        """Return whether all runs have ended."""
        return not self._list_active(state.parameters)

    def finish(self, state: State[RunStates]) -> State[RunStates]:
        """Return the state with finished runs."""
        ended = [
            family.finish(replace(run, converged=family.has_converged(run, limits)))
            for family, run, limits in zip(
                self.families, state.parameters, self.limits, strict=True
            )
        ]
        return replace(state, parameters=tuple(ended))

    def pack(self, parameters: RunStates) -> Arrays:
        """Return the arrays of all states."""
        return {
            f"{k}-{name}": array
            for k, each in enumerate(parameters)
            for name, array in self.families[k].pack_state(each).items()
        }

    def unpack(self, arrays: Arrays) -> RunStates:
        """Restore the states given to `pack`, bit for bit."""
        return tuple(
            family.unpack_state(
                {
                    name.removeprefix(f"{k}-"): np.asarray(array)
                    for name, array in arrays.items()
                    if name.startswith(f"{k}-")
                }
            )
            for k, family in enumerate(self.families)
        )

    def _list_active(self, runs: RunStates) -> list[int]:
        """Return the positions of the runs that have not ended."""
        return [
            k
            for k, run in enumerate(runs)
            if run.n_passes < self.limits[k].max_passes
            and not self.families[k].has_converged(run, self.limits[k])
        ]

    def _score(self, k: int, run: State[Any]) -> State[Any]:
        """Evaluate a model on the held-out samples, if any, and keep the best."""
        if self.held_out is None:
            return run
        family = self.families[k]
        value = family.score(self.held_out, run.parameters)
        if family.is_best(value, run, self.limits[k]):
            run = replace(run, best=run.parameters, best_pass=run.n_passes)
        return replace(run, held_out=(*run.held_out, value))


Models: TypeAlias = Sequence[tuple[Family[Any, Any], Any]]
"""Families with the parameters under which samples are evaluated."""


def add_to_group(group: BlockGroup, models: Models) -> list[Any]:
    """Compute the statistics of a group of blocks under several models; blocks are read once."""
    return add_models(iterate_distinct(group), models)


def add_models(blocks: Iterable[Block], models: Models) -> list[Any]:
    """Compute the statistics of blocks under several models, one block after another.

    Statistics of the blocks are merged in their order.
    """
    parts: list[list[Any]] = [[] for _ in models]
    for block in blocks:
        for (family, parameters), found in zip(models, parts, strict=True):
            found.append(family.add(parameters, [block]))
    if not parts or not parts[0]:
        return [family.add(parameters, []) for family, parameters in models]
    return [family.merge(found) for (family, _), found in zip(models, parts, strict=True)]


def merge_models(
    merges: Sequence[Callable[[Sequence[Any]], Any]], parts: Sequence[list[Any]]
) -> list[Any]:
    """Merge the statistics of each model over parts of the samples, in the order of the parts."""
    return [merge([part[k] for part in parts]) for k, merge in enumerate(merges)]
