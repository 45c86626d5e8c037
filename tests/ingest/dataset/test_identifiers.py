"""Identifiers as texts: whole numbers are compared across their spellings."""

import pyarrow as pa
import pytest

from pmflib.ingest.dataset.identifiers import (
    count_forms,
    find_respelled,
    may_respell,
    spell_like,
    spell_plainly,
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("17", "17"),
        ("00017", "17"),
        ("17.0", "17"),
        ("17.", "17"),
        ("0017.00", "17"),
        ("1000", "1000"),
        ("000", "0"),
        ("0.0", "0"),
        ("1.50", "1.50"),
        ("-5", "-5"),
        ("w017", "w017"),
        ("12-00", "12-00"),
        ("18446744073709551615", "18446744073709551615"),
        ("", ""),
    ],
)
def test_spell_plainly__whole_numbers_alone(text, plain):
    for column in (pa.array([text]), pa.array([text.encode()], pa.binary())):
        assert spell_plainly(column).to_pylist() == [plain]


def test_find_respelled__numbers_with_several_spellings():
    names = pa.array(["17", "18", "17.0", "a17", "017", "5.0", "20"])
    assert find_respelled(names) == [["017", "17", "17.0"]]
    assert find_respelled(names.slice(0, 2)) == []
    assert find_respelled(names.slice(0, 0)) == []


@pytest.mark.parametrize(
    ("names", "may"),
    [
        (["1000", "1000.0"], True),
        (["00017", "17"], True),
        (["007", "07"], True),
        # padded to one length, or never
        (["00017", "12345"], False),
        (["1", "22", "333"], False),
        (["a1", "b1.0"], False),
        ([], False),
    ],
)
def test_may_respell__by_forms(names, may):
    forms = count_forms(pa.array([name.encode() for name in names], pa.binary()))
    assert may_respell(forms) == may
    assert may or find_respelled(pa.array(names, pa.string())) == []


@pytest.mark.parametrize(
    ("known", "asked", "spelt"),
    [
        (["17", "1000"], ["1000.0", "00017", "5", "a.0"], ["1000", "17", "5", "a.0"]),
        (["0017", "1234"], ["17", "1234.0", "00017", "123456"], ["0017", "1234", "0017", "123456"]),
        # nothing is known where numbers are spelt in several ways, or none is there
        (["017", "1234"], ["17", "1.0"], ["17", "1.0"]),
        (["17.0", "18.0"], ["17", "18.0"], ["17", "18.0"]),
        (["a", "b"], ["1.0"], ["1.0"]),
    ],
)
def test_spell_like__as_all_identifiers_of_a_dataset_are_spelt(known, asked, spelt):
    forms = count_forms(pa.array([name.encode() for name in known], pa.binary()))
    asked = pa.array([name.encode() for name in asked], pa.binary())
    assert [each.decode() for each in spell_like(asked, forms).to_pylist()] == spelt
    assert spell_like(asked.slice(0, 0), forms).to_pylist() == []
