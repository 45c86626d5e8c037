"""Tables of true labels and crowd models, in the format of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.confidence import Calibration
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel, CrowdModel
from pmflib.apps.crowd.questions import choose_questions
from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.store.array_groups import read_arrays
from pmflib.store.zarr_arrays import write_arrays

N_UNCERTAIN = 10
"""Number of tasks listed in a summary for which another label would help most."""


def name_labels(folder: str, fold: int) -> str:
    """Name the file of the labels of a fold."""
    return f"{folder}/part-{fold:05}.parquet"


def make_label_fields(classes: Sequence[str]) -> pa.Schema:
    """Make the Arrow schema of `make_label_table`."""
    fields = [
        pa.field("task", pa.string()),
        pa.field("label", pa.string()),
        pa.field("confidence", pa.float64()),
        pa.field("n_labels", pa.int64()),
        pa.field("known", pa.bool_()),
    ]
    return pa.schema(
        [*fields, *(pa.field(f"probability.{name}", pa.float64()) for name in classes)]
    )


def make_label_table(
    tasks: pa.StringArray,
    chosen: IntArray,
    probabilities: FloatArray,
    n_labels: IntArray,
    is_known: BoolArray,
    classes: Sequence[str],
) -> pa.Table:
    """Make a table with one row per task: label, its probability, number of labels, and all probabilities.

    Parameters
    ----------
    tasks
        Names of the tasks.
    chosen
        int64 of shape (n_tasks,): most probable class of each task.
    probabilities
        float64 of shape (n_tasks, n_classes), calibrated.
    n_labels
        int64 of shape (n_tasks,): number of labels of each task.
    is_known
        bool of shape (n_tasks,): whether the class was known.
    classes
        Names of the classes.
    """
    columns = [
        tasks,
        pa.array(list(classes), pa.string()).take(pa.array(chosen)),
        pa.array(probabilities[np.arange(chosen.size), chosen]),
        pa.array(n_labels, pa.int64()),
        pa.array(is_known),
        *(pa.array(column) for column in probabilities.T),
    ]
    return pa.Table.from_arrays(columns, schema=make_label_fields(classes))


def make_question_fields(classes: Sequence[str]) -> pa.Schema:
    """Make the Arrow schema of `list_questions`: that of `make_label_table`, and indices of the workers of a task."""
    return make_label_fields(classes).append(pa.field("asked", pa.list_(pa.int64())))


def list_questions(table: pa.Table, labels: SparseBlock) -> pa.Table:
    """List the ``N_UNCERTAIN`` least certain tasks of a label table, with their workers.

    Parameters
    ----------
    table
        As from `make_label_table`.
    labels
        The same tasks as rows, labels as levels ``worker * n_classes + class``.
    """
    n_classes = len(table.column_names) - len(make_label_fields(()))
    rows = _order_uncertain(table)[:N_UNCERTAIN].to_numpy()
    block = labels.take(rows)
    asked = pa.ListArray.from_arrays(
        pa.array(block.indptr.astype(np.int32)),
        pa.array(block.indices.astype(np.int64) // n_classes),
    )
    return table.take(pa.array(rows)).append_column("asked", asked)


def pick_uncertain(tables: Sequence[pa.Table]) -> pa.Table:
    """Pick the ``N_UNCERTAIN`` least certain tasks of several tables, at least one; ties by name.

    Known tasks are left out.
    """
    joined = pa.concat_tables(tables)
    return joined.take(_order_uncertain(joined)[:N_UNCERTAIN])


def _order_uncertain(table: pa.Table) -> pa.Array:
    order = pc.sort_indices(table, [("confidence", "ascending"), ("task", "ascending")])
    return order.filter(pc.invert(table["known"].combine_chunks().take(order)))


class AskedTask(TypedDict):
    """Uncertain task and worker to ask: `pmflib.apps.crowd.Aggregation.ask_again`; None is a new worker."""

    task: str
    label: str
    confidence: float
    n_labels: int
    worker: str | None
    gain: float


def choose_asked_workers(
    questions: pa.Table, calibration: Calibration, workers: Sequence[str], classes: Sequence[str]
) -> list[AskedTask]:
    """Choose the worker to ask for each of some uncertain tasks, with the expected gain.

    Parameters
    ----------
    questions
        As from `list_questions`.
    calibration
        Calibration of their probabilities.
    workers, classes
        Names.

    Returns
    -------
    The tasks, by decreasing gain.
    """
    columns = [questions[f"probability.{name}"].to_numpy() for name in classes]
    probabilities = np.stack(columns, axis=1)
    asked = [np.array(who, np.int64) for who in questions["asked"].to_pylist()]
    indices, chosen, gains = choose_questions(probabilities, calibration, asked, len(asked))
    facts = questions.select(["task", "label", "confidence", "n_labels"]).to_pylist()
    rows = zip(indices.tolist(), chosen.tolist(), gains.tolist(), strict=True)
    return [
        {
            "task": facts[index]["task"],
            "label": facts[index]["label"],
            "confidence": facts[index]["confidence"],
            "n_labels": facts[index]["n_labels"],
            "worker": workers[who] if who >= 0 else None,
            "gain": gain,
        }
        for index, who, gain in rows
    ]


KIND = "crowd-model"


def save_crowd_model(path: Path, model: CrowdModel, rng: np.random.Generator) -> None:
    """Write a crowd model with one subclass as a Zarr group, with the state of the random generator.

    The folder must not exist.
    """
    arrays = {
        "states": (model.states, ("class",)),
        "mass": (model.mass, ("worker", "label", "class")),
    }
    attributes = {
        "kind": KIND,
        "pseudo_count": model.pseudo_count,
        "vote_weight": model.vote_weight,
        "annotator_model": asdict(model.annotator_model),
        # as text: its integers exceed the range of most JSON readers
        "generator": json.dumps(rng.bit_generator.state),
    }
    write_arrays(path, arrays, attributes)


def load_crowd_model(path: Path) -> tuple[CrowdModel, np.random.Generator]:
    """Read a crowd model written by `save_crowd_model`, bitwise equal; the random generator continues from its state.

    Raises
    ------
    StoreError
        If the group is missing, damaged, or not a crowd model.
    """
    arrays, attributes = read_arrays(path, kind=KIND)
    model = CrowdModel(
        arrays["states"],
        arrays["mass"],
        float(attributes["pseudo_count"]),
        AnnotatorModel(**attributes["annotator_model"]),
        float(attributes["vote_weight"]),
    )
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(attributes["generator"])
    return model, rng
