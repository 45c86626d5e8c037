"""Stages: predictions for samples, and answers to questions about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.config import PipelineConfig
from pmflib.ingest.questions import Questions, read_questions
from pmflib.ingest.sources import digest_source, find_sources
from pmflib.model import JointPMF
from pmflib.model.scoring import answer_questions, judge_answers, score_samples
from pmflib.running.maps import map_items
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import SAMPLES, read_partitions
from pmflib.store.sample_blocks import list_blocks, read_block, read_origins
from tasks.stage import build_artefact, open_store, open_workers, report, stage

VERSION = 1


@stage(name="score")
def score(
    config: PipelineConfig,
    dataset: Reference,
    model: Reference,
    targets: tuple[str, ...],
    address: str = "",
) -> Reference:
    """Score every sample of a dataset, and predict some variables of each.

    Parameters
    ----------
    config
        The pipeline.
    dataset, model
        What `ingest` and `refine` returned.
    targets
        Names of the variables to predict from the others.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to a folder of Parquet files, one per partition, with the columns of `score_samples`.

    Raises
    ------
    SchemaError
        If a target is no variable.
    """
    store = open_store(config)
    fitted = JointPMF.load(store.locate(model) / "model")
    for target in targets:
        fitted.schema.position(target)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        parts = [str(store.locate(part) / SAMPLES) for part in read_partitions(store, dataset)]
        items = [
            (path, str(folder / f"part-{place:05}.parquet")) for place, path in enumerate(parts)
        ]
        with open_workers(config, address) as (client, _):
            n_rows = map_items(
                client,
                _score_partition,
                items,
                fitted,
                targets,
                on_result=lambda done: report("score", done, len(items)),
            )
        return {"samples": sum(n_rows), "targets": list(targets)}

    entry = build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, "model": model},
        options={"targets": list(targets)},
        version=VERSION,
        write=write,
    )
    return entry.reference


def _score_partition(item: tuple[str, str], model: JointPMF, targets: tuple[str, ...]) -> int:
    """Score one partition into one Parquet file, block by block; return its samples."""
    path, out = item
    rows, samples = read_origins(Path(path))
    empty = np.empty((0, model.schema.n_variables), model.schema.code_dtype)
    columns = score_samples(empty, model, targets, [], rows[:0]).schema
    with pq.ParquetWriter(out, columns, compression="zstd") as writer:
        for block in list_blocks(Path(path)):
            here = slice(block.start, block.stop)
            codes = read_block(block).to_codes(model.schema.offsets)
            writer.write_table(score_samples(codes, model, targets, samples[here], rows[here]))
    return len(rows)


@stage(name="answer")
def answer(
    config: PipelineConfig, dataset: Reference, model: Reference, questions: str, address: str = ""
) -> Reference:
    """Answer questions (sample, variable) from what the dataset knows of each sample.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long.
    dataset, model
        What `ingest` and `refine` returned.
    questions
        A file of questions, with or without the true answers: see `read_questions`.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to a folder with ``answers.parquet``: a row per question, in order: sample, variable, known (whether the
    dataset has the sample), label, probability, expected, log_prob; null where the schema has no such variable. If true
    answers were given, the entry's summary holds accuracy, root mean squared and mean absolute error.

    Raises
    ------
    ConfigError, SourceError
        If questions cannot be asked of this source, or read.
    """
    store = open_store(config)
    fitted = JointPMF.load(store.locate(model) / "model")
    source = find_sources(questions)[0]
    raw = store.record_source(source.name, digest_source(source), {"bytes": source.size}).reference

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        asked = read_questions(source, fitted.schema, config.source)
        parts = [str(store.locate(part) / SAMPLES) for part in read_partitions(store, dataset)]
        bucket = (asked.hashes % np.uint64(len(parts))).astype(np.int64)
        items = [(path, np.flatnonzero(bucket == place)) for place, path in enumerate(parts)]
        items = [item for item in items if item[1].size]
        with open_workers(config, address) as (client, _):
            tables = map_items(
                client,
                _answer_partition,
                items,
                asked,
                fitted,
                on_result=lambda done: report("answer", done, len(items)),
            )
        table = pa.concat_tables(tables).sort_by("question").drop_columns(["question"])
        pq.write_table(table, folder / "answers.parquet", compression="zstd")
        return {
            "questions": len(asked.samples),
            **judge_answers(table, asked.variables, asked.truths, fitted),
        }

    entry = build_artefact(
        store,
        "answers",
        inputs={"dataset": dataset, "model": model, "questions": raw},
        options={"source": config.source.model_dump(mode="json", exclude={"path", "missing"})},
        version=VERSION,
        write=write,
    )
    return entry.reference


def _answer_partition(item: tuple[str, IntArray], asked: Questions, model: JointPMF) -> pa.Table:
    """Answer the questions about samples of one partition."""
    path, mine = item
    _, samples = read_origins(Path(path))
    places = {sample: place for place, sample in enumerate(samples)}
    wanted = [text.decode() for text in asked.samples.take(pa.array(mine)).to_pylist()]
    rows = np.array([places.get(sample, -1) for sample in wanted], np.int64)
    codes = np.full((mine.size, model.schema.n_variables), -1, model.schema.code_dtype)
    for block in list_blocks(Path(path)):
        here = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        codes[here] = (
            read_block(block).take(rows[here] - block.start).to_codes(model.schema.offsets)
        )
    variables = asked.variables[mine]
    answers = answer_questions(codes, np.maximum(variables, 0), asked.truths[mine], model)
    unknown = pa.array(variables < 0)
    for name, column in answers.items():
        answers[name] = pc.if_else(unknown, pa.scalar(None, column.type), column)
    origin = {
        "sample": pa.array(wanted),
        "variable": asked.names.take(pa.array(mine)),
        "known": pa.array(rows >= 0),
    }
    return pa.table({"question": pa.array(mine), **origin, **answers})
