"""Continuous traits, discretised into the latent states of a joint PMF."""

from pmflib.families.traits.discriminations import Discriminations as Discriminations
from pmflib.families.traits.quadrature import ItemDesign as ItemDesign
from pmflib.families.traits.trait_model import TraitModel as TraitModel
from pmflib.families.traits.trait_pmf import TraitPMF as TraitPMF
from pmflib.families.traits.traits import compile_states as compile_states
from pmflib.families.traits.traits import fit_traits as fit_traits
