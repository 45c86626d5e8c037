"""Waves of panel data: latent states with transitions between waves."""

from pmflib.families.panels.fit import Transitions as Transitions
from pmflib.families.panels.model import TransitionModel as TransitionModel
from pmflib.families.panels.waves import Waves as Waves
