"""Dataclasses from plain JSON types."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import pytest

from pmflib.base import Form, JsonRecord, from_json, to_json


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
        ([], "Outer"),
    ],
)
def test_from_json__refuses_other_types(value, named):
    with pytest.raises(ValueError, match=named):
        from_json(Outer, value)


@dataclass(frozen=True)
class Reversed(JsonRecord):
    text: str

    def to_json(self):
        return {"text": self.text[::-1]}

    @classmethod
    def from_json(cls, content):
        return cls(content["text"][::-1])


@dataclass(frozen=True)
class Formed(JsonRecord):
    computed: ClassVar[tuple[str, ...]] = ("twice",)

    size: Annotated[int, "n"]
    inner: Annotated[Inner, Form.FLAT]
    own: Reversed
    outer: Annotated[Outer | None, Form.FLAT] = None
    bound: Annotated[float, Form.UNKNOWN] = math.inf
    note: Annotated[str | None, Form.GIVEN, "said"] = None
    large: Annotated[tuple[int, ...], Form.TEXT] = ()
    pair: tuple[str, int] = ("a", 1)
    counted: Counter[str] = field(default_factory=Counter)
    setting: int | float | str = 1
    memory: Annotated[int, Form.HIDDEN] = 0

    @property
    def twice(self):
        return 2 * self.size


def test_json_record__forms_of_fields():
    made = Formed(2, Inner("x"), Reversed("ab"), large=(1 << 70,), setting=1.5, memory=9)
    content = {
        **{"n": 2, "name": "x", "weight": 1.0, "own": {"text": "ba"}, "bound": None},
        **{"large": [str(1 << 70)], "pair": ["a", 1], "counted": {}, "setting": 1.5, "twice": 4},
    }
    assert json.dumps(made.to_json()) == json.dumps(content)
    assert Formed.from_json(content) == Formed(
        2, Inner("x"), Reversed("ab"), large=(1 << 70,), setting=1.5
    )
    more = content | {"bound": 2, "said": "x", "kind": "b", "inner": {"name": "y"}}
    found = Formed.from_json(more)
    assert (found.bound, found.note, found.outer) == (2.0, "x", Outer(Inner("y"), "b"))
    assert to_json({"a": (made,)})["a"] == [made.to_json()]


def test_from_json__a_part_of_a_record_ignores_other_keys():
    assert from_json(Inner, {"name": "x", "more": 1}, is_part=True) == Inner("x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "2"}, r"Formed\.n is '2', expected int"),
        ({"pair": ["a"]}, r"Formed\.pair has 1 items, expected 2"),
        ({"large": 3}, r"Formed\.large is 3, expected list"),
        ({"weight": "x"}, r"Formed\.weight is 'x', expected float"),
        ({"memory": 1}, r"Formed has unknown keys \['memory'\]; known: "),
    ],
)
def test_from_json__names_record_field_and_value(change, message):
    content = Formed(2, Inner("x"), Reversed("ab")).to_json() | change
    with pytest.raises(ValueError, match=message):
        Formed.from_json(content)


def test_to_json__scalars_of_numpy_are_plain_floats():
    assert type(to_json([np.float64(1.5)])[0]) is float
