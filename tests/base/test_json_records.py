"""Dataclasses from plain JSON types."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

import pytest

from pmflib.base.json_records import from_json


@dataclass(frozen=True)
class Inner:
    name: Annotated[str, re.compile("[a-z]+")]
    weight: float = 1.0


@dataclass(frozen=True)
class Outer:
    inner: Inner
    kind: Literal["a", "b"]
    parts: list[Inner] = field(default_factory=list)
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    last: Inner | None = None
    facts: dict[str, object] = field(default_factory=dict)


def test_from_json__inverts_asdict():
    made = Outer(
        Inner("x"), "a", [Inner("y", 0.5)], {"z": Inner("z")}, Inner("l"), {"n": [1, None]}
    )
    assert from_json(Outer, json.loads(json.dumps(asdict(made)))) == made
    assert from_json(Outer, {"inner": {"name": "x", "weight": 2}, "kind": "b"}) == Outer(
        Inner("x", 2.0), "b"
    )


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"inner": {"name": "x"}}, "kind"),
        ({"inner": {"name": "x"}, "kind": 1}, "kind"),
        ({"inner": {"name": "x/.."}, "kind": "a"}, "name"),
        ({"inner": {"name": "x", "more": 1}, "kind": "a"}, "more"),
        ({"inner": {"name": "x", "weight": True}, "kind": "a"}, "weight"),
        ({"inner": {"name": "x"}, "kind": "a", "parts": {}}, "parts"),
        ({"inner": None, "kind": "a"}, "inner"),
        ([], "value"),
    ],
)
def test_from_json__refuses_other_types(value, named):
    with pytest.raises(ValueError, match=named):
        from_json(Outer, value)
