"""The order of the stages of a run: what each needs and gives, and the walk that runs those that a run asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeAlias

from pmflib.base.errors import PmfError
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import RunRecord, find_last_run, list_records
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.facts import Refit, RunFacts
from pmflib_tasks.gate.refit import plan_refit
from pmflib_tasks.stage import load_schema, open_store

Stages: TypeAlias = Mapping[str, Reference]
"""Artefacts of a run by the names of its record: dataset, counts, model, ..."""


@dataclass(frozen=True)
class Step:
    """A stage in the order of a run.

    Parameters
    ----------
    gives
        Name of its artefact in the record of the run. Of several steps that give the same, the first that applies runs.
    run
        Runs the stage within a walk, whose stages include what the step needs; returns the artefact.
    needs
        Names of the artefacts that must be there before.
    uses
        Names of artefacts that are reached before if a step gives them in this run.
    applies
        Whether the step is one of this run.
    original
        For a step that changes an artefact that another step gave, such as weights of a dataset: the name under which
        it keeps the unchanged one. It runs as soon as the other has.
    stands_for
        Name of an artefact in whose place that of this step is used after it.
    """

    gives: str
    run: Callable[[Walk], Reference]
    needs: Sequence[str] = ()
    uses: Sequence[str] = ()
    applies: Callable[[Walk], bool] = lambda walk: True
    original: str = ""
    stands_for: str = ""


def find_current(name: str, stages: Stages, steps: Iterable[Step]) -> Reference:
    """Find the artefact that a run uses under a name in the end: its own, or one that stands in its place."""
    instead = (step.gives for step in steps if step.stands_for == name)
    return next((stages[each] for each in instead if each in stages), stages[name])


@dataclass
class Walk:
    """A run on its way through the steps; a step whose artefact was built by an earlier run returns immediately.

    Parameters
    ----------
    config
        The pipeline.
    steps
        All steps that there are; of those that give the same, earlier ones are asked first.
    address
        Address of the Dask scheduler of the run.
    stages, facts
        Artefacts and sections of the record of the run, which are added as they become known.
    live
        Model that is live: when the run began, until it has decided about its own.
    accepted
        Whether the run continues even if a guard objects to the data.
    rehash
        Whether to read the bytes of all sources, even of those that seem unchanged.
    history
        Name of the history of the run, if it differs from that of the pipeline.
    """

    config: PipelineConfig
    steps: Sequence[Step]
    address: str = ""
    stages: dict[str, Reference] = field(default_factory=dict)
    facts: RunFacts = field(default_factory=RunFacts)
    live: Reference | None = None
    accepted: bool = False
    rehash: bool = False
    history: str = ""

    @cached_property
    def last(self) -> RunRecord | None:
        """Record of the last complete run; None if there is none."""
        return find_last_run(open_store(self.config), self.history or self.config.name)

    @cached_property
    def base(self) -> Stages:
        """Artefacts of the last complete run, which this one builds upon; empty if there is none."""
        return {} if self.last is None else self.last.stages

    @cached_property
    def refit(self) -> Refit:
        """How the model is fitted: from scratch, or from the live one; a section of the record from now on."""
        store, stages = open_store(self.config), self.stages
        found = plan_refit(
            store,
            self.config,
            load_schema(self.config),
            list_records(store, self.config.name),
            {name: stages[name] for name in ("dataset", "counts")},
            self.facts.findings,
            datetime.now(UTC),
        )
        self.facts.note(refit=found)
        return found

    def branch(self) -> Walk:
        """Return a walk from here to a model that is fitted from scratch, which adds nothing to the record."""
        other = replace(self, stages=dict(self.stages))
        other.refit = replace(self.refit, start=None)
        return other

    def reach(self, *names: str) -> Reference:
        """Run the steps that give some artefacts, in this order, and those that they need; return the last artefact.

        Raises
        ------
        PmfError
            If no step gives one of them.
        """
        for name in names:
            if not self._reach(name):
                raise PmfError(f"no stage of pipeline {self.config.name!r} gives {name!r}")
        return self.stages[names[-1]]

    def _reach(self, name: str) -> bool:
        """Run the steps that give an artefact; return whether there are any."""
        if name not in self.stages:
            giving = [step for step in self.steps if step.gives == name]
            first = (step for step in giving if not step.original and step.applies(self))
            if (step := next(first, None)) is None:
                return False
            self.take(step)
            for each in giving:
                if each.original and each.applies(self):
                    self.take(each)
        return True

    def take(self, step: Step) -> None:
        """Run a step, after those that it needs."""
        for name in step.needs:
            self.reach(name)
        for name in step.uses:
            self._reach(name)
        self.stages[step.gives] = step.run(self)

    def find_current(self, name: str) -> Reference:
        """Find the artefact that this run uses under a name after its own, or one in its place, was reached."""
        return find_current(name, self.stages, self.steps)

    def find_original(self, name: str, stages: Stages) -> Reference | None:
        """Find an artefact among those of a run as it was before other steps changed it; None if there is none."""
        kept = (step.original for step in self.steps if step.gives == name)
        return next((stages[each] for each in kept if each in stages), stages.get(name))
