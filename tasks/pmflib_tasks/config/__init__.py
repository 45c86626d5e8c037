"""Sections of ``pipeline.toml``, and drafts of configurations."""

from pmflib.base.faces import make_face
from pmflib_tasks.config.data_sections import QualityConfig, StoreConfig
from pmflib_tasks.config.loading import load_config, make_config
from pmflib_tasks.config.model_sections import (
    EMConfig,
    EvaluateConfig,
    GateConfig,
    ModelConfig,
)
from pmflib_tasks.config.pipeline import SECTIONS, ClusterConfig, PipelineConfig

__all__ = [
    "ClusterConfig",
    "EMConfig",
    "EvaluateConfig",
    "GateConfig",
    "ModelConfig",
    "PipelineConfig",
    "QualityConfig",
    "StoreConfig",
    "load_config",
    "make_config",
]
# `python -m pydoc` shows the options of features as well
globals().update((section.__name__, section) for section in SECTIONS.values())
__all__ += [section.__name__ for section in SECTIONS.values()]

__getattr__, __dir__ = make_face(__name__)
