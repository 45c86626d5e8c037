"""Local dependence: latent classes with forests of dependent variables, one shared by all classes or one per class."""

from pmflib.families.forests.em import Forests as Forests
from pmflib.families.forests.em import TreeOptions as TreeOptions
from pmflib.families.forests.em import add_up as add_up
from pmflib.families.forests.em import load_samples as load_samples
from pmflib.families.forests.em import run_tree_em as run_tree_em
from pmflib.families.forests.forest import Forest as Forest
from pmflib.families.forests.statistics import TreeParameters as TreeParameters
from pmflib.families.forests.tree_pmf import TreePMF as TreePMF
