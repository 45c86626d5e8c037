"""Lines that mention an identifier are found as a person would find them, whatever stands around them."""

import html

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.store import Export, Store, keep_page, remember_export
from pmflib_tasks.erasure import mentions
from pmflib_tasks.erasure.mentions import Names, find_in_export, find_mentions


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("7", True),
        ("a,7,b", True),
        ("said 7: no", True),
        ("17", False),
        ("7é", False),
        ("x_7", False),
        ("u.*", True),
        ("ux*", False),
        ("nothing", False),
        ("Jane Doe's", True),
        ("xJane Doe", False),
    ],
)
def test_find__an_identifier_is_no_part_of_a_longer_word(line, is_found):
    assert bool(Names(("7", "u.*", "Jane Doe")).find([line])) is is_found


@pytest.mark.parametrize(
    "ends", [("page.html", "rows.csv", "rows.parquet"), ("page.HTML", "rows.CSV", "rows.PARQUET")]
)
def test_find_in_export__searches_pages_and_tables_with_their_rows(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(mentions, "ROWS_AT_ONCE", 2)
    name = "a&b"
    page, table, rows = (tmp_path / n for n in ends)
    page.write_text(f"<p>\n{html.escape(name)}</p>")
    table.write_text(f"user,text\nx,y\nz,see {name}\n")
    texts = pa.array(["x", name, "y", f"of {name}"])
    pq.write_table(pa.table({"user": texts.dictionary_encode(), "n": [1, 2, 3, 4]}), rows)
    (tmp_path / "picture.png").write_bytes(name.encode())
    files = {str(path): "" for path in (page, table, rows, tmp_path / "picture.png")}
    found = find_in_export(Export("report", str(tmp_path), "", "", files), Names((name,)))
    assert {(each.location, each.row) for each in found} == {
        (str(page), 2),
        (str(table), 2),
        (str(rows), 2),
        (str(rows), 4),
    }


def test_find_mentions__pages_of_the_store_come_before_files_outside(tmp_path):
    store, page = Store(tmp_path / "store"), tmp_path / "page.html"
    page.write_text("u1 here")
    remember_export(store, "report", page, [page])
    keep_page(store, "p", 1, b"\nand u1 there")
    found = find_mentions(store, [" u1 "])
    assert [(each.location, each.row) for each in found] == [
        ("reports/p/000001.html", 2),
        (str(page), 1),
    ]
    assert find_mentions(store, ["u2", " "]) == []
