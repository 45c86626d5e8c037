"""Flow that recommends items to samples."""

from __future__ import annotations

from typing import Any

from pmflib.apps.recommending.options import Recommendations
from pmflib.base.errors import StoreError
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_last_run
from pmflib_flows.live_samples import run_on_samples
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_tasks.config import load_config
from pmflib_tasks.recommending.recommend import recommend
from pmflib_tasks.stage import load_schema, open_store


@pipeline_flow(name="recommend")
def recommend_flow(
    config: str, options: dict[str, Any], data: str = "", columns: tuple[str, ...] = ()
) -> Reference:
    """Recommend items to samples, by the samples of the last run. No model is needed.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    options
        Fields of `pmflib.apps.recommending.options.Recommendations`.
    data, columns
        As for `score_flow`.

    Returns
    -------
    Reference to the recommendations.

    Raises
    ------
    StoreError
        If the pipeline has not run yet, or its schema has changed since.
    """
    checked = load_config(config)
    store = open_store(checked)
    last = find_last_run(store, checked.name)
    entry = None if last is None else store.find(last.stages["dataset"].identity)
    if last is None or entry is None:
        raise StoreError(
            f"the store has no samples of pipeline {checked.name!r}; `pmf run` reads them"
        )
    if entry.options.get("schema") != load_schema(checked).digest:
        raise StoreError(
            f"the schema of pipeline {checked.name!r} has changed since its last run; `pmf run` encodes the samples "
            "again"
        )
    given = entry.reference, Recommendations.from_json(options), last.number
    return run_on_samples(recommend, checked, entry.reference, given, data, columns)
