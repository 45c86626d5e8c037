"""Load and validate a configuration or one of its sections, and draft configurations for review."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from pmflib.base.errors import ConfigError
from pmflib.base.methods import PAIR_METHODS
from pmflib.ingest.options import SourceOptions, abridge, validate_section
from pmflib.ingest.source_paths import escape_text
from pmflib_tasks.config.model_sections import QUICK
from pmflib_tasks.config.pipeline import PipelineConfig
from pmflib_tasks.config.sample_methods import SAMPLE_METHODS

MAX_CONFIG_BYTES = 8 << 20
"""Maximum size in bytes of a configuration file: room for a hundred thousand source paths."""
FAR = "../../.."
"""Prefix of a relative path that is hard to read; the full path is written instead."""


def load_config(path: str | Path) -> PipelineConfig:
    """Load and validate a pipeline configuration.

    Raises
    ------
    ConfigError
        If the file is missing, cannot be read, is not TOML, or an option is unknown, missing or out of range (one line
        each).
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
    return make_config(data, base=path.parent, file=str(path.absolute()))


def make_config(data: dict[str, Any], *, base: str | Path = ".", file: str = "") -> PipelineConfig:
    """Validate a configuration given as nested dictionaries.

    Raises
    ------
    ConfigError
        If an option is unknown, missing or out of range (one line each).
    """
    if "base" in data:
        raise ConfigError("base: paths are relative to the configuration file; remove base")
    if "file" in data:
        raise ConfigError(
            "file: name the raw files in source.path, and the schema in schema.file; remove file"
        )
    given = {"base": str(Path(base).resolve()), "file": file}
    return validate_section(PipelineConfig, data | given, depth=2)


DEPENDENCE = "forests within the states, where held-out samples say so"


LIKELY_WEIGHT = 'it looks like one; with it, model.dependence = "none"'
MADE_BY: dict[str, tuple[str, float | None]] = {
    "b": ("bootstrap", None),
    "brr": ("BRR", None),
    "jk": ("JK2", None),
    "pwgtp": ("Fay", 0.5),
    "w_fst": ("Fay", 0.5),
    "wgtp": ("Fay", 0.5),
}
"""How replicate weights are made whose names begin so, and Fay's factor: of PISA, of the American Community Survey (by
successive differences, whose factor in a variance is that of Fay's method with .5), and others."""


def draft_config(
    source: SourceOptions,
    *,
    rank: int | Literal["auto"] | None,
    method: str = "auto",
    method_options: Mapping[str, Any] | None = None,
    dependence: str = "none",
    notes: Sequence[str] = (),
    sections: Mapping[str, Any] | None = None,
    target: str | None = None,
    likely_weight: str | None = None,
    likely_replicates: str | None = None,
    on_duplicate: str = "last",
    seed: int = 0,
    quick: bool = False,
    name: str = "",
) -> str:
    """Draft a configuration file for a person to review.

    Parameters
    ----------
    source
        Location of the data; defaults are omitted.
    rank
        Number of latent states, or "auto"; None for a stack.
    method, method_options, dependence
        As in `ModelConfig`.
    notes
        Points to review, written as comments.
    sections
        Sections of features by key, if the pipeline is for one.
    target
        Variable to predict.
    likely_weight
        Column that is probably the weight of samples, proposed in a comment.
    likely_replicates
        Pattern of the columns that are probably replicate weights, likewise.
    on_duplicate
        As in `SchemaOptions`.
    seed
        Seed of the pipeline.
    quick
        Whether to fit a short ladder, or to limit the choice of the rank to a minute.
    name
        Name of the pipeline, from `draft_name`; without one, it has the default.

    Returns
    -------
    TOML text that `load_config` reads.
    """
    more = []
    for key, section in (sections or {}).items():
        more += [f"[{key}]", *_draft_lines(section, *section.drafted), ""]
    described = "" if method == "auto" else (PAIR_METHODS | SAMPLE_METHODS)[method].description
    # data quoted in notes may contain line ends, which would end the comment
    comments = ["# review: " + re.sub(r"[\x00-\x1f\x7f]+", " ", note) for note in notes]
    return "\n".join(
        [
            "# What is not set here has a default; `python -m pydoc pmflib_tasks.config` shows every option.",
            *comments,
            *([f"name = {_quote(name)}  # unique in its store"] if name else []),
            *([f"seed = {seed}"] if seed else []),
            "",
            "[source]  # relative paths start from the folder of this file",
            *_draft_lines(source),
            *(
                []
                if likely_weight is None
                else [f"# weight = {_quote(likely_weight)}  # {LIKELY_WEIGHT}"]
            ),
            *([] if likely_replicates is None else _propose_replicates(likely_replicates)),
            "",
            "[schema]",
            'file = "schema.json"',
            *([] if on_duplicate == "last" else [f'on_duplicate = "{on_duplicate}"']),
            'on_unknown_level = "quarantine"  # or "missing", "error"',
            "",
            "[store]",
            'path = "store"  # results, and what later runs need to continue',
            "",
            "[model]",
            *_draft_rank(rank, quick=quick),
            *([] if method == "auto" else [f"method = {json.dumps(method)}  # {described}"]),
            *([] if method_options is None else [_draft_options(method_options)]),
            *(
                []
                if dependence == "none"
                else [f"dependence = {json.dumps(dependence)}  # {DEPENDENCE}"]
            ),
            "",
            *(["[em]", f"target = {_quote(target)}", ""] if target is not None else []),
            "[evaluate]",
            "hide = 0.2  # share of the held-out answers that are hidden and predicted from the others",
            "",
            *more,
        ]
    )


def _draft_rank(rank: int | Literal["auto"] | None, *, quick: bool) -> list[str]:
    """Return the lines that say how many states a model has, or that it is a stack."""
    if rank is None:
        effort = "quick" if quick else "normal"
        return [
            f'effort = "{effort}"  # of a stack of models that answers; for classes to read, give rank = 3'
        ]
    why = 'number of latent states; "auto" chooses it on held-out counts and samples'
    budget = [f"rank_budget = {json.dumps(QUICK)}"] if quick else []
    return [f"rank = {json.dumps(rank)}  # {why}", *budget]


def _draft_options(options: Mapping[str, Any]) -> str:
    """Return the line with the options of a method."""
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    return f"method_options = {{{given}}}  # what is left out is chosen by held-out answers"


def _propose_replicates(pattern: str) -> list[str]:
    """Return comments with proposed options for replicate weights."""
    names = sorted((begin for begin in MADE_BY if pattern.lower().startswith(begin)), key=len)
    method, fay = MADE_BY[names[-1]] if names else ("BRR", None)
    others = '"BRR", "Fay" with fay, "JK1", "JK2", "JKn" with replicate_factors, or "bootstrap"'
    return [
        f"# replicates = {_quote(pattern)}  # probably replicate weights; they require the weight as well",
        f"# replicate_method = {_quote(method)}  # a guess; the survey's documentation says: {others}",
        *([] if fay is None else [f"# fay = {fay}"]),
    ]


def relate(source: SourceOptions, base: Path) -> SourceOptions:
    """Make the path of a source relative to the folder of the configuration, unless it is far away."""
    return source.model_copy(update={"path": relate_path(str(source.path), base)})


def relate_path(path: str, base: Path) -> str:
    """Make a path relative to a folder; URLs and paths far away are unchanged."""
    if "://" in path:
        return path
    near = os.path.relpath(path, escape_text(str(base.resolve())))
    return path if near.startswith(FAR) else near


def _quote(text: str) -> str:
    """Quote text as a basic TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _draft_lines(section: BaseModel, *always: str) -> list[str]:
    """Return the options of a section that differ from the default, and some that are always written."""
    options = section.model_dump(mode="json")
    given = section.model_dump(mode="json", exclude_defaults=True)
    # JSON strings, booleans and lists of strings are also valid TOML
    return [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in options.items()
        if name in given or name in always
    ]
