"""Answers to questions about stored samples as Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.base.arrays import IntArray
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.dataset.identifiers import make_keys
from pmflib.model import JointPMF
from pmflib.store.dataset import Layer
from pmflib.store.sample_blocks import read_block, read_origins
from pmflib_tasks.questions.answers import Questions, answer_questions, score_answers

ANSWERS = "answers.parquet"
"""File that `answer_stored` writes."""


def answer_stored(
    client: Client,
    layers: Sequence[Layer],
    n_buckets: int,
    model: JointPMF,
    questions: Questions,
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Answer questions about stored samples from their observed cells.

    Parameters
    ----------
    client, model, on_partition
        As for `pmflib.answering.sample_tables.parts.score_stored`; partitions without a question are not read.
    layers
        Partitions of a dataset; the key of a sample determines which of them may hold it.
    n_buckets
        Buckets of the dataset.
    questions
        Samples, and the variable to predict of each.
    folder
        Existing folder, in which ``ANSWERS`` is written, with a row per question, in order: sample, variable, known
        (whether the dataset has the sample), label, probability, expected, log_prob; null if the schema lacks the
        variable.

    Returns
    -------
    Number of questions, of those about samples that the dataset lacks, and the measures of `score_answers` if true
    answers were given.

    Raises
    ------
    StoreError
        If a partition is missing or damaged.
    """
    keys = make_keys(questions.hashes, n_buckets)
    items = []
    for layer in layers:
        mine = (keys >= np.uint64(layer.first_key)) & (keys <= np.uint64(layer.last_key))
        if mine.any():
            items.append((layer, np.flatnonzero(mine)))
    tables = map_items(
        client, _answer_partition, items, questions, model, on_result=_count_up(on_partition, items)
    )
    # samples in no partition are unknown
    known = np.concatenate([np.empty(0, np.int64), *(t["question"].to_numpy() for t in tables)])
    others = np.setdiff1d(np.arange(len(questions.samples)), known)
    nothing = np.full((others.size, model.schema.n_variables), -1, model.schema.code_dtype)
    tables.append(_answer(nothing, others, questions, model, known=False))
    table = pa.concat_tables(tables).sort_by("question").drop_columns(["question"])
    pq.write_table(table, folder / ANSWERS, compression="zstd")
    measures = score_answers(table, questions.variables, questions.truths, model)
    return {"questions": len(questions.samples), "unknown": int(others.size), **measures}


def _count_up(
    on_partition: Callable[[int, int], None] | None, items: Sequence[object]
) -> Callable[[int], None] | None:
    if on_partition is None:
        return None
    return lambda done: on_partition(done, len(items))


def _answer_partition(
    item: tuple[Layer, IntArray], questions: Questions, model: JointPMF
) -> pa.Table:
    """Answer the questions about samples in a partition; column "question" has their positions."""
    layer, mine = item
    _, samples = read_origins(layer.folder)
    positions = {sample: position for position, sample in enumerate(samples)}
    requested = [text.decode() for text in questions.samples.take(pa.array(mine)).to_pylist()]
    rows = np.array([positions.get(sample, -1) for sample in requested], np.int64)
    present = (rows >= 0) & ~np.isin(rows, layer.superseded)
    mine, rows = mine[present], rows[present]
    codes = np.full((mine.size, model.schema.n_variables), -1, model.schema.code_dtype)
    for block in layer.blocks:
        here = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        if here.size:
            # positions in the block, which has no superseded rows
            within = np.searchsorted(block.rows, rows[here])
            codes[here] = read_block(block).take(within).to_codes(model.schema.offsets)
    return _answer(codes, mine, questions, model, known=True)


def _answer(
    codes: IntArray, mine: IntArray, questions: Questions, model: JointPMF, *, known: bool
) -> pa.Table:
    """Answer questions from the codes of their samples."""
    variables = questions.variables[mine]
    answers = answer_questions(codes, np.maximum(variables, 0), questions.truths[mine], model)
    unknown = pa.array(variables < 0)
    for name, column in answers.items():
        answers[name] = pc.if_else(unknown, pa.scalar(None, column.type), column)
    origin = {
        "sample": questions.samples.take(pa.array(mine)).cast(pa.string()),
        "variable": questions.names.take(pa.array(mine)),
        "known": pa.array(np.full(mine.size, known)),
    }
    return pa.table({"question": pa.array(mine), **origin, **answers})
