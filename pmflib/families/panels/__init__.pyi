"""Waves of panel data: latent states with transitions between waves."""

from pmflib.families.panels.chains import ChainLayout as ChainLayout
from pmflib.families.panels.fit import Transitions as Transitions
from pmflib.families.panels.fit import measure_singles as measure_singles
from pmflib.families.panels.model import TransitionModel as TransitionModel
from pmflib.families.panels.waves import Waves as Waves
from pmflib.families.panels.waves import infer_schema as infer_schema
