"""The target of a configuration, checked against the schema."""

from __future__ import annotations

from pmflib.config.pipeline import PipelineConfig
from pmflib.errors import ConfigError, SchemaError
from pmflib.schema import Schema


def check_target(config: PipelineConfig, schema: Schema) -> Schema:
    """Refuse a configuration whose target is no variable of the schema; give the schema back.

    Raises
    ------
    ConfigError
        If the variable that the model is to predict is not in the schema: the error names those of similar names.
    """
    if config.em.target is not None:
        try:
            schema.position(config.em.target)
        except SchemaError as error:
            raise ConfigError(
                f"em.target = {config.em.target!r}: {error}; correct it, or remove it for all variables alike"
            ) from None
    return schema
