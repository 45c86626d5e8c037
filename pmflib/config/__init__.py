"""The whole of ``pipeline.toml``, and a first draft of it."""

from pmflib.config.data_sections import SchemaConfig, SourceConfig, StoreConfig
from pmflib.config.loading import load_config, make_config, make_crowd, make_source
from pmflib.config.model_sections import (
    CrowdConfig,
    EMConfig,
    EvaluateConfig,
    GateConfig,
    ModelConfig,
)
from pmflib.config.pipeline import ClusterConfig, LineageConfig, PipelineConfig
from pmflib.config.quality_section import Limits, QualityConfig

__all__ = [
    "ClusterConfig",
    "CrowdConfig",
    "EMConfig",
    "EvaluateConfig",
    "GateConfig",
    "Limits",
    "LineageConfig",
    "ModelConfig",
    "PipelineConfig",
    "QualityConfig",
    "SchemaConfig",
    "SourceConfig",
    "StoreConfig",
    "load_config",
    "make_config",
    "make_crowd",
    "make_source",
]
