"""Keys that parts of predictions and accounts of scores are stored with."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.answering import PartAccount, combine_parts
from pmflib.base import StoreError
from pmflib.ingest import Account
from pmflib.model import TargetSums
from pmflib.store import ACCOUNT


def test_part_account__keys_in_the_metadata_of_a_part():
    part = PartAccount(Account(2, 2), (TargetSums(2, 0, 1, 0.5, 0.25),), is_last=True)
    content = json.loads(part.to_bytes())
    assert sorted(content) == [
        *("cells_made_missing", "is_last", "observed", "reasons", "rows_encoded", "rows_erased"),
        *("rows_in", "rows_left_out", "rows_quarantined", "sums", "unknown"),
    ]
    assert content["sums"] == [
        {"judged": 2, "missing": 0, "correct": 1, "losses": 0.5, "squares": 0.25}
    ]


def test_score_account__keys_in_the_order_that_people_see():
    account = Account(3, 2, reasons=Counter(ragged=1), cells_made_missing=Counter(b=1, a=2))
    unknown = {"a": {"x": 1, "y": 1}, "b": {"z": 1}}
    parts = [PartAccount(account, (TargetSums(missing=2),), unknown=unknown)]
    content = combine_parts(parts, ["v"], {"x.csv": "gone"}, {"v": ["y.csv"]}).to_json()
    assert list(content.items()) == [
        ("samples", 2),
        ("rows_in", 3),
        ("rows_quarantined", 1),
        ("reasons", {"ragged": 1}),
        ("cells_made_missing", {"a": 2, "b": 1}),
        (
            "unknown_levels",
            {
                "a": {"cells": 2, "values": {"x": 1, "y": 1}, "more_values": 0},
                "b": {"cells": 1, "values": {"z": 1}, "more_values": 0},
            },
        ),
        ("targets", ["v"]),
        ("targets_absent", {"v": ["y.csv"]}),
        ("measures", {"v": {"judged": 0, "truth_missing": 2}}),
        ("parts", 1),
        ("files_skipped", {"x.csv": "gone"}),
    ]


def test_part_account__what_is_written_is_read(tmp_path):
    first = {"town": {"Paris": 2, "Rome": 1}}
    later = {"town": {"Rome": 3, "Oslo": 1}, "smokes": {"?": 1}}
    parts = [
        PartAccount(Account(3, 3), (), observed=Counter(rating=2), unknown=first),
        PartAccount(Account(2, 2), (), True, Counter(rating=1, smokes=1), later),
    ]
    whole = parts[0] + parts[1]
    path = tmp_path / "part.parquet"
    table = pa.table({"x": [1]}).replace_schema_metadata({ACCOUNT: whole.to_bytes()})
    pq.write_table(table, path)
    known = PartAccount.read(path)
    assert known == whole
    assert known.observed == Counter(rating=3, smokes=1)
    assert list(known.unknown["town"].items()) == [("Paris", 2), ("Rome", 4), ("Oslo", 1)]


def test_combine_parts__refuses_rows_that_are_not_predicted():
    part = PartAccount(Account(3, 3), (TargetSums(judged=1, missing=1),))
    with pytest.raises(StoreError, match="'v'"):
        combine_parts([part], ["v"], {}, {})
