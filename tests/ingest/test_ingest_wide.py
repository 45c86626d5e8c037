import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SchemaError, SourceError, assign_folds, concatenate_blocks
from pmflib.ingest import (
    SchemaOptions,
    SourceOptions,
    assemble_samples,
    combine_accounts,
    encode_wide,
    find_sources,
)
from pmflib.ingest.csv import byte_stream
from pmflib.ingest.dataset.wide import spill_wide
from pmflib.store import LEVEL_COUNTS, list_blocks, read_block, read_origins

WIDE = SourceOptions(path="x", layout="wide")
KEYED = SourceOptions(path="x", layout="wide", sample="id")
SCHEMA = pmf.Schema(
    (pmf.Variable("a", ("no", "yes")), pmf.Variable("b", ("1", "2", "3"), (1.0, 2.0, 3.0)))
)


def stored(folder, schema):
    """Codes by origin, in the order stored, and the folds."""
    blocks = list_blocks(folder / "samples")
    rows, samples = read_origins(folder / "samples")
    if not blocks:
        return np.empty((0, schema.n_variables), int), rows, samples, []
    block = concatenate_blocks([read_block(reference) for reference in blocks], schema.offsets)
    folds = [reference.fold for reference in blocks for _ in range(reference.n_rows)]
    return block.to_codes(schema.offsets), rows, samples, folds


def encode(folder, content, *, name="x.csv", schema=SCHEMA, policy=None, config=WIDE, n_folds=4):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    (source,) = find_sources(str(folder / name))
    out = folder / "out"
    out.mkdir()
    summary = encode_wide(
        source, schema, config, policy or SchemaOptions(), n_folds=n_folds, seed=7, folder=out
    )
    codes, rows, _, folds = stored(out, schema)
    order = np.argsort(rows)
    assert folds == assign_folds(rows, n_folds, 7).tolist()
    quarantined = pq.read_table(out / "quarantine.parquet").to_pylist()
    return (
        summary.to_json(),
        dict(zip(rows[order].tolist(), codes[order].tolist(), strict=True)),
        quarantined,
    )


def assemble(folder, contents, n_buckets=2, *, schema=SCHEMA, policy=None, config=KEYED):
    """Spill files, assemble all buckets: totals, codes by identifier, rows by identifier, quarantine."""
    policy = policy or SchemaOptions()
    spills, names, summaries = [], [], []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        (source,) = find_sources(str(folder / name))
        spills.append(folder / f"spill-{name}")
        spills[-1].mkdir()
        names.append(name)
        summaries.append(
            spill_wide(source, schema, config, policy, n_buckets=n_buckets, folder=spills[-1])
        )
    parts, codes, origins = [], {}, {}
    quarantined = [
        row for spill in spills for row in pq.read_table(spill / "quarantine.parquet").to_pylist()
    ]
    for bucket in range(n_buckets):
        out = folder / f"bucket-{bucket}"
        out.mkdir()
        parts.append(
            assemble_samples(
                spills,
                names,
                (bucket, bucket + 1),
                schema,
                config,
                policy,
                n_folds=n_buckets,
                folder=out,
            )
        )
        block, rows, samples, folds = stored(out, schema)
        assert samples == sorted(samples)
        assert set(folds) <= {bucket}
        codes |= dict(zip(samples, block.tolist(), strict=True))
        origins |= dict(zip(samples, rows.tolist(), strict=True))
        quarantined += pq.read_table(out / "quarantine.parquet").to_pylist()
    total = combine_accounts(summaries, parts).to_json()
    assert total["samples"] == len(codes)
    assert total["rows_quarantined"] == len(quarantined)
    return total, codes, origins, quarantined


def test_encode_wide__round_trip(tmp_path):
    content = b"b,extra,a\n1,x,yes\n3.0,y,\nNA,z, no \n"
    summary, codes, quarantined = encode(tmp_path, content)
    assert codes == {1: [1, 0], 2: [-1, 2], 3: [0, -1]}
    assert quarantined == []
    assert np.load(tmp_path / "out" / LEVEL_COUNTS).tolist() == [1, 1, 1, 0, 1]
    assert summary == {
        "name": "x.csv",
        "rows_in": 3,
        "rows_encoded": 3,
        "rows_left_out": 0,
        "rows_erased": 0,
        "rows_quarantined": 0,
        "reasons": {},
        "cells_made_missing": {},
        "ignored_columns": ["extra"],
        "samples": 3,
        "observed": 4,
        "blocks": len(set(assign_folds(np.arange(1, 4), 4, 7).tolist())),
    }


def test_encode_wide__same_samples_from_every_format(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.choice(["no", "yes", ""], 5000).tolist()
    b = rng.integers(1, 4, 5000)
    text = ("a,b\n" + "".join(f"{x},{y}\n" for x, y in zip(a, b, strict=True))).encode()
    table = pa.table({"b": b, "a": pa.array(a).dictionary_encode()})
    pq.write_table(table, tmp_path / "y.parquet")
    packed = (tmp_path / "y.parquet").read_bytes()
    results = [
        encode(tmp_path / "csv", text),
        encode(tmp_path / "gz", gzip.compress(text), name="x.csv.gz"),
        encode(tmp_path / "pq", packed, name="x.parquet"),
    ]
    for name, (summary, codes, _) in zip(("x.csv.gz", "x.parquet"), results[1:], strict=True):
        assert (summary, codes) == (results[0][0] | {"name": name}, results[0][1])
    want = SCHEMA.encode({"a": a, "b": b}).tolist()
    assert list(results[0][1].values()) == want


def test_encode_wide__what_does_not_fit(tmp_path):
    content = b'a,b\nyes,1\nmaybe,2\nno\nno,\xff\n\xff\xfe,9\nno,9\n,,,\n"x,""\ny",1\nno,3\n'
    summary, codes, quarantined = encode(tmp_path, content)
    assert codes == {1: [1, 0], 9: [0, 2]}
    assert [(q["row"], q["reason"], q["column"], q["raw"]) for q in quarantined] == [
        (2, "unknown_level", "a", "maybe,2"),
        (3, "ragged", None, "no"),
        (4, "undecodable", "b", "no,\\xff"),
        (5, "undecodable", "a", "\\xff\\xfe,9"),
        (6, "unknown_level", "b", "no,9"),
        (7, "ragged", None, ",,,"),
        (8, "unknown_level", "a", '"x,""\ny",1'),
    ]
    assert {q["file"] for q in quarantined} == {"x.csv"}
    assert summary["reasons"] == {"ragged": 2, "undecodable": 2, "unknown_level": 3}
    assert summary["rows_in"] == 9


def test_encode_wide__unknown_levels_as_missing(tmp_path):
    content = b"a,b\nmaybe,9\nno,9\nmaybe,\xff\nyes,1\n"
    policy = SchemaOptions(on_unknown_level="missing")
    summary, codes, quarantined = encode(tmp_path, content, policy=policy)
    assert codes == {1: [-1, -1], 2: [0, -1], 4: [1, 0]}
    # the cells of a row in quarantine are not counted
    assert summary["cells_made_missing"] == {"a": 1, "b": 2}
    assert [(q["row"], q["reason"]) for q in quarantined] == [(3, "undecodable")]


def test_encode_wide__unknown_level_stops(tmp_path):
    policy = SchemaOptions(on_unknown_level="error")
    with pytest.raises(SchemaError, match=r"x\.csv, row 2, column 'b': '9'"):
        encode(tmp_path, b"a,b\nno,1\nno,9\nmaybe,1\n", policy=policy)


@pytest.mark.parametrize("row", [b"no", b"\xff,1"])
def test_encode_wide__malformed_row_stops(tmp_path, row):
    policy = SchemaOptions(on_malformed="error")
    with pytest.raises(SourceError, match="row 2"):
        encode(tmp_path, b"a,b\nno,1\n" + row + b"\nno,2,3\n", policy=policy)


def test_encode_wide__variable_that_is_no_column(tmp_path):
    with pytest.raises(SchemaError, match=r"'b'.*'bb'"):
        encode(tmp_path, b"a,bb\nno,1\n")


def test_encode_wide__no_rows_missing_everywhere_and_one_level(tmp_path):
    schema = pmf.Schema((pmf.Variable("a", ("x",)), pmf.Variable("never", ("1", "2"))))
    summary, codes, _ = encode(tmp_path / "none", b"a,never\n", schema=schema)
    assert (summary["samples"], summary["blocks"], codes) == (0, 0, {})
    summary, codes, _ = encode(tmp_path / "all", b"a,never\n,\nx,\nNA,\n", schema=schema)
    assert codes == {1: [-1, -1], 2: [0, -1], 3: [-1, -1]}
    assert (summary["samples"], summary["observed"]) == (3, 1)


def test_encode_wide__many_levels_need_wider_codes(tmp_path):
    schema = pmf.Schema(
        (pmf.Variable("a", tuple(map(str, range(300)))), pmf.Variable("b", ("0", "1")))
    )
    content = b"a,b\n" + b"".join(b"%d,%d\n" % (row % 300, row % 2) for row in range(600))
    _, codes, _ = encode(tmp_path, content, schema=schema)
    assert codes == {row + 1: [row % 300, row % 2] for row in range(600)}
    keyed = b"id,a,b\n" + b"".join(b"%d,%d,%d\n" % (row, row, row % 2) for row in range(300))
    _, codes, _, _ = assemble(tmp_path, {"y.csv": keyed}, schema=schema)
    assert codes == {str(row): [row, row % 2] for row in range(300)}


@settings(max_examples=40, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(
            [b"yes,1", b"no,", b",", b"maybe,1", b"no,7", b"no", b"no,1,1", b"", b"\xff,1"]
        ),
        max_size=60,
    ),
    level=st.sampled_from(["quarantine", "missing"]),
    block=st.integers(32, 120),
)
def test_encode_wide__no_row_vanishes(tmp_path_factory, lines, level, block):
    policy = SchemaOptions(on_unknown_level=level)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "CSV_BYTES", block)
        folder = tmp_path_factory.mktemp("dirty")
        summary, codes, quarantined = encode(folder, b"a,b\n" + b"\n".join(lines), policy=policy)
    rows = [line for line in lines if line]
    assert summary["rows_in"] == len(rows)
    outcome = {row: "encoded" for row in codes} | {q["row"]: q["reason"] for q in quarantined}
    want = {b"no": "ragged", b"no,1,1": "ragged", b"\xff,1": "undecodable"}
    if level == "quarantine":
        want |= {b"maybe,1": "unknown_level", b"no,7": "unknown_level"}
    assert outcome == {row: want.get(line, "encoded") for row, line in enumerate(rows, 1)}


def test_assemble_wide__identifiers_and_superseded_rows(tmp_path):
    content = b"id,a,b\nu1,yes,1\nu2,no,2\n,no,1\nu1,no,\n\xff,no,1\n u2 ,yes,3\nu3,what,1\n"
    total, codes, origins, quarantined = assemble(tmp_path, {"x.csv": content})
    assert codes == {"u1": [0, -1], "u2": [1, 2]}
    assert origins == {"u1": 4, "u2": 6}
    assert total["reasons"] == {
        "undecodable": 1,
        "no_sample": 1,
        "unknown_level": 1,
        "duplicate": 2,
    }
    by_row = {q["row"]: q for q in quarantined}
    assert by_row[1]["reason"] == by_row[2]["reason"] == "duplicate"
    assert by_row[1]["raw"] == "yes,1,u1"
    assert (by_row[3]["reason"], by_row[3]["column"]) == ("no_sample", "id")
    assert (by_row[5]["reason"], by_row[5]["raw"]) == ("undecodable", "no,1,\\xff")


def test_assemble_wide__first_wins_over_files(tmp_path):
    policy = SchemaOptions(on_duplicate="first")
    files = {"x.csv": b"id,a,b\nu1,yes,1\n", "y.csv": b"b,id,a\n2,u1,no\n3,u9,no\n"}
    _, codes, origins, quarantined = assemble(tmp_path, files, policy=policy)
    assert codes == {"u1": [1, 0], "u9": [0, 2]}
    # of several files, a row number alone says nothing
    assert origins == {"u1": -1, "u9": -1}
    assert [(q["file"], q["row"], q["reason"]) for q in quarantined] == [("y.csv", 1, "duplicate")]


def test_assemble_wide__duplicate_stops(tmp_path):
    policy = SchemaOptions(on_duplicate="error")
    files = {"x.csv": b"id,a,b\nu1,yes,1\n", "y.csv": b"id,a,b\nu9,no,1\nu1,no,2\n"}
    with pytest.raises(SchemaError, match=r"x\.csv row 1 and y\.csv row 2"):
        assemble(tmp_path, files, policy=policy)


def test_assemble_wide__every_bucket_may_be_empty(tmp_path):
    total, codes, _, _ = assemble(tmp_path, {"x.csv": b"id,a,b\n"}, n_buckets=3)
    assert (total["samples"], total["blocks"], codes) == (0, 0, {})


def test_encode_wide__reports_the_rows_of_every_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.ingest.csv.byte_stream.CSV_BYTES", 1000)
    (tmp_path / "a.csv").write_text("a\n" + "0\n1\n" * 900 + "0,1\n")
    schema = pmf.Schema((pmf.Variable("a", ("0", "1")),))
    reported = []
    summary = encode_wide(
        find_sources(str(tmp_path / "a.csv"))[0],
        schema,
        WIDE,
        SchemaOptions(),
        n_folds=2,
        seed=0,
        folder=tmp_path / "out",
        on_rows=reported.append,
    )
    assert len(reported) > 2
    assert sum(reported) == summary.account.rows_in == 1801


def test_encode_wide__unknown_levels_of_a_variable_with_other_are_counted_there(tmp_path):
    schema = pmf.Schema((pmf.Variable("a", ("no", "other"), other="other"), SCHEMA["b"]))
    for policy in ("quarantine", "missing", "error"):
        summary, codes, *_ = encode(
            tmp_path / policy,
            b"a,b\nno,1\nmaybe,2\n,3\nnever,1\n",
            schema=schema,
            policy=SchemaOptions(on_unknown_level=policy),
        )
        assert summary["rows_encoded"] == 4
        assert summary["cells_made_missing"] == {}
        assert list(codes.values()) == [[0, 0], [1, 1], [-1, 2], [1, 0]]
        counts = np.load(tmp_path / policy / "out" / LEVEL_COUNTS)
        assert counts.tolist() == [1, 2, 2, 1, 1]
