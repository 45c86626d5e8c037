"""Predictions for stored samples, and answers to questions about them, as Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.ingest.buckets import make_keys
from pmflib.ingest.questions import Questions
from pmflib.model import JointPMF
from pmflib.model.scoring import answer_questions, judge_answers, score_samples
from pmflib.model.target_measures import TargetSums
from pmflib.running.clients import Client
from pmflib.running.maps import map_items
from pmflib.store.dataset import Layer
from pmflib.store.sample_blocks import read_block, read_blocks, read_origins

ANSWERS = "answers.parquet"
"""Name of the file that `answer_stored` writes."""


def score_stored(
    client: Client,
    layers: Sequence[Layer],
    model: JointPMF,
    targets: Sequence[str],
    folder: Path,
    on_partition: Callable[[int, int], None] | None = None,
    *,
    probabilities: bool = False,
    keep: Sequence[str] = (),
) -> tuple[int, dict[str, dict[str, float]]]:
    """Score every stored sample, and predict some variables of each from the others.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    layers
        Partitions of a dataset.
    model
        The model.
    targets
        Names of the variables to predict.
    folder
        Existing folder, seen by all workers; gets one Parquet file per partition, in order, with the columns of
        `score_samples`.
    on_partition
        Called with the number of partitions done and their total, each time one is done.
    probabilities, keep
        As for `score_samples`.

    Returns
    -------
    Number of samples; and for each target the measures of `TargetSums.measure`.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    items = [(layer, folder / f"part-{place:05}.parquet") for place, layer in enumerate(layers)]
    wanted = (tuple(targets), probabilities, tuple(keep))
    scored = map_items(
        client, _score_partition, items, model, wanted, on_result=_count_up(on_partition, items)
    )
    measures = {
        target: TargetSums.merge([sums[place] for _, sums in scored]).measure()
        for place, target in enumerate(targets)
    }
    return sum(n_samples for n_samples, _ in scored), measures


def answer_stored(
    client: Client,
    layers: Sequence[Layer],
    n_buckets: int,
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
    layers
        Partitions of a dataset; the key of a sample says which of them may hold it.
    n_buckets
        Buckets of the dataset.
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
    keys = make_keys(questions.hashes, n_buckets)
    items = []
    for layer in layers:
        mine = (keys >= np.uint64(layer.first_key)) & (keys <= np.uint64(layer.last_key))
        if mine.any():
            items.append((layer, np.flatnonzero(mine)))
    tables = map_items(
        client, _answer_partition, items, questions, model, on_result=_count_up(on_partition, items)
    )
    # whoever is in no partition is not known
    known = np.concatenate([np.empty(0, np.int64), *(t["question"].to_numpy() for t in tables)])
    others = np.setdiff1d(np.arange(len(questions.samples)), known)
    nothing = np.full((others.size, model.schema.n_variables), -1, model.schema.code_dtype)
    tables.append(_answer(nothing, others, questions, model, known=False))
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


def _score_partition(
    item: tuple[Layer, Path], model: JointPMF, wanted: tuple[Sequence[str], bool, Sequence[str]]
) -> tuple[int, list[TargetSums]]:
    """Score one partition into one Parquet file, block by block; return its number of samples, and sums per target."""
    targets, probabilities, keep = wanted
    options: dict[str, Any] = {"probabilities": probabilities, "keep": keep}
    layer, out = item
    rows, samples = read_origins(Path(layer.path))
    names = np.array(samples, object)
    empty = np.empty((0, model.schema.n_variables), model.schema.code_dtype)
    columns = score_samples(empty, model, targets, [], rows[:0], **options)[0].schema
    parts = [[TargetSums()] * len(targets)]
    with pq.ParquetWriter(out, columns, compression="zstd") as writer:
        for reference, block in zip(layer.blocks, read_blocks(layer.blocks), strict=True):
            codes, here = block.to_codes(model.schema.offsets), reference.rows
            table, sums = score_samples(
                codes, model, targets, names[here].tolist(), rows[here], **options
            )
            writer.write_table(table)
            parts.append(sums)
    return layer.n_rows, [TargetSums.merge(each) for each in zip(*parts, strict=True)]


def _answer_partition(
    item: tuple[Layer, IntArray], questions: Questions, model: JointPMF
) -> pa.Table:
    """Answer the questions about samples that a partition has; column "question" holds their places."""
    layer, mine = item
    _, samples = read_origins(Path(layer.path))
    places = {sample: place for place, sample in enumerate(samples)}
    wanted = [text.decode() for text in questions.samples.take(pa.array(mine)).to_pylist()]
    rows = np.array([places.get(sample, -1) for sample in wanted], np.int64)
    held = (rows >= 0) & ~np.isin(rows, layer.superseded)
    mine, rows = mine[held], rows[held]
    codes = np.full((mine.size, model.schema.n_variables), -1, model.schema.code_dtype)
    for block in layer.blocks:
        here = np.flatnonzero((rows >= block.start) & (rows < block.stop))
        if here.size:
            # rows of the block, without those that are superseded
            taken = np.searchsorted(block.rows, rows[here])
            codes[here] = read_block(block).take(taken).to_codes(model.schema.offsets)
    return _answer(codes, mine, questions, model, known=True)


def _answer(
    codes: IntArray, mine: IntArray, questions: Questions, model: JointPMF, *, known: bool
) -> pa.Table:
    """Answer some questions, each from the codes of its sample."""
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
