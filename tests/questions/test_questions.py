"""Questions about samples of a log, in files with a header or without."""

import pytest

import pmflib as pmf
from pmflib.base import SourceError
from pmflib.ingest import SourceOptions, find_sources
from pmflib_tasks.questions import read_questions

SCHEMA = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("x", "y"))))
WITHOUT_HEADER = SourceOptions(
    path="log.csv",
    layout="long",
    sample="who",
    variable="what",
    value="level",
    columns=("who", "what", "level", "when"),
)


def read(folder, text):
    (folder / "asked.csv").write_text(text)
    (source,) = find_sources(str(folder / "asked.csv"))
    return read_questions(source, SCHEMA, WITHOUT_HEADER)


def test_read_questions__a_log_without_header_is_asked_about_by_a_file_with_one(tmp_path):
    found = read(tmp_path, "what,who\nb,u1\na,u2\n")
    assert found.samples.to_pylist() == [b"u1", b"u2"]
    assert (found.variables.tolist(), found.truths.tolist()) == ([1, 0], [-1, -1])


def test_read_questions__in_the_columns_of_the_log(tmp_path):
    found = read(tmp_path, "u1,b,y,7\n")
    assert (found.variables.tolist(), found.truths.tolist()) == ([1], [1])


def test_read_questions__other_columns_need_a_header(tmp_path):
    with pytest.raises(SourceError, match="'who' and 'what'"):
        read(tmp_path, "u1,b\n")


def test_read_questions__in_latin_1(tmp_path):
    schema = pmf.Schema((pmf.Variable("größe", ("klein", "groß")),))
    config = WITHOUT_HEADER.model_copy(update={"columns": None, "encoding": "latin-1"})
    (tmp_path / "x.csv").write_bytes("who,what,level\nJürgen,größe,groß\n".encode("latin-1"))
    (source,) = find_sources(str(tmp_path))
    found = read_questions(source, schema, config)
    assert found.samples.to_pylist() == ["Jürgen".encode()]
    assert found.truths.tolist() == [1]
