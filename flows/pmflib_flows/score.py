"""Flows that apply the live model to samples: predictions, answers to questions, imputation and recommendations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pmflib.apps.recommending.options import Recommendations
from pmflib.apps.scoring.parts import soften_policy
from pmflib.apps.scoring.score_tables import ScoreOptions
from pmflib.base.errors import StoreError
from pmflib.cluster.workers import share_workers
from pmflib.ingest.options import DESIGN_OPTIONS
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord, find_last_run, find_live, find_run_of
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import follow_run
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.imputation.impute import impute
from pmflib_tasks.questions.answer import answer
from pmflib_tasks.recommending.recommend import recommend
from pmflib_tasks.scoring.score import score, score_files
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.reference import reference


@pipeline_flow(name="score")
def score_flow(
    config: str,
    data: str = "",
    questions: str = "",
    targets: tuple[str, ...] = (),
    probabilities: bool = False,
    keep: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
) -> Reference:
    """Score samples, or answer questions, with the live model.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    data
        New samples, in the layout of the pipeline's source; by default the samples of the last run or, if samples have
        no identifiers, the rows of the pipeline's files.
    questions
        File of questions about the samples of the last run, in place of scoring.
    targets
        Variables to predict.
    probabilities
        Whether to include the probability of every level of a target.
    keep
        Variables to copy to the output.
    columns
        Other columns to copy to the output, for wide files without identifiers.

    Returns
    -------
    Reference to the predictions, or to the answers.

    Raises
    ------
    StoreError
        If the pipeline has no live model yet.
    """
    checked = load_config(config)
    store = open_store(checked)
    last, live, made = _find_live_run(store, checked.name)
    dataset = _choose_samples(store, last, made)
    requested = ScoreOptions(tuple(targets), probabilities, tuple(keep))
    number = 0 if made is None else made.number
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        if questions:
            return answer(checked, dataset, live, questions, address)
        reference_scores = reference(
            checked, _choose_reference(store, dataset, made), live, address
        )
        checked = _name_data(checked, data)
        if checked.source.layout == "wide" and checked.source.sample is None:
            return score_files(checked, live, reference_scores, requested, number, tuple(columns))
        if data:
            dataset = _ingest_data(checked, address)
        rest = live, reference_scores, requested, number, address
        return score(checked, dataset, *rest, is_new=bool(data))


@pipeline_flow(name="impute")
def impute_flow(
    config: str,
    draws: int = 1,
    data: str = "",
    columns: tuple[str, ...] = (),
    seed: int | None = None,
) -> Reference:
    """Impute missing answers of samples with draws from the live model.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    draws
        Number of imputations of every sample, at least 1; several are each based on a fit to a bootstrap sample.
    data, columns
        As for `score_flow`.
    seed
        Random seed; None uses that of the pipeline.

    Returns
    -------
    Reference to the imputed samples.

    Raises
    ------
    StoreError
        If the pipeline has no live model yet, or the samples to which it was fitted are missing.
    """
    own = draws, load_config(config).seed if seed is None else seed
    return _run_stage(impute, "dataset", config, own, data, columns)


@pipeline_flow(name="recommend")
def recommend_flow(
    config: str, options: dict[str, Any], data: str = "", columns: tuple[str, ...] = ()
) -> Reference:
    """Recommend items to samples with the live model.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    options
        Fields of `pmflib.apps.recommending.options.Recommendations`.
    data, columns
        As for `score_flow`.

    Returns
    -------
    Reference to the recommendations.

    Raises
    ------
    StoreError
        If the pipeline has no live model yet, or the counts of the run that made it are missing.
    """
    return _run_stage(recommend, "counts", config, (Recommendations(**options),), data, columns)


def _run_stage(
    task: Callable[..., Reference],
    needed: str,
    config: str,
    own: tuple[Any, ...],
    data: str,
    columns: tuple[str, ...],
) -> Reference:
    """Run a stage that needs samples, the live model, and an artefact of the run that made it."""
    checked = load_config(config)
    store = open_store(checked)
    last, live, made = _find_live_run(store, checked.name)
    if needed == "counts" and made is not None and "pooled" in made.stages:
        needed = "pooled"
    if made is None or store.find(made.stages[needed].identity) is None:
        raise StoreError(
            f"the store no longer has the {needed} of the run that made the live model of {checked.name!r}; `pmf run` "
            "makes both"
        )
    dataset: Reference | None = _choose_samples(store, last, made)
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        checked = _name_data(checked, data)
        if checked.source.layout == "wide" and checked.source.sample is None:
            dataset = None
        elif data:
            dataset = _ingest_data(checked, address)
        rest = made.number, columns, address, bool(data) and dataset is not None
        return task(checked, dataset, live, made.stages[needed], *own, *rest)


def _find_live_run(store: Store, name: str) -> tuple[RunRecord, Reference, RunRecord | None]:
    """Return the last run of a pipeline, its live model, and the run that made the model, if known."""
    last, live = find_last_run(store, name), find_live(store, name)
    if last is None or live is None:
        raise StoreError(f"pipeline {name!r} has no live model; `pmf run` makes one")
    return last, live, find_run_of(store, name, live)


def _name_data(config: PipelineConfig, data: str) -> PipelineConfig:
    """Return the configuration with new files as its source, whose weights are not needed, if any are given."""
    if not data:
        return config
    unread = dict.fromkeys(DESIGN_OPTIONS)
    source = config.source.model_copy(update={"path": data, **unread})
    return config.model_copy(update={"source": source})


def _ingest_data(config: PipelineConfig, address: str) -> Reference:
    """Ingest samples from new files, in which a row with an unknown level is not rejected."""
    policy = soften_policy(config.schema_)
    return ingest(config.model_copy(update={"schema_": policy}), address)


def _choose_samples(store: Store, last: RunRecord, made: RunRecord | None) -> Reference:
    """Return the samples of the last run, or those of the live model if the schema has changed since."""
    datasets = [run.stages["dataset"] for run in (last, made) if run is not None]
    entries = [store.find(dataset.identity) for dataset in datasets]
    schemas = {entry.options.get("schema") for entry in entries if entry is not None}
    return datasets[0 if len(schemas) == 1 else -1]


def _choose_reference(store: Store, dataset: Reference, made: RunRecord | None) -> Reference:
    """Return the samples of the run that made the live model, so that percentiles are stable, or others if missing."""
    if made is None or store.find(made.stages["dataset"].identity) is None:
        return dataset
    return made.stages["dataset"]
