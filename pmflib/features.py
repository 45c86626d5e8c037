"""The features of this installation: the one table that a new feature, or a removed one, changes."""

ROOMS: tuple[str, ...] = ("pmflib.answering",)
"""Rooms of the core that offer something to lower ones by hooks, as features do."""

FEATURES: tuple[str, ...] = (
    "pmflib.surveys.drafting",
    "pmflib.surveys.statistics_files",
    "pmflib.surveys.design",
    "pmflib.surveys.margins",
    "pmflib.surveys.sites",
    "pmflib.inference.errors",
    "pmflib.inference.checks",
    "pmflib.inference.three_steps",
    "pmflib.inference.target",
    "pmflib.inference.imputation",
    "pmflib.inference.planning",
    "pmflib.families.forests",
    "pmflib.families.traits",
    "pmflib.families.panels",
    "pmflib.families.groups",
    "pmflib.apps.estimators",
    "pmflib.apps.scoring",
    "pmflib.apps.recommending",
    "pmflib.apps.crowd",
    "pmflib.apps.demo",
)
"""Packages of the features, lower wings first; hooks are asked in this order."""
