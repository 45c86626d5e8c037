import pytest

from pmflib.apps.crowd import LogNames, make_label_schema
from pmflib.apps.crowd.stored.log_names import find_log_names, narrow_schema
from pmflib.base import SchemaError, SchemaWarning
from pmflib.ingest import find_sources, make_source

SOURCE = make_source(
    {"path": "x", "layout": "long", "sample": "task", "variable": "worker", "value": "label"}
)


def names_in(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    (source,) = find_sources(str(path))
    return find_log_names(source, SOURCE)


def test_find_log_names__names_in_natural_order(tmp_path):
    lines = b"task,worker,label\n1,w10,b\n1,w2,a\n2, w2 ,NA\n2,,a\n3,\xff,c\n"
    found = names_in(tmp_path, lines)
    assert found == LogNames(("w2", "w10"), ("a", "b", "c"), (2, 1, 1))


def test_find_log_names__label_column_with_too_many_values(tmp_path):
    lines = "task,worker,label\n" + "".join(f"1,w,{i}\n" for i in range(1001))
    with pytest.raises(SchemaError, match="column 'label'"):
        names_in(tmp_path, lines.encode())


def test_make_label_schema__every_worker_has_the_classes():
    schema = make_label_schema(LogNames(("u", "v"), ("a", "b")), SOURCE, ["b", "a", "c"])
    assert schema.names == ("u", "v")
    assert [variable.levels for variable in schema] == [("b", "a", "c")] * 2
    with pytest.raises(SchemaError, match="0 workers"):
        make_label_schema(LogNames((), ("a",)), SOURCE)


def test_narrow_schema__names_of_one_file_in_their_own_order():
    schema = make_label_schema(LogNames(("u", "v", "w"), ("a", "b")), SOURCE, ["b", "a", "c"])
    part = narrow_schema(schema, LogNames(("v", "w"), ("a", "b", "x")), SOURCE)
    assert part.names == ("v", "w")
    assert part[0].levels == ("a", "b")
    # whatever other files hold, it is the same
    more = make_label_schema(LogNames(("t", "v", "w"), ()), SOURCE, ["a", "b"])
    assert narrow_schema(more, LogNames(("v", "w"), ("a", "b", "x")), SOURCE).digest == part.digest


@pytest.mark.parametrize("names", [LogNames((), ("a",)), LogNames(("u",), ("x",))])
def test_narrow_schema__nothing_of_its_own(names):
    schema = make_label_schema(LogNames(("u", "v"), ("a", "b")), SOURCE)
    assert narrow_schema(schema, names, SOURCE) is schema


def test_make_label_schema__labels_that_are_spelled_alike_are_one():
    with pytest.warns(SchemaWarning, match="'dog' for 'Dog'"):
        schema = make_label_schema(LogNames(("u",), ("Dog", "cat", "dog")), SOURCE)
    label = schema[0]
    assert label.levels == ("Dog", "cat")
    assert [label.encode_value(text) for text in (" DOG ", "dog", "CAT", "NA", "Na", "cow")] == [
        *(0, 0, 1, -1, -2, -2)
    ]
    assert type(label).from_json(label.to_json()) == label
    apart = make_label_schema(LogNames(("u",), ()), SOURCE, ["dog", "Dog"])[0]
    assert [apart.encode_value(text) for text in ("dog", "Dog", "DOG")] == [0, 1, -2]
    with pytest.warns(SchemaWarning, match="101"):
        make_label_schema(LogNames(("u",), tuple(f"c{i}" for i in range(101))), SOURCE)


def test_find_log_names__in_latin_1(tmp_path):
    (tmp_path / "x.csv").write_bytes("task,worker,label\nJürgen,größe,groß\n".encode("latin-1"))
    (source,) = find_sources(str(tmp_path))
    found = find_log_names(source, SOURCE.model_copy(update={"encoding": "latin-1"}))
    assert found == LogNames(("größe",), ("groß",), (1,))


def test_make_label_schema__one_other_spelling_does_not_rename_a_class(tmp_path):
    first = names_in(tmp_path, b"task,worker,label\n" + b"1,w,dog\n" * 9 + b"2,w,cat\n")
    second = names_in(tmp_path, "task,worker,label\n3,w,Dog\n4,w,caf\u00e9\n".encode())
    whole = LogNames.merge([second, first])
    assert whole.count_labels() == {"Dog": 1, "caf\u00e9": 1, "cat": 1, "dog": 9}
    with pytest.warns(SchemaWarning, match="'Dog' for 'dog'"):
        schema = make_label_schema(whole, SOURCE)
    # the order is that of the spelling that is kept
    assert schema[0].levels == ("caf\u00e9", "cat", "dog")
    variants = (" cafe\u0301\u200b", "Dog\u00a0")
    assert [schema[0].encode_value(text) for text in variants] == [0, 2]


def test_make_label_schema__asks_what_minus_one_means():
    names = LogNames(("u",), ("-1", "0", "1"))
    with pytest.raises(SchemaError, match="--classes 0,1"):
        make_label_schema(names, SOURCE)
    assert make_label_schema(names, SOURCE, ["0", "1"])[0].levels == ("0", "1")
    scale = LogNames(("u",), ("-2", "-1", "0"))
    assert make_label_schema(scale, SOURCE)[0].levels == ("-2", "-1", "0")
