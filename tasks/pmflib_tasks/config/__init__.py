"""Sections of ``pipeline.toml``, and drafts of configurations."""

from pmflib_tasks.config.data_sections import Guard, GuardLimits, QualityConfig, StoreConfig
from pmflib_tasks.config.loading import load_config, make_config, make_crowd
from pmflib_tasks.config.model_sections import (
    CrowdConfig,
    EMConfig,
    EvaluateConfig,
    GateConfig,
    ModelConfig,
)
from pmflib_tasks.config.pipeline import ClusterConfig, LineageConfig, PipelineConfig

__all__ = [
    "ClusterConfig",
    "CrowdConfig",
    "EMConfig",
    "EvaluateConfig",
    "GateConfig",
    "Guard",
    "GuardLimits",
    "LineageConfig",
    "ModelConfig",
    "PipelineConfig",
    "QualityConfig",
    "StoreConfig",
    "load_config",
    "make_config",
    "make_crowd",
]
