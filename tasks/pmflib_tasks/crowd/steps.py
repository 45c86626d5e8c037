"""The stages of a run of a label log, with what they need and give."""

from __future__ import annotations

from pmflib.store.artefacts import Reference
from pmflib_tasks.crowd.crowd_model import crowd_model, worker_pairs
from pmflib_tasks.crowd.known import find_known_labels, find_predictions
from pmflib_tasks.crowd.label_quality import check_label_quality
from pmflib_tasks.crowd.labels import find_labels
from pmflib_tasks.crowd.log_names import list_log_names
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.crowd.worker_model import find_warm_start, worker_model
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.order import hold_data_back
from pmflib_tasks.steps import Step, Walk


def read_section(walk: Walk) -> CrowdConfig:
    """Return the section of label logs of a run."""
    return walk.config.section(CrowdConfig)


def run_ingest(walk: Walk) -> Reference:
    """List workers and labels, and encode the sources, upon the dataset of the last run."""
    names = list_log_names(walk.config, walk.address)
    return ingest(walk.config, walk.address, names, base=walk.base.get("dataset"))


def run_guards(walk: Walk) -> Reference:
    """Run the quality checks of label logs, and record their findings."""
    made = check_label_quality(walk.config, walk.stages["dataset"], walk.last)
    hold_data_back(walk, made, "pmf crowd")
    return made


def run_crowd_model(walk: Walk) -> Reference:
    """Fit the crowd model to the pairs of workers."""
    dataset, pairs = walk.stages["dataset"], walk.stages["pairs"]
    return crowd_model(walk.config, dataset, pairs, walk.address, walk.stages.get("known"))


def run_worker_model(walk: Walk) -> Reference:
    """Fit a model of the workers."""
    stages, start = walk.stages, find_warm_start(walk.config)
    model, known = stages.get("crowd_model"), stages.get("known")
    return worker_model(walk.config, stages["dataset"], model, walk.address, known, start)


def run_labels(walk: Walk) -> Reference:
    """Label the tasks by the live model of the workers."""
    assert walk.live is not None
    beside = (walk.stages.get(name) for name in ("known", "classifier"))
    return find_labels(walk.config, walk.stages["dataset"], walk.live, walk.address, *beside)


STEPS = (
    Step("dataset", run_ingest),
    Step("quality", run_guards, needs=("dataset",)),
    Step(
        "known",
        lambda walk: find_known_labels(walk.config, walk.stages["dataset"], walk.address),
        needs=("dataset",),
        applies=lambda walk: read_section(walk).known is not None,
    ),
    Step(
        "pairs",
        lambda walk: worker_pairs(walk.config, walk.stages["dataset"], walk.address),
        needs=("dataset",),
    ),
    Step(
        "crowd_model",
        run_crowd_model,
        needs=("dataset", "pairs"),
        uses=("known",),
        applies=lambda walk: read_section(walk).begins_with_pairs,
    ),
    Step("worker_model", run_worker_model, needs=("dataset",), uses=("known", "crowd_model")),
    Step(
        "classifier",
        lambda walk: find_predictions(walk.config, walk.stages["dataset"], walk.address),
        needs=("dataset",),
        applies=lambda walk: read_section(walk).classifier is not None,
    ),
    Step("labels", run_labels, needs=("dataset", "worker_model"), uses=("known", "classifier")),
)
"""The steps of a run of a label log; `labels` is reached when it is decided which model of the workers is live."""
