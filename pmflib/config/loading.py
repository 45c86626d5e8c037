"""Read and check a configuration, or a section of one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pmflib.config.data_sections import SourceConfig
from pmflib.config.mistakes import abridge, list_problems
from pmflib.config.model_sections import CrowdConfig
from pmflib.config.pipeline import PipelineConfig
from pmflib.errors import ConfigError

C = TypeVar("C", bound=BaseModel)

MAX_CONFIG_BYTES = 8 << 20
"""Largest configuration file that is read, bytes: room for a hundred thousand paths of sources."""


def load_config(path: str | Path) -> PipelineConfig:
    """Read and check a pipeline configuration.

    Raises
    ------
    ConfigError
        If the file is absent, cannot be read, is not TOML, or an option is unknown, missing or out of
        range: one line each.
    """
    path = Path(path)
    try:
        str(path.absolute()).encode("utf-8")
        if path.exists() and not path.is_file():
            raise ConfigError(f"configuration {str(path)!r} cannot be read: it is no regular file")
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(
                f"configuration {str(path)!r} has {path.stat().st_size} bytes, above {MAX_CONFIG_BYTES}; "
                "name a folder or a glob in source.path instead of every file"
            )
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"configuration {str(path)!r} does not exist; `pmf infer` drafts one"
        ) from None
    except OSError as error:
        raise ConfigError(f"configuration {str(path)!r} cannot be read: {error}") from None
    except RecursionError:
        raise ConfigError(f"configuration {str(path)!r} is nested too deep") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {str(path)!r} is not TOML: {error}") from None
    except UnicodeEncodeError:
        raise ConfigError(
            f"configuration {str(path)!r}: its path is not UTF-8; rename the file or the folders above it"
        ) from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"configuration {abridge(str(path))} cannot be read: {error}") from None
    return make_config(data, base=path.parent)


def make_config(data: dict[str, Any], *, base: str | Path = ".") -> PipelineConfig:
    """Check a configuration given as nested dictionaries.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range: one line each.
    """
    if "base" in data:
        raise ConfigError("base: relative paths start from the configuration file; remove it")
    return _validate(PipelineConfig, data | {"base": str(Path(base).resolve())}, depth=2)


def make_crowd(data: dict[str, Any]) -> CrowdConfig:
    """Check the section of a configuration on label logs given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown or out of range: one line each.
    """
    return _validate(CrowdConfig, data)


def make_source(data: dict[str, Any]) -> SourceConfig:
    """Check the source section of a configuration given as a dictionary.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range: one line each.
    """
    return _validate(SourceConfig, data)


def _validate(section: type[C], data: dict[str, Any], *, depth: int = 1) -> C:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(list_problems(error, section, depth=depth))) from None
