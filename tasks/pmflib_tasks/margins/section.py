"""Section ``margins`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pmflib.ingest.options import Section
from pmflib_tasks.feature import FeatureSection


class MarginsConfig(Section, FeatureSection):
    """Known margins of the population, to which the weights of the samples are raked.

    All counts, fits, scores and answers are of the raked samples.
    """

    tables: dict[str, dict[str, Annotated[float, Field(ge=0)]]] = Field(default_factory=dict)
    """Number of each level, by variable: shares, per cent or totals."""
    files: tuple[str, ...] = ()
    """CSV files, each with a column of levels for one variable or two, and a last column of numbers."""
    bounds: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(gt=1)]] | None = None
    """Smallest and largest factor of a weight, relative to the mean factor, such as [0.3, 3]."""

    @property
    def are_known(self) -> bool:
        """Whether there are margins."""
        return bool(self.tables or self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of margins."""
        return self.files

    @property
    def requires_rows(self) -> str:
        """The section, if there are margins: they weigh rows."""
        return "section [margins]" if self.are_known else ""

    @property
    def unlike_labels(self) -> str:
        """Tasks have no weights."""
        said = "margins are given, but tasks of a label log have no weights; remove section margins"
        return said if self.are_known else ""
