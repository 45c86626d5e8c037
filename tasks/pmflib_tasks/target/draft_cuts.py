"""Cuts of a draft's numeric columns by its target, chosen on the training folds of the pipeline alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pmflib.inference.target.cuts import TRIAL_WORK, choose_cuts, fit_trial
from pmflib.inference.target.rivals import LEAST_COMPARED, MOST_COMPARED
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import Source
from pmflib.surveys.drafting.drafted_schema import DraftedSchema
from pmflib.surveys.drafting.drawn_rows import draw_rows
from pmflib.surveys.drafting.schema_draft import note_columns
from pmflib_tasks.config.data_sections import StoreConfig
from pmflib_tasks.config.model_sections import EvaluateConfig
from pmflib_tasks.config.pipeline import split_folds


def cut_draft(
    drafted: DraftedSchema, sources: Sequence[Source], source: SourceOptions, target: str
) -> DraftedSchema:
    """Cut numeric columns by the target where this predicts it better than bins at quantiles.

    Rows of the folds that a drafted pipeline validates and tests on are not used. Of the others, a fifth judges the
    cuts: see `choose_cuts`.

    Parameters
    ----------
    drafted
        The draft, with bins at quantiles.
    sources, source
        The files and their layout; long logs keep their bins.
    target
        Variable to predict, which keeps its own bins.

    Returns
    -------
    The draft with the chosen cuts, and a note with the difference and its standard error if cuts were compared.

    Raises
    ------
    SourceError
        If a file cannot be read.
    """
    schema = drafted.schema
    place = schema.position(target)
    numeric = [each for each in range(schema.n_variables) if schema[each].edges is not None]
    numeric = [each for each in numeric if each != place]
    if source.layout == "long" or not numeric:
        return drafted
    n_folds, held_out = StoreConfig().folds, EvaluateConfig()
    folds = split_folds(n_folds, held_out.validation_folds, held_out.test_folds)
    rows = draw_rows(
        sources,
        schema,
        source,
        n_folds=n_folds,
        folds=folds.train,
        target=place,
        numeric=numeric,
        most=max(
            1, min(MOST_COMPARED, TRIAL_WORK // (schema.n_variables * schema[place].cardinality))
        ),
    )
    if len(rows.block) < LEAST_COMPARED:
        return drafted
    fit = partial(fit_trial, target=place)
    chosen = choose_cuts(rows.block, schema, place, rows.numbers, fit(rows.block, schema), fit)
    columns = dict(drafted.columns)
    for variable, old in zip(chosen.schema, schema, strict=True):
        if variable != old:
            note = f"continuous: cut into {variable.cardinality} bins by {target!r}; values are the bins' means"
            columns[variable.name] = replace(columns[variable.name], note=note)
    before = set(note_columns(drafted.columns))
    others = [note for note in drafted.notes if note not in before]
    notes = (*others, *note_columns(columns), *chosen.notes)
    return replace(drafted, schema=chosen.schema, columns=columns, notes=notes)
