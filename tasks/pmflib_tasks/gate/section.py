"""Section ``gate`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pmflib.ingest.options import Section
from pmflib_tasks.feature import FeatureSection


class GateConfig(Section, FeatureSection):
    """Conditions under which a new model replaces the live one; see `docs/gate.md`.

    Both models predict the same hidden cells, in today's test samples and in those that the live model was scored on
    when it was made. The new model goes live if, in both sets, its loss is not larger than tolerated with sufficient
    certainty.
    """

    least_cells: Annotated[int, Field(ge=1)] = 100
    """Minimum number of hidden cells for a set of samples to count. With fewer, errors that occur once in a hundred
    cells may be missed by the estimate of the standard error.
    """
    standard_errors: Annotated[float, Field(gt=0)] = 2.0
    """Margin for chance, in standard errors of the paired gain: with two, a model that is just as bad as tolerated
    passes in 2.3 % of cases. For few samples, the quantile of Student's t with the same probability is used.
    """
    largest_loss: Annotated[float, Field(ge=0)] = 0.02
    """Tolerated loss, nats per hidden cell: 0.02 makes true answers 2 % less probable, which is unnoticeable and far
    below the effect of corrupted files. With 0, a model goes live only if it is certainly better.
    """
