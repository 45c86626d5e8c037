"""What a feature adds to the pipeline: one declaration, which the core reads and which names no other feature.

A feature is a folder of `pmflib_tasks`, of `pmflib_flows`, or of both. Its module ``feature`` holds the declaration, in
the table `pmflib_tasks.features.FEATURES` or, without tasks, in `pmflib_flows.features.FEATURES`. Without the folders
and that line, the pipeline runs as if the feature had never been there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pmflib.base.methods import Method


@dataclass(frozen=True)
class Place:
    """Where an object is defined, so that its module is imported when the object is first used.

    Parameters
    ----------
    text
        Module and name, as ``"pmflib_tasks.crowd.section:CrowdConfig"``.
    """

    text: str

    def load(self) -> Any:
        """Import the module and return the object."""
        module, _, name = self.text.partition(":")
        return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Command:
    """A command of ``pmf``.

    Parameters
    ----------
    name
        Name on the command line.
    place
        Function of the command, or a `typer.Typer` with several.
    panel
        Heading under which the help lists it.
    position
        Position in the help, which lists commands, and panels by their first command, in the order in which a new user
        meets them.
    """

    name: str
    place: Place
    panel: str
    position: int


class FeatureSection:
    """Section of ``pipeline.toml`` that belongs to a feature: base of its class, which is a pydantic model as well.

    All its options have defaults. `PipelineConfig.section` returns it, given its class.
    """

    changes_results: ClassVar[bool] = True
    """Whether its options can change results, and so belong to the digest of the configuration."""
    drafted: ClassVar[tuple[str, ...]] = ()
    """Options that a draft writes in any case."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that it names, relative to the configuration."""
        return ()

    @property
    def requires_rows(self) -> str:
        """What is given of it, if that needs the rows of all sites; otherwise empty."""
        return ""

    @property
    def unlike_labels(self) -> str:
        """Why a label log cannot be run with what is given, and the remedy; empty if it can."""
        return ""

    def check_pipeline(self, config: Any) -> None:
        """Check conditions that involve other sections of a configuration.

        Raises
        ------
        ValueError
            If one does not hold.
        """


@dataclass(frozen=True)
class Feature:
    """What a feature adds to the pipeline. What it leaves out, it does not add.

    Parameters
    ----------
    name
        Name of the feature, and of its folders.
    section
        Key of its section of ``pipeline.toml``, and its class, derived from `FeatureSection`. Its module, and that of
        `guards`, is imported with the configuration, and imports none of its stages.
    guards
        Class of its options of section ``quality``, each declared by `pmflib_tasks.guard_limits.guard`.
    methods
        Methods that its stages fit a pipeline by: see `pmflib_tasks.config.sample_methods`.
    commands
        Its commands.
    deployments
        Flows that Prefect may start on a schedule, by their names in `pmflib_flows.deployments`.
    steps
        Tuple of `pmflib_tasks.steps.Step`: its stages in the order of a run. They are asked before those of every run.
    check_run
        Function ``(config, schema)`` that raises an error if a run cannot succeed, before anything is read.
    health
        Function ``(config)`` that yields a `pmflib_tasks.health.Check` for each part of a setup that it needs.
    erase
        A `pmflib_tasks.holdings.Holder`: what its artefacts hold of samples, for their erasure.
    compare_datasets
        Function ``(store, one, other) -> str``: why models of two datasets cannot be compared, in a clause; or "".
    find_withdrawal
        Function ``(config, live) -> str``: why data that the live model was fitted to may not be used any more, in a
        clause; or "".
    run_labels
        Function ``(source, config, data_only)`` that drafts the configuration of a label log into a file, and returns
        the facts of its run; none if only the draft is asked for.
    evaluate_target
        Function ``(client, folds, counts, model, target, seed)`` that evaluates the prediction of `em.target` on the
        test samples: see `pmflib_tasks.stages.evaluate`. Its result has ``to_json``.
    cut_draft
        Function ``(drafted, sources, source, target)`` that returns a draft with the columns cut by its target.
    draft_model
        Function ``(schema)`` that returns how a log of such variables is drafted to be fitted: rank, method and
        method_options; empty for the way of all others.
    note_draft
        Function ``(schema) -> str``: what a run with a drafted schema does otherwise than most on this machine; or "".
        It raises an error if there can be no run.
    sections
        Function ``(facts) -> Iterable[Section]``: its part of what a run has to say (`pmflib_tasks.sections`), by the
        key of the facts that there must be.
    follow_run
        Context manager ``(config, name)`` of every run, which yields a function ``(outcome, *, reason, error, live,
        inputs, facts, number)`` that is called when it ended, with what its record has.
    read_event
        Function ``(line)`` that parses a line of the events that it leaves in a store; raises ValueError if it was
        edited.
    compare_runs
        Function ``(open_both, most)`` by an action of runs: how two runs of it differ, a
        `pmflib_tasks.gate.run_differences.OwnDifference`; None if what they made is gone.
    after_run
        Function ``(config, store, name, record)`` that is called when the record of a run has been written.
    report
        Function ``(store, record) -> ReportPart | None``: what it adds to the page of a run.
    status
        Function ``(config, store) -> StatusPart``: what it adds to `pmf status`.
    plan
        Function ``(sizes) -> Iterable[PlannedStage]``: its stages in the plan of a run (`pmflib_tasks.planned_stages`).
    """

    name: str
    section: Mapping[str, Place] = field(default_factory=dict)
    guards: Place | None = None
    methods: tuple[Method, ...] = ()
    commands: tuple[Command, ...] = ()
    deployments: Mapping[str, Place] = field(default_factory=dict)
    steps: Place | None = None
    check_run: Place | None = None
    health: Place | None = None
    erase: Place | None = None
    compare_datasets: Place | None = None
    find_withdrawal: Place | None = None
    run_labels: Place | None = None
    evaluate_target: Place | None = None
    cut_draft: Place | None = None
    draft_model: Place | None = None
    note_draft: Place | None = None
    sections: Mapping[str, Place] = field(default_factory=dict)
    follow_run: Place | None = None
    read_event: Place | None = None
    compare_runs: Mapping[str, Place] = field(default_factory=dict)
    after_run: Place | None = None
    report: Place | None = None
    status: Place | None = None
    plan: Place | None = None
