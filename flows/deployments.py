"""Flows of Prefect that deployments start: see ``deploy/prefect.yaml``."""

from flows import etl as _etl
from flows import gc as _gc
from flows import score as _score

etl = _etl.etl.flow
gc = _gc.gc_flow.flow
score = _score.score_flow.flow
