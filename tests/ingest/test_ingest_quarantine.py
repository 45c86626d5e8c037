from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import StoreError, from_json
from pmflib.ingest import (
    Account,
    DatasetAccount,
    QuarantineWriter,
    StepSummary,
    TimeSpan,
    combine_accounts,
)
from pmflib.ingest.dataset.quarantine import ROW_GROUP, raw_text
from pmflib.store import WrittenSamples


def fill(path, n_rows, file="a.csv"):
    with QuarantineWriter(path) as quarantine:
        for row in range(1, n_rows + 1):
            quarantine.add((file, row, "ragged", None, f"r{row}"))
    return path


def test_quarantine__one_by_one_or_all_at_once(tmp_path):
    n_rows = 2 * ROW_GROUP + 5
    fill(tmp_path / "1", n_rows)
    with QuarantineWriter(tmp_path / "2") as quarantine:
        quarantine.add_all(("a.csv", n, "ragged", None, f"r{n}") for n in range(1, n_rows + 1))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1),
    st.sampled_from(",\t;"),
)
def test_raw_text__reads_back(fields, delimiter):
    import csv
    import io

    text = raw_text([field.encode() for field in fields], delimiter)
    (row,) = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    assert row == fields


def test_raw_text__numbers_nothing_and_bad_bytes():
    assert raw_text([5.0, None, True, b"\xff,", "x"]) == '5,,true,"\\xff,",x'


def test_account__refuses_rows_that_vanish():
    account = Account(rows_in=3, rows_encoded=1, reasons=Counter(ragged=1))
    with pytest.raises(StoreError, match="3"):
        account.to_json()
    account += Account(reasons=Counter(duplicate=1))
    assert StepSummary(account, written=WrittenSamples(1, 2, 3)).to_json() == {
        "rows_in": 3,
        "rows_encoded": 1,
        "rows_left_out": 0,
        "rows_erased": 0,
        "rows_quarantined": 2,
        "reasons": {"ragged": 1, "duplicate": 1},
        "cells_made_missing": {},
        "samples": 1,
        "observed": 2,
        "blocks": 3,
    }


def test_combine_accounts__adds_both_passes_and_misses_no_bucket():
    account = Account(10, 8, reasons=Counter(ragged=2), cells_made_missing=Counter(v=3))
    spill = StepSummary(account, "a.csv", ["x"], TimeSpan(1.0, 2.0, "number"))
    assert from_json(StepSummary, spill.to_json(), is_part=True) == spill
    assert list(spill.to_json())[-5:] == ["name", "ignored_columns", "oldest", "newest", "time"]
    buckets = []
    for rows in (5, 3):
        bucket = Account(rows, rows - 1, reasons=Counter(duplicate=1))
        buckets.append(StepSummary(bucket, written=WrittenSamples(2, rows - 1, 1)))
    whole = combine_accounts([spill], buckets, files_skipped={"b.csv": "gone"})
    assert DatasetAccount.from_json(whole.to_json()) == whole
    assert whole.to_json() == {
        "rows_in": 10,
        "rows_encoded": 6,
        "rows_left_out": 0,
        "rows_outside": 0,
        "rows_erased": 0,
        "rows_quarantined": 4,
        "reasons": {"ragged": 2, "duplicate": 2},
        "cells_made_missing": {"v": 3},
        "samples": 4,
        "observed": 6,
        "blocks": 2,
        "files_skipped": {"b.csv": "gone"},
    }
    with pytest.raises(StoreError, match=r"8 .* 5 "):
        combine_accounts([spill], buckets[:1])
