"""Forests as a kind of model of `pmflib.fit_em`."""

from pmflib.families.forests.dependence import fit_dependence, refine_forests
from pmflib.families.forests.em import are_modest, plan_trees
from pmflib.families.forests.stack import ForestRung, mix_forests, offer_forests
from pmflib.fits.kinds import FitKind

FORESTS = FitKind(
    "forests",
    dependence="tree",
    is_modest=are_modest,
    extend=fit_dependence,
    refine=refine_forests,
    plan=plan_trees,
    offer=offer_forests,
    rung=ForestRung,
    mix=mix_forests,
)
"""Forests within states."""
