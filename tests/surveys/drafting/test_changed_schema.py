"""Variables of a schema in memory are changed as the command line changes them."""

import pytest

import pmflib as pmf
from pmflib.base import SchemaError, SchemaWarning

TABLE = {
    "size": ["can", "box", "bag", "crate"] * 20,
    "age": [*range(18, 78), *["refused"] * 20],
    "zone": ["EU", "NA", "AS", "EU"] * 20,
    "id": [f"p{n}" for n in range(80)],
}


@pytest.fixture
def schema():
    with pytest.warns(SchemaWarning, match="'id' is left out"):
        return pmf.Schema.infer(TABLE)


def test_set__levels_are_ordered_as_they_are_given(schema):
    order = ("can", "bag", "box", "crate")
    changed = schema.set("size", levels=order)
    assert changed["size"].levels == order
    assert changed["size"].role == "ordinal"
    assert schema["size"].role == "nominal"
    assert changed.names == schema.names
    assert changed.set("size", role="ordinal", table=TABLE)["size"].levels == order
    assert schema.set("size", levels=order, role="nominal")["size"].values is None
    with pytest.warns(SchemaWarning, match="'crate'.* no levels any more"):
        schema.set("size", levels=order[:3])


def test_set__values_are_drafted_again_from_a_table(schema):
    assert "NA" not in schema["zone"].levels
    zone = schema.set("zone", missing=["none"], table=TABLE)["zone"]
    assert zone.levels == ("AS", "EU", "NA")
    assert schema.set("age", bins=3, table=TABLE)["age"].cardinality == 3
    assert schema.set("size", other=2, table=TABLE)["size"].cardinality == 3
    assert schema.set("id", other=5, table=TABLE)["id"].cardinality == 6
    assert "size" not in schema.set("size", drop=True)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("size", {}, "pass role=, missing=, levels=, other=, bins= or drop="),
        ("sise", {"drop": True}, "size"),
        ("age", {"bins": 3}, "table="),
        ("size", {"levels": ["a"], "bins": 3}, "levels= names all levels; pass it without other="),
        ("id", {"role": "nominal", "table": TABLE}, "keep it: other=30"),
        ("size", {"role": "continuous", "table": TABLE}, "missing="),
        ("zone", {"levels": ["EU", "NA"]}, r"pass missing=\['none'\] with them"),
    ],
)
def test_set__refuses_in_words_of_python(schema, name, changes, said):
    with pytest.raises(SchemaError, match=said) as caught:
        schema.set(name, **changes)
    assert "--" not in str(caught.value)
