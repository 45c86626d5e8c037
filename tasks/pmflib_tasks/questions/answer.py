"""Stage: answers to questions about stored samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.ingest.dataset.build_steps import ERASURES
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.file_accounts import read_files
from pmflib.ingest.sources import digest_source, find_sources
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_layers, read_content
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.holdings import Holder, look_into_tables
from pmflib_tasks.questions.answers import read_questions
from pmflib_tasks.questions.stored_predictions import answer_stored
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

# 4: samples spelt as in the dataset, and the number of unknown ones
VERSION = 4


@stage(name="answer", makes="answers")
def answer(
    config: PipelineConfig, dataset: Reference, model: Reference, questions: str, address: str = ""
) -> Reference:
    """Answer questions, each about a variable of a sample, from what the dataset knows of the sample.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long.
    dataset, model
        References from `ingest` and `refine`.
    questions
        A file of questions, with or without the true answers: see `read_questions`. Those about erased samples are
        passed over.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to a folder with the table that `answer_stored` writes; the entry's summary is what it returns.

    Raises
    ------
    ConfigError, SourceError
        If the source is not laid out long, or the questions cannot be read.
    """
    store = open_store(config)
    fitted = JointPMF.load(store.locate(model) / "model")
    source = find_sources(questions)[0]
    erased = ErasedSamples.of_store(store)
    options = {} if erased is None else {ERASURES: erased.digest}
    raw = store.record_source(source.name, digest_source(source), {"bytes": source.size}).reference

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        files = read_files(store, dataset, counted=False)
        forms = {form for file in files for form in file.forms}
        requested = read_questions(source, fitted.schema, config.source).spell_like(forms)
        requested = requested.leave_out(erased)
        layers, show = list_layers(store, dataset), partial(report_progress, "answer")
        n_buckets = read_content(store, dataset)["origin"]["buckets"]
        with open_workers(config, address) as (client, _):
            return answer_stored(client, layers, n_buckets, fitted, requested, folder, show)

    return build_artefact(
        store,
        "answers",
        inputs={"dataset": dataset, "model": model, "questions": raw},
        options={"source": config.source.reading, **options},
        version=VERSION,
        write=write,
    ).reference


HOLDER = Holder({"answers": look_into_tables})
"""Answers are tables with a column of samples."""
