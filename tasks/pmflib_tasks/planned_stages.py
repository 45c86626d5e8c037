"""What a feature says of its stages before a run: their place, their memory, and what they make unnecessary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.cluster.memory import PlanWorker
from pmflib.schema import Schema
from pmflib_tasks.config import PipelineConfig


@dataclass(frozen=True)
class RunSizes:
    """Sizes of a run that is planned.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Total number of threads, at least 1.
    n_samples, n_observed
        Number of samples and of their answers; before the first run, a number beyond which memory does not grow.
    costs
        Answers of each group of blocks that a pass reads.
    """

    config: PipelineConfig
    schema: Schema
    n_threads: int
    n_samples: int
    n_observed: int
    costs: Sequence[int]


@dataclass(frozen=True)
class PlannedStage:
    """A stage of a feature in the plan of a run.

    Parameters
    ----------
    name
        Name of the stage.
    after
        Stage of every run that it follows; empty if it comes after those whose time is known.
    applies
        Whether it is one of this run; if not, earlier runs do not put it into the plan.
    memory
        Plan of its memory; None if it has none.
    replaces
        Stages of every run that this one makes unnecessary.
    otherwise
        What a run does, in a clause, where memory does not suffice for the stage; empty if the run is refused.
    """

    name: str
    after: str = ""
    applies: bool = True
    memory: PlanWorker | None = None
    replaces: tuple[str, ...] = ()
    otherwise: str = ""
