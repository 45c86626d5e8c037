"""Values that are no level, counted in memory that does not grow, and sentences on them."""

from typing import Any

import pyarrow as pa

from pmflib.answering import add_counts, count_texts, describe_unknown, list_unknown
from pmflib.answering.sample_tables import accounts


def test_count_texts__without_blanks_and_cut():
    texts = pa.array([" a", "b", "a ", "c" * 300])
    assert list(count_texts(texts).items()) == [("a", 2), ("b", 1), ("c" * 100, 1)]


def test_add_counts__first_values_are_kept(monkeypatch):
    monkeypatch.setattr(accounts, "MOST_VALUES", 2)
    first, later = {"x": {"a": 1}}, {"x": {"b": 5, "c": 9, "a": 2}, "y": {"d": 1}}
    assert add_counts(first, later) == {"x": {"a": 3, "b": 5}, "y": {"d": 1}}
    assert first == {"x": {"a": 1}}


def test_list_unknown__most_frequent_values_and_how_many_more():
    counts = {"rare": 1, "often": 1000} | {f"v{n}": 2 for n in range(30)}
    found: Any = list_unknown(1061, counts)
    assert list(found["values"])[:2] == ["often", "v0"]
    assert (len(found["values"]), found["more_values"]) == (20, 12)
    said = describe_unknown("town", found, is_target=False)
    assert all(each in said for each in ("town", "1,061", "'often' 1,000"))
