"""Crowdsourced labels: labels of many workers in, true labels and every worker's confusion matrix out."""

from pmflib.apps.crowd.aggregation import aggregate as aggregate
from pmflib.apps.crowd.aggregation import fit_crowd_model as fit_crowd_model
from pmflib.apps.crowd.co_occurrence import fit_worker_pairs as fit_worker_pairs
from pmflib.apps.crowd.confidence import Calibration as Calibration
from pmflib.apps.crowd.confidence import bin_confidence as bin_confidence
from pmflib.apps.crowd.confidence import calibrate as calibrate
from pmflib.apps.crowd.dawid_skene import plan_passes as plan_passes
from pmflib.apps.crowd.dawid_skene import plan_shrunk as plan_shrunk
from pmflib.apps.crowd.e_step import LabelsInMemory as LabelsInMemory
from pmflib.apps.crowd.e_step import count_votes as count_votes
from pmflib.apps.crowd.estimators import CrowdAggregator as CrowdAggregator
from pmflib.apps.crowd.estimators import DawidSkene as DawidSkene
from pmflib.apps.crowd.estimators import MajorityVote as MajorityVote
from pmflib.apps.crowd.estimators import OneCoinDawidSkene as OneCoinDawidSkene
from pmflib.apps.crowd.kernels.digamma import digamma as digamma
from pmflib.apps.crowd.kernels.digamma import find_rises as find_rises
from pmflib.apps.crowd.label_log import LabelLog as LabelLog
from pmflib.apps.crowd.label_log import read_labels as read_labels
from pmflib.apps.crowd.methods import LABEL_LIMITS as LABEL_LIMITS
from pmflib.apps.crowd.model_choice import EVENNESS as EVENNESS
from pmflib.apps.crowd.model_choice import HeldOut as HeldOut
from pmflib.apps.crowd.model_choice import assign_folds as assign_folds
from pmflib.apps.crowd.model_choice import choose_model as choose_model
from pmflib.apps.crowd.model_choice import hold_out_labels as hold_out_labels
from pmflib.apps.crowd.options import CrowdOptions as CrowdOptions
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel as AnnotatorModel
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel as CrowdModel
from pmflib.apps.crowd.pairs.worker_marginals import WorkerPairs as WorkerPairs
from pmflib.apps.crowd.stored.fitting import PAIRS as PAIRS
from pmflib.apps.crowd.stored.label_tables import load_crowd_model as load_crowd_model
from pmflib.apps.crowd.stored.log_names import LogNames as LogNames
from pmflib.apps.crowd.stored.log_names import load_log_names as load_log_names
from pmflib.apps.crowd.stored.log_names import make_label_schema as make_label_schema
from pmflib.apps.crowd.stored.worker_models import MODEL as MODEL
from pmflib.apps.crowd.stored.worker_models import WorkerModel as WorkerModel
from pmflib.apps.crowd.tags.tag_log import TagLog as TagLog
from pmflib.apps.crowd.tags.tag_log import read_tags as read_tags
from pmflib.apps.crowd.tags.tags import TagAggregation as TagAggregation
from pmflib.apps.crowd.tags.tags import aggregate_tags as aggregate_tags
from pmflib.apps.crowd.true_labels import Aggregation as Aggregation
from pmflib.apps.crowd.true_labels import TasksInMemory as TasksInMemory
from pmflib.apps.crowd.worker_pair_counts import WorkerPairCounts as WorkerPairCounts

__all__: list[str]
