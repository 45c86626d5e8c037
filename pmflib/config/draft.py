"""Drafts of configurations: what is not the default, for a person to go on with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from pmflib.config import CrowdConfig, SourceConfig
from pmflib.config.rank_budget import QUICK
from pmflib.methods import PAIR_METHODS, SAMPLE_METHODS


def draft_config(
    source: SourceConfig,
    *,
    rank: int | Literal["auto"],
    method: str = "auto",
    notes: Sequence[str] = (),
    crowd: CrowdConfig | None = None,
    target: str | None = None,
    on_duplicate: str = "last",
    seed: int = 0,
    quick: bool = False,
) -> str:
    """Draft a configuration file for a person to review.

    Parameters
    ----------
    source
        Where the data are; defaults are left out.
    rank
        Number of latent states, or "auto".
    method
        As in `ModelConfig`.
    notes
        What the reviewer should check, as comments.
    crowd
        How labels are found, where that is what the pipeline is for.
    target
        Variable that the model is to predict.
    on_duplicate
        As in `SchemaConfig`.
    seed
        Seed of the pipeline.
    quick
        Whether the choice of the rank may take a minute alone.

    Returns
    -------
    TOML text that `load_config` reads.
    """
    more = [] if crowd is None else ["[crowd]", *_draft_lines(crowd, "method"), ""]
    # what notes quote from data may hold line ends, which would end the comment
    comments = ["# review: " + re.sub(r"[\x00-\x1f\x7f]+", " ", note) for note in notes]
    return "\n".join(
        [
            "# What is not set here has a default; `python -m pydoc pmflib.config` shows every option.",
            *comments,
            *([f"seed = {seed}"] if seed else []),
            "",
            "[source]  # relative paths start from the folder of this file",
            *_draft_lines(source),
            "",
            "[schema]",
            'file = "schema.json"',
            *([] if on_duplicate == "last" else [f'on_duplicate = "{on_duplicate}"']),
            'on_unknown_level = "quarantine"  # or "missing", "error"',
            "",
            "[store]",
            'path = "store"  # results, and what is needed to go on from them',
            "",
            "[model]",
            f'rank = {json.dumps(rank)}  # number of latent states; "auto" chooses it on held-out counts and samples',
            *([f"rank_budget = {json.dumps(QUICK)}"] if quick else []),
            *([] if method == "auto" else [_draft_method(method)]),
            "",
            *(["[em]", f"target = {_quote(target)}", ""] if target is not None else []),
            "[evaluate]",
            "hide = 0.2  # share of the held-out answers that are predicted from the others",
            "",
            *more,
        ]
    )


def _draft_method(method: str) -> str:
    """Line of the method, with what it does."""
    description = (PAIR_METHODS | SAMPLE_METHODS)[method].description
    return f"method = {json.dumps(method)}  # {description}"


def _quote(text: str) -> str:
    """Text as a basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _draft_lines(section: BaseModel, *always: str) -> list[str]:
    """Options of a section that are not the default, and some that are given always."""
    options = section.model_dump(mode="json")
    given = section.model_dump(mode="json", exclude_defaults=True)
    # JSON strings, booleans and lists of strings are TOML as well
    return [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in options.items()
        if name in given or name in always
    ]
