"""Section ``sites`` of the configuration."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, RootModel

from pmflib_tasks.config.sample_methods import SAMPLE_METHODS
from pmflib_tasks.feature import FeatureSection


class SitesConfig(RootModel[dict[str, str]], FeatureSection):
    """Files of other sites' counts by the name of the site, from `pmf counts export`.

    They are added to the counts of the source, and the model is fitted to pairs, without EM. A site withdraws by
    removal of its line.
    """

    model_config = ConfigDict(frozen=True)

    root: dict[str, str] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of counts."""
        return tuple(self.root.values())

    @property
    def unlike_labels(self) -> str:
        """Label logs have no counts of pairs of variables."""
        said = "sites are given, but they hand on counts of pairs, which label logs lack; remove section sites"
        return said if self.root else ""

    def check_pipeline(self, config: Any) -> None:
        """Check that nothing needs the rows of all sites.

        Raises
        ------
        ValueError
            If something does.
        """
        if not self.root:
            return
        if config.is_stack:
            raise ValueError(
                "model.rank is missing, which makes a stack of models of samples, and sites hand on counts of pairs; "
                'give model.rank, a number or "auto"'
            )
        refused = {
            f"model.method = {config.model.method!r}": config.model.method in SAMPLE_METHODS,
            f"model.dependence = {config.model.dependence!r}": config.model.dependence != "none",
            "source.weight": config.source.weight is not None,
            **{each.requires_rows: bool(each.requires_rows) for each in config.sections.values()},
            "section [em] (EM, averages and a target)": config.em != type(config.em)(),
        }
        if named := [name for name, is_given in refused.items() if is_given]:
            raise ValueError(
                f"sites hand on counts of pairs, to which latent classes are fitted, and {' and '.join(named)} "
                "takes rows of all sites; leave it out, or remove the sites"
            )
