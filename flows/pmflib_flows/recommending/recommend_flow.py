"""Flow that recommends items to samples with the live model."""

from __future__ import annotations

from typing import Any

from pmflib.apps.recommending.options import Recommendations
from pmflib.store.artefacts import Reference
from pmflib_flows.live_samples import run_on_live
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_tasks.recommending.recommend import recommend


@pipeline_flow(name="recommend")
def recommend_flow(
    config: str, options: dict[str, Any], data: str = "", columns: tuple[str, ...] = ()
) -> Reference:
    """Recommend items to samples with the live model.

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
        If the pipeline has no live model yet, or the counts of the run that made it are missing.
    """
    return run_on_live(
        recommend, "counts", config, (Recommendations.from_json(options),), data, columns
    )
