"""Conditions of a question that no row of the data meets, by the counts that the live model was fitted to."""

from __future__ import annotations

from pmflib.counting.pair_counts import PairCounts, load_shape
from pmflib.counting.stored_tables import PAIRS
from pmflib.model import JointPMF
from pmflib.model.conditions import find_unseen
from pmflib.model.query import Question, describe_conditions
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import find_run_of

MAX_LEVELS = 1_000
"""Levels of the largest schema whose counts are read for a question: 8 MB, read in an instant."""


def find_unseen_conditions(
    store: Store, name: str, live: Reference, model: JointPMF, question: Question
) -> str:
    """Find conditions that no row of the data meets together, by counts of pairs.

    Parameters
    ----------
    store, name
        Store of the pipeline, and its name.
    live, model
        The live model, where it is and what it is.
    question
        The question.

    Returns
    -------
    The conditions in words, one or two; empty where each pair was seen, or there are no counts.
    """
    made = find_run_of(store, name, live) if question.given else None
    if made is None or "counts" not in made.stages or model.schema.n_levels > MAX_LEVELS:
        return ""
    path = store.locate(made.stages["counts"]) / PAIRS
    if not path.exists() or load_shape(path)[0] != model.schema:
        return ""
    codes = model.encode_levels(question.given)
    places = find_unseen(PairCounts.load_total(path).tables[0], model.schema, codes)
    return describe_conditions(model.schema, codes, places)
