import pytest

from pmflib.config import make_source
from pmflib.crowd.pipeline.census import Census, make_label_schema, narrow_schema, take_census
from pmflib.errors import SchemaError
from pmflib.ingest import find_sources

SOURCE = make_source(
    {"path": "x", "layout": "long", "sample": "task", "variable": "worker", "value": "label"}
)


def census_of(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    (source,) = find_sources(str(path))
    return take_census(source, SOURCE)


def test_take_census__names_in_natural_order(tmp_path):
    lines = b"task,worker,label\n1,w10,b\n1,w2,a\n2, w2 ,NA\n2,,a\n3,\xff,c\n"
    found = census_of(tmp_path, lines)
    assert found == Census(("w2", "w10"), ("a", "b", "c"))


def test_merge__is_the_union():
    parts = [Census(("b",), ("y",)), Census(("a", "b"), ("x",)), Census((), ())]
    assert Census.merge(parts) == Census(("a", "b"), ("x", "y"))


def test_take_census__label_column_with_too_many_values(tmp_path):
    lines = "task,worker,label\n" + "".join(f"1,w,{i}\n" for i in range(1001))
    with pytest.raises(SchemaError, match="column 'label' has more than 1000 distinct values"):
        census_of(tmp_path, lines.encode())


def test_make_label_schema__every_worker_has_the_classes():
    schema = make_label_schema(Census(("u", "v"), ("a", "b")), SOURCE, ["b", "a", "c"])
    assert schema.names == ("u", "v")
    assert [variable.levels for variable in schema] == [("b", "a", "c")] * 2
    with pytest.raises(SchemaError, match="0 workers and 1 labels were found"):
        make_label_schema(Census((), ("a",)), SOURCE)


def test_narrow_schema__names_of_one_file_in_their_own_order():
    schema = make_label_schema(Census(("u", "v", "w"), ("a", "b")), SOURCE, ["b", "a", "c"])
    part = narrow_schema(schema, Census(("v", "w"), ("a", "b", "x")), SOURCE)
    assert part.names == ("v", "w")
    assert part[0].levels == ("a", "b")
    # whatever other files hold, it is the same
    more = make_label_schema(Census(("t", "v", "w"), ()), SOURCE, ["a", "b"])
    assert narrow_schema(more, Census(("v", "w"), ("a", "b", "x")), SOURCE).digest == part.digest


@pytest.mark.parametrize("census", [Census((), ("a",)), Census(("u",), ("x",))])
def test_narrow_schema__nothing_of_its_own(census):
    schema = make_label_schema(Census(("u", "v"), ("a", "b")), SOURCE)
    assert narrow_schema(schema, census, SOURCE) is schema


def test_census__saved_and_loaded(tmp_path):
    census = Census(("w2", "w10"), ("ja", "ä"))
    census.save(tmp_path / "census.json")
    assert Census.load(tmp_path / "census.json") == census
