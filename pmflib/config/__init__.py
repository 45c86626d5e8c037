"""The whole of ``pipeline.toml``, and a first draft of it."""

from pmflib.config.data_sections import (
    GuardLimits,
    QualityConfig,
    SchemaConfig,
    SourceConfig,
    StoreConfig,
)
from pmflib.config.loading import load_config, make_config, make_crowd, make_source
from pmflib.config.model_sections import (
    CrowdConfig,
    EMConfig,
    EvaluateConfig,
    GateConfig,
    ModelConfig,
)
from pmflib.config.pipeline import ClusterConfig, LineageConfig, PipelineConfig

__all__ = [
    "ClusterConfig",
    "CrowdConfig",
    "EMConfig",
    "EvaluateConfig",
    "GateConfig",
    "GuardLimits",
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
