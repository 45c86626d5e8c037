"""Whether a new model replaces the live one, and publication."""

from pmflib_tasks.gate.comparison import ModelChoice as ModelChoice
from pmflib_tasks.gate.comparison import choose_model as choose_model
from pmflib_tasks.gate.comparison import compare_hidden as compare_hidden
from pmflib_tasks.gate.comparison import compare_stored as compare_stored
from pmflib_tasks.gate.distribution_differences import compare_models as compare_models
from pmflib_tasks.gate.distribution_differences import compare_pairs as compare_pairs
from pmflib_tasks.gate.distribution_differences import compare_singles as compare_singles
from pmflib_tasks.gate.gate import decide_gate as decide_gate
from pmflib_tasks.gate.gate_decision import OF_WEIGHTED as OF_WEIGHTED
from pmflib_tasks.gate.gate_decision import AssessedGain as AssessedGain
from pmflib_tasks.gate.gate_decision import GateNumbers as GateNumbers
from pmflib_tasks.gate.publish import Decision as Decision
from pmflib_tasks.gate.publish import locate_for_people as locate_for_people
from pmflib_tasks.gate.refit import plan_refit as plan_refit
from pmflib_tasks.gate.run_differences import RunDifference as RunDifference
from pmflib_tasks.gate.run_differences import compare_runs as compare_runs
from pmflib_tasks.gate.run_differences import flatten as flatten
from pmflib_tasks.gate.value_errors import ERRORS as ERRORS
from pmflib_tasks.gate.value_errors import describe_errors as describe_errors
from pmflib_tasks.gate.value_errors import find_scales as find_scales
from pmflib_tasks.gate.value_errors import list_error_rows as list_error_rows
