"""Prefect flows started by deployments; see ``deploy/prefect.yaml``."""

from pmflib_flows import etl as _etl
from pmflib_flows import gc as _gc
from pmflib_flows import score as _score

etl = _etl.etl.flow
gc = _gc.gc_flow.flow
score = _score.score_flow.flow
