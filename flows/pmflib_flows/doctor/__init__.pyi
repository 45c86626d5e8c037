"""Checks of a setup before a run, and their command."""

from pmflib_flows.doctor.columns import check_columns as check_columns
from pmflib_flows.doctor.doctor import FAULTS as FAULTS
from pmflib_flows.doctor.feature import FEATURE as FEATURE
from pmflib_flows.doctor.health import examine as examine
