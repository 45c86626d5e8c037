"""Prefect flows started by deployments; see ``deploy/prefect.yaml``."""

from pmflib_flows import etl as _etl
from pmflib_flows import gc as _gc
from pmflib_flows.features import FEATURES as _FEATURES

etl = _etl.etl.flow
gc = _gc.gc_flow.flow
globals().update(
    (_name, _place.load().flow)
    for _feature in _FEATURES
    for _name, _place in _feature.deployments.items()
)
