"""The stages of the pipeline, from raw files to a refined model."""

from pmflib_tasks.stages.evaluation import MEASURES as MEASURES
from pmflib_tasks.stages.evaluation import SCORES as SCORES
from pmflib_tasks.stages.evaluation import Folds as Folds
from pmflib_tasks.stages.evaluation import HeldOutScores as HeldOutScores
from pmflib_tasks.stages.evaluation import choose_hidden as choose_hidden
from pmflib_tasks.stages.evaluation import evaluate_stored as evaluate_stored
from pmflib_tasks.stages.evaluation import make_partition_seed as make_partition_seed
from pmflib_tasks.stages.evaluation import score_group as score_group
from pmflib_tasks.stages.evaluation import score_hidden as score_hidden
from pmflib_tasks.stages.order import REFINE as REFINE
from pmflib_tasks.stages.order import find_counts as find_counts
from pmflib_tasks.stages.order import hold_data_back as hold_data_back
from pmflib_tasks.stages.order import list_steps as list_steps
from pmflib_tasks.stages.select import COMPARISONS as COMPARISONS
from pmflib_tasks.stages.select import set_rank as set_rank
from pmflib_tasks.stages.stack import CLASSES as CLASSES
