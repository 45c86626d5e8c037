"""Flow that scores samples with the live model, or answers questions about them."""

from __future__ import annotations

from pmflib.cluster.workers import share_workers
from pmflib.model.table_makers import ScoreOptions
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord
from pmflib_flows.live_samples import choose_samples, find_live_run, ingest_data, name_data
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import follow_run
from pmflib_tasks.config import load_config
from pmflib_tasks.questions.answer import answer
from pmflib_tasks.scoring.score import score, score_files
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import open_store
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
    last, live, made = find_live_run(store, checked.name)
    dataset = choose_samples(store, last, made)
    requested = ScoreOptions(tuple(targets), probabilities, tuple(keep))
    number = 0 if made is None else made.number
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        if questions:
            return answer(checked, dataset, live, questions, address)
        reference_scores = reference(
            checked, _choose_reference(store, dataset, made), live, address
        )
        checked = name_data(checked, data)
        if checked.source.layout == "wide" and checked.source.sample is None:
            return score_files(checked, live, reference_scores, requested, number, tuple(columns))
        if data:
            dataset = ingest_data(checked, address)
        rest = live, reference_scores, requested, number, address
        return score(checked, dataset, *rest, is_new=bool(data))


def _choose_reference(store: Store, dataset: Reference, made: RunRecord | None) -> Reference:
    """Return the samples of the run that made the live model, so that percentiles are stable, or others if missing."""
    if made is None or store.find(made.stages["dataset"].identity) is None:
        return dataset
    return made.stages["dataset"]
