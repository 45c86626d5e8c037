"""Tables and logs that list only what is present."""

import json

import pandas as pd
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.schema import Schema

TICKS = pd.DataFrame({"a": ["x", None, "x", ""], "b": [1.0, None, None, 1.0]})


def test_infer__empty_cells_of_columns_of_one_value_are_a_level():
    schema = Schema.infer(TICKS, absent="no")
    assert [each.levels for each in schema] == [("no", "x"), ("no", "1")]
    assert schema.encode(TICKS).tolist() == [[1, 1], [0, 0], [1, 0], [0, 1]]
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    # a hidden variable stays unknown
    assert schema.encode(TICKS, hidden="a")[:, 0].tolist() == [-1] * 4
    with pytest.raises(SchemaError, match="absent"):
        Schema.infer(TICKS, absent="x")
    with pytest.raises(SchemaError, match="absent"):
        pmf.Variable("a", ("x",), absent="no")


LONG = "--sample who --variable item --value bought".split()


@pytest.mark.parametrize("flags", [[], LONG])
def test_infer__what_is_not_listed_is_absent_on_request(flags, call, tmp_path):
    bought = {f"s{n}": "abc"[: 1 + n % 3] for n in range(120)}
    if flags:
        rows = [f"{who},{item},1" for who, items in bought.items() for item in items]
        text = "\n".join(["who,item,bought", *rows])
    else:
        cells = (
            ",".join("1" if item in items else "" for item in "abc") for items in bought.values()
        )
        text = "\n".join(["a,b,c", *cells])
    (tmp_path / "log.csv").write_text(text + "\n")
    code, _, err = call("infer", "log.csv", *flags)
    assert code == 3
    assert "--absent no" in err
    assert call("infer", "log.csv", *flags, "--absent", "no", "--rank", "1")[0] == 0
    assert call("run", "pipeline.toml")[0] == 0
    code, out, _ = call("query", "pipeline.toml", "P(b=no)", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["levels"][0]["counted"] == pytest.approx(1 / 3)
    assert found["support"]["samples"] == 120
