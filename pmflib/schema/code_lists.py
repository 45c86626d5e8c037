"""Lists of missing codes: which hold for all columns, and the notes on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pmflib.schema.inference import CHANGE
from pmflib.schema.level_census import LevelCensus
from pmflib.schema.missing_codes import CodeProposal
from pmflib.schema.variable import read_number

NAMES_SHOWN = 6
"""Variables named in a note that holds for all of them."""


def share_codes(
    censuses: Mapping[str, LevelCensus], codes: Mapping[str, Sequence[CodeProposal]]
) -> tuple[str, ...]:
    """Codes for all columns: words that are a level nowhere, and numbers that most columns have as a code."""
    times = Counter(each.text for found in codes.values() for each in found)
    words = {text for text in times if read_number(text) is None}
    for name, census in censuses.items():
        own = {each.text for each in codes.get(name, ())}
        words -= {text for text in words if text in census.counts and text not in own}
    most = {
        text for text, n in times.items() if read_number(text) is not None and 2 * n > len(censuses)
    }
    return tuple(text for text in times if text in words or text in most)


def note_codes(codes: Mapping[str, Sequence[CodeProposal]]) -> list[str]:
    """Note each missing code once, with the columns that have it and the evidence of the first."""
    holders: dict[str, list[str]] = {}
    evidence: dict[str, str] = {}
    for name, found in codes.items():
        for each in found:
            holders.setdefault(each.text, []).append(name)
            evidence.setdefault(each.text, each.evidence)
    return [
        f"{list_names(names)}: {text!r} is taken for missing: {evidence[text]}; to refuse: {CHANGE} --missing none"
        for text, names in holders.items()
    ]


def list_names(names: Sequence[str]) -> str:
    """Names of variables, of many the first ones and how many there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown}, ... ({len(names)} variables)"
