"""Command that relates latent classes to external variables by three-step estimation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pmflib.base.errors import ConfigError, StoreError
from pmflib_flows.console import AsJson, ConfigPath, err, load_pipeline, out, print_json

if TYPE_CHECKING:
    import pyarrow as pa

    from pmflib.inference.three_steps.three_step_results import ThreeSteps
    from pmflib.model import JointPMF
    from pmflib_tasks.config import PipelineConfig
    from pmflib_tasks.three_steps.sample_relations import KnownSamples


def three_steps(
    config: ConfigPath,
    table: Annotated[
        str,
        typer.Argument(help="File with one row per sample: CSV or Parquet, optionally compressed."),
    ],
    outcome: Annotated[
        list[str] | None,
        typer.Option(help="Column to describe in each class; may be repeated."),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option(help="Column that classes are regressed on; may be repeated."),
    ] = None,
    nominal: Annotated[
        list[str] | None,
        typer.Option(help="Column whose numbers are category codes; may be repeated."),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(help="Column with the sample identifier.", show_default="source.sample"),
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(
            help="Correction for classification error: bch or ml.",
            show_default="bch of outcomes, ml of covariates",
        ),
    ] = None,
    assignment: Annotated[
        str,
        typer.Option(help="Assignment of samples: modal (most probable class) or proportional."),
    ] = "modal",
    reference: Annotated[
        int | None,
        typer.Option(help="Reference class for comparisons.", show_default="the largest"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Output file for all estimates, as for pmf score.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Relate the live model's latent classes to external variables that were not used to fit it.

    Outcomes are described by class, and covariates predict class membership; both are corrected for classification
    error. Standard errors account for the estimation of the classes, and for the pipeline's weights, strata and
    sampling units, or replicate weights.
    """
    from pmflib.store.table_files import check_suffix
    from pmflib_tasks.three_steps.sample_relations import read_table

    outcomes, covariates = outcome or [], covariate or []
    if not outcomes and not covariates:
        raise ConfigError("give --outcome or --covariate, a column of the file")
    if output is not None:
        check_suffix(output)
    checked = load_pipeline(config)
    if checked.source.sample is None:
        raise ConfigError(
            "source.sample is not set: which row of the file is of which sample is not known; name the column of "
            "identifiers, and run again"
        )
    model, known = _open(checked)
    for name in (*outcomes, *covariates):
        if name in model.schema:
            raise ConfigError(
                f"{name!r} is a variable of the model, which the classes were found by; ask `pmf query` for it, or "
                "take it out of the schema and run again"
            )
    names = list(dict.fromkeys([*outcomes, *covariates]))
    given = read_table(table, checked.source, names, sample=sample, nominal=nominal or [])
    columns, n_found = given.align(known.names)
    options: dict[str, Any] = {"assignment": assignment} | (
        {} if correction is None else {"correction": correction}
    )
    found = _relate(model, known, columns, outcomes, covariates, reference, options)
    facts: dict[str, Any] = {"samples": len(known.names), "in_the_file": n_found}
    facts |= {"rows_skipped": given.n_skipped}
    if output is not None:
        _write(output, found)
    if as_json:
        print_json({**facts, "results": {name: each.to_json() for name, each in found.items()}})
        return
    out.print(f"{n_found:,} of {len(known.names):,} samples have a row in {table}")
    if given.n_skipped:
        what = "rows of it have no identifier, or too few or too many fields, and are left out"
        err.print(f"warning: {given.n_skipped:,} {what}", style="yellow")
    for name, each in found.items():
        _show(name, each)


def _open(config: PipelineConfig) -> tuple[JointPMF, KnownSamples]:
    """Load the live model and the samples to which it was fitted."""
    from pmflib.model import JointPMF
    from pmflib.store.run_records import find_live, find_run_of
    from pmflib_tasks.stage import open_store
    from pmflib_tasks.three_steps.sample_relations import read_samples

    store = open_store(config)
    if (live := find_live(store, config.name)) is None:
        raise StoreError(f"pipeline {config.name!r} has no live model yet; `pmf run` makes one")
    made, entry = find_run_of(store, config.name, live), store.find(live.identity)
    if made is None or entry is None or store.find(made.stages["dataset"].identity) is None:
        raise StoreError(
            f"the samples that the live model of {config.name!r} was fitted to are not in the store any more; "
            "`pmf run` makes both"
        )
    model = JointPMF.load(store.locate(live) / "model")
    folds = {int(fold) for fold in entry.options["train"]}
    return model, read_samples(store, made.stages["dataset"], model.schema, folds)


def _relate(
    model: JointPMF,
    known: KnownSamples,
    columns: pa.Table,
    outcomes: list[str],
    covariates: list[str],
    reference: int | None,
    options: dict[str, Any],
) -> dict[str, ThreeSteps]:
    """Compute the results by outcome; that of the covariates is "classes"."""
    from pmflib.inference.three_steps.three_steps import class_regression, distal_outcome

    shared: dict[str, Any] = {"design": known.design, "fitted": known.fitted, **options}
    found: dict[str, ThreeSteps] = {
        name: distal_outcome(model, known.codes, columns[name], **shared) for name in outcomes
    }
    if covariates:
        own = columns.select(covariates)
        found[CLASSES] = class_regression(model, known.codes, own, reference=reference, **shared)
    return found


CLASSES: Literal["classes"] = "classes"
"""Name of the results of the regression of classes on covariates."""


def _write(path: Path, found: dict[str, ThreeSteps]) -> None:
    """Write all estimates to one table."""
    import pyarrow as pa

    from pmflib.store.table_files import write_file

    names = ("of", "class", "level", "covariate", "values", "errors", "lower", "upper")
    kinds = (pa.string(), pa.int64(), pa.string(), pa.string(), *(4 * (pa.float64(),)))
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    rows = [{"of": name, **row} for name, each in found.items() for row in each.table.to_pylist()]
    write_file(path, schema, [pa.Table.from_pylist(rows, schema)])


def _show(name: str, found: ThreeSteps) -> None:
    """Print the tables and notes of a result."""
    from pmflib_flows.tables import make_table

    summary = found.summary()
    for table in summary.tables:
        title = table.title if name == CLASSES else f"{name}: {table.title}"
        columns = [column.removeprefix(">") for column in table.columns]
        out.print(make_table(title, columns, table.rows))
    for key, text in summary.facts:
        out.print(f"{key}: {text}")
    for note in summary.notes:
        err.print(f"warning: {note}", style="yellow")
