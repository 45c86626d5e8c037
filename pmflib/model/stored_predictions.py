"""Predictions for stored samples, and answers to questions about them, as Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.ingest.questions import Questions
from pmflib.model import JointPMF
from pmflib.model.scoring import answer_questions, judge_answers, score_samples
from pmflib.running.clients import Client
from pmflib.running.maps import map_items
from pmflib.store.sample_blocks import list_blocks, read_block, read_origins

ANSWERS = "answers.parquet"
"""Name of the file that `answer_stored` writes."""


def score_stored(
    client: Client,
    partitions: Sequence[Path],
    model: JointPMF,
    targets: Sequence[str],
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
) -> int:
    """Score every stored sample, and predict some variables of each from the others.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    partitions
        Zarr groups of sample blocks.
    model
        The model.
    targets
        Names of the variables to predict.
    folder
        Existing folder, seen by all workers; gets one Parquet file per partition, in order, with the columns of
        `score_samples`.
    on_partition
        Called with the number of partitions done and their total, each time one is done.

    Returns
    -------
    Number of samples.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    items = [(path, folder / f"part-{place:05}.parquet") for place, path in enumerate(partitions)]
    n_samples = map_items(
        client, _score_partition, items, model, targets, on_result=_count_up(on_partition, items)
    )
    return sum(n_samples)


def answer_stored(
    client: Client,
    partitions: Sequence[Path],
    model: JointPMF,
    questions: Questions,
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Answer questions about stored samples, each from what the dataset knows of its sample.

    Parameters
    ----------
    client, model, on_partition
        As for `score_stored`; partitions without a question are not read.
    partitions
        Zarr groups of sample blocks: as many as there were buckets, in order, so that the hash of a sample's identifier
        says which one may hold it.
    questions
        Samples, and the variable to predict of each.
    folder
        Existing folder; gets ``ANSWERS``, a row per question, in order: sample, variable, known (whether the dataset
        has the sample), label, probability, expected, log_prob; null where the schema has no such variable.

    Returns
    -------
    Number of questions, and the measures of `judge_answers` where true answers were given.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    bucket = (questions.hashes % np.uint64(len(partitions))).astype(np.int64)
    items = [(path, np.flatnonzero(bucket == place)) for place, path in enumerate(partitions)]
    items = [item for item in items if item[1].size]
    tables = map_items(
        client, _answer_partition, items, questions, model, on_result=_count_up(on_partition, items)
    )
    table = pa.concat_tables(tables).sort_by("question").drop_columns(["question"])
    pq.write_table(table, folder / ANSWERS, compression="zstd")
    measures = judge_answers(table, questions.variables, questions.truths, model)
    return {"questions": len(questions.samples), **measures}


def _count_up(
    on_partition: Callable[[int, int], None] | None, items: Sequence[object]
) -> Callable[[int], None] | None:
    if on_partition is None:
        return None
    return lambda done: on_partition(done, len(items))


def _score_partition(item: tuple[Path, Path], model: JointPMF, targets: Sequence[str]) -> int:
    """Score one partition into one Parquet file, block by block; return its number of samples."""
    path, out = item
    rows, samples = read_origins(path)
    empty = np.empty((0, model.schema.n_variables), model.schema.code_dtype)
    columns = score_samples(empty, model, targets, [], rows[:0]).schema
    with pq.ParquetWriter(out, columns, compression="zstd") as writer:
        for block in list_blocks(path):
            here = slice(block.start, block.stop)
            codes = read_block(block).to_codes(model.schema.offsets)
            writer.write_table(score_samples(codes, model, targets, samples[here], rows[here]))
    return len(rows)


def _answer_partition(
    item: tuple[Path, IntArray], questions: Questions, model: JointPMF
) -> pa.Table:
    """Answer the questions about samples of one partition; column "question" holds their places."""
    path, mine = item
    _, samples = read_origins(path)
    places = {sample: place for place, sample in enumerate(samples)}
    wanted = [text.decode() for text in questions.samples.take(pa.array(mine)).to_pylist()]
    rows = np.array([places.get(sample, -1) for sample in wanted], np.int64)
    codes = np.full((mine.size, model.schema.n_variables), -1, model.schema.code_dtype)
    for block in list_blocks(path):
        here = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        codes[here] = (
            read_block(block).take(rows[here] - block.start).to_codes(model.schema.offsets)
        )
    variables = questions.variables[mine]
    answers = answer_questions(codes, np.maximum(variables, 0), questions.truths[mine], model)
    unknown = pa.array(variables < 0)
    for name, column in answers.items():
        answers[name] = pc.if_else(unknown, pa.scalar(None, column.type), column)
    origin = {
        "sample": pa.array(wanted),
        "variable": questions.names.take(pa.array(mine)),
        "known": pa.array(rows >= 0),
    }
    return pa.table({"question": pa.array(mine), **origin, **answers})
