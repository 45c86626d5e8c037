"""Sections of ``pipeline.toml``, and drafts of configurations."""

from pmflib_tasks.config.data_sections import QualityConfig as QualityConfig
from pmflib_tasks.config.data_sections import StoreConfig as StoreConfig
from pmflib_tasks.config.loading import draft_config as draft_config
from pmflib_tasks.config.loading import load_config as load_config
from pmflib_tasks.config.loading import make_config as make_config
from pmflib_tasks.config.loading import relate as relate
from pmflib_tasks.config.loading import relate_path as relate_path
from pmflib_tasks.config.model_sections import EMConfig as EMConfig
from pmflib_tasks.config.model_sections import EvaluateConfig as EvaluateConfig
from pmflib_tasks.config.model_sections import GateConfig as GateConfig
from pmflib_tasks.config.model_sections import ModelConfig as ModelConfig
from pmflib_tasks.config.model_sections import read_budget as read_budget
from pmflib_tasks.config.pipeline import MAX_NAME as MAX_NAME
from pmflib_tasks.config.pipeline import SECTIONS as SECTIONS
from pmflib_tasks.config.pipeline import ClusterConfig as ClusterConfig
from pmflib_tasks.config.pipeline import PipelineConfig as PipelineConfig
from pmflib_tasks.config.pipeline import check_target as check_target
from pmflib_tasks.config.pipeline import draft_name as draft_name
from pmflib_tasks.config.pipeline import split_folds as split_folds
from pmflib_tasks.config.sample_methods import SAMPLE_METHODS as SAMPLE_METHODS

__all__: list[str]
