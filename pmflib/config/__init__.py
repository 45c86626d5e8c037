"""The whole of ``pipeline.toml``, and a first draft of it."""

from pmflib.config.pipeline import (
    ClusterConfig,
    CrowdConfig,
    EMConfig,
    EvaluateConfig,
    GateConfig,
    Limits,
    ModelConfig,
    PipelineConfig,
    QualityConfig,
    SchemaConfig,
    SourceConfig,
    StoreConfig,
    load_config,
    make_config,
    make_crowd,
    make_source,
)

__all__ = [
    "ClusterConfig",
    "CrowdConfig",
    "EMConfig",
    "EvaluateConfig",
    "GateConfig",
    "Limits",
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
