"""Reading ends when nothing in the threads of pyarrow can call Python any more."""

import threading
import time
from collections.abc import Generator
from typing import cast

import pyarrow.csv
import pytest

from pmflib.ingest import RawRows, find_sources, make_source
from pmflib.ingest.csv.rows import read_csv_rows

HELD_SECONDS = 0.2


@pytest.mark.parametrize("held", ["stream", "handler", "bytes"])
@pytest.mark.parametrize("ends", ["at the end", "early", "by an error"])
def test_read_csv_rows__waits_until_threads_of_pyarrow_let_go(tmp_path, monkeypatch, held, ends):
    open_csv, let_go = pyarrow.csv.open_csv, threading.Event()

    def hold(what):
        time.sleep(HELD_SECONDS)
        let_go.set()

    def open_and_hold(stream, reading, parsing, converting):
        what = stream if held == "stream" else parsing.invalid_row_handler
        if held == "bytes":
            what = stream.read(4)
            first = [what]

            def read(n_bytes):
                return first.pop() if first else rest(n_bytes)

            rest, stream.read = stream.read, read
        threading.Thread(target=hold, args=(what,)).start()
        return open_csv(stream, reading, parsing, converting)

    monkeypatch.setattr(pyarrow.csv, "open_csv", open_and_hold)
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n" + ("" if ends != "by an error" else '"' + "3,4\n" * 2_000_000))
    (source,) = find_sources(str(path))
    read = read_csv_rows(source, make_source({"path": "log.csv", "layout": "wide"}), ["a"])
    rows = cast(Generator[RawRows, None, None], read)
    if ends == "early":
        next(rows)
        rows.close()
    elif ends == "by an error":
        with pytest.raises(ValueError, match="quotation mark"):
            list(rows)
    else:
        assert sum(each.batch.num_rows for each in rows) == 1
    assert let_go.is_set()
