"""Command that hands on the counts of a pipeline: counts export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmflib.base.errors import StoreError
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json

counts = typer.Typer(
    help="Hand on the counts of a pipeline without its rows.", add_completion=False
)


@counts.command()
def export(
    config: ConfigPath,
    output: Annotated[Path, typer.Option(help="Output file.")] = Path("site.counts"),
    minimum: Annotated[
        int,
        typer.Option(
            help="Smallest number of rows that a cell may show; above 1, counts are rounded at random to multiples."
        ),
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            envvar="PMF_COUNTS_SEED",
            help="Secret for the rounding: the same counts and seed give the same file. Default: drawn.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the counts of pairs of the last complete run, without rows, to a file for a model of several sites.

    The recipient adds up such files with `pmflib.surveys.read_counts`. Tell the printed digest by another way than the
    file.
    """
    from pmflib.counts.pair_counts import PairCounts
    from pmflib.counts.zarr_tables import PAIRS, StoredTables
    from pmflib.ingest.source_paths import check_output
    from pmflib.store.care.exports import remember_export
    from pmflib.store.run_records import find_last_run
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    check_output(checked.source_paths, output, checked.source.suffixes)
    store = open_store(checked)
    run = find_last_run(store, checked.name)
    if run is None:
        raise StoreError(f"pipeline {checked.name!r} has no complete run yet; `pmf run` makes one")
    path = store.locate(run.stages["counts"]) / PAIRS
    own, n_variables = PairCounts.load(path), StoredTables(path).schema.n_variables
    n_counted = own.schema.n_variables
    digest = own.export(output, minimum, seed=seed)
    remember_export(store, "counts", output, [output])
    n_rows = int(own.n_rows.sum())
    if as_json:
        facts = {"path": str(output), "rows": n_rows, "minimum": minimum, "digest": digest}
        print_json(facts | {"variables": n_counted, "left_out": n_variables - n_counted})
        return
    shown = f"in cells of {minimum:,} and more" if minimum > 1 else "exact"
    out.print(f"Wrote counts of {n_rows:,} rows to {output}, {shown}; digest {digest}")
    if n_counted < n_variables:
        out.print(
            f"The file has {n_counted:,} of {n_variables:,} variables: those whose pairs are counted (counts.variables)"
        )
