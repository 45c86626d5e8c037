import gzip
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SchemaError, SourceError
from pmflib.ingest import (
    SchemaOptions,
    SourceOptions,
    assemble_samples,
    combine_accounts,
    find_sources,
    read_identifiers,
    spill_long,
)
from pmflib.ingest.csv import byte_stream
from pmflib.ingest.dataset import spills
from pmflib.store import LEVEL_COUNTS, list_blocks, read_block, read_origins
from tests.pipelines import tree_bytes

LONG = SourceOptions(path="x", layout="long", sample="user", variable="item", value="rating")
TIMED = LONG.model_copy(update={"time": "ts"})
STARS = ("1", "2", "3", "4", "5")
SCHEMA = pmf.Schema(
    (
        pmf.Variable("m1", STARS),
        pmf.Variable("m2", STARS),
        pmf.Variable("g", ("a", "b")),
        pmf.Variable("never", STARS),
    )
)


def spill(folder, name, content, config=LONG, policy=None, n_buckets=2, schema=SCHEMA):
    (folder / name).write_bytes(content)
    (source,) = find_sources(str(folder / name))
    out = folder / f"spill-{name}"
    out.mkdir()
    policy = policy or SchemaOptions()
    return out, spill_long(source, schema, config, policy, n_buckets=n_buckets, folder=out)


def ingest(folder, contents, config=LONG, policy=None, n_buckets=2, schema=SCHEMA):
    """Totals, answers by sample and variable, every sample, quarantine."""
    made = {
        name: spill(folder, name, content, config, policy, n_buckets, schema)
        for name, content in contents.items()
    }
    folders = [path for path, _ in made.values()]
    quarantined = []
    for path in folders:
        quarantined += pq.read_table(path / "quarantine.parquet").to_pylist()
    parts, answers, known = [], {}, []
    for bucket in range(n_buckets):
        out = folder / f"bucket-{bucket}"
        out.mkdir()
        parts.append(
            assemble_samples(
                folders,
                list(made),
                (bucket, bucket + 1),
                schema,
                config,
                policy or SchemaOptions(),
                n_folds=n_buckets,
                folder=out,
            )
        )
        rows, samples = read_origins(out / "samples")
        assert samples == sorted(samples)
        assert set(rows.tolist()) <= {-1}
        known += samples
        start = 0
        for reference in list_blocks(out / "samples"):
            assert reference.fold == bucket
            for codes in read_block(reference).to_codes(schema.offsets).tolist():
                for variable, code in zip(schema.variables, codes, strict=True):
                    if code >= 0:
                        answers[samples[start], variable.name] = variable.levels[code]
                start += 1
        quarantined += pq.read_table(out / "quarantine.parquet").to_pylist()
    total = combine_accounts([summary for _, summary in made.values()], parts).to_json()
    assert total["samples"] == len(known) == len(set(known))
    assert total["observed"] == len(answers)
    assert total["rows_quarantined"] == len(quarantined)
    assert total["reasons"] == dict(Counter(q["reason"] for q in quarantined))
    return total, answers, sorted(known), quarantined


def test_ingest__round_trip_from_every_format(tmp_path):
    rng = np.random.default_rng(1)
    keys = sorted({(int(u), int(v)) for u, v in rng.integers(0, [300, 3], (600, 2))})
    values = [("ab" if v == 2 else "12345")[rng.integers(2 if v == 2 else 5)] for _, v in keys]
    want = {(str(u), SCHEMA.names[v]): value for (u, v), value in zip(keys, values, strict=True)}
    order = rng.permutation(len(keys))
    table = pa.table(
        {
            "rating": [values[p] for p in order],
            "item": pa.array([SCHEMA.names[keys[p][1]] for p in order]).dictionary_encode(),
            "user": [keys[p][0] for p in order],
        }
    )
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink)
    text = sink.getvalue().to_pybytes()
    pq.write_table(table, tmp_path / "t.parquet")
    for name, content in {
        "x.csv": text,
        "x.csv.gz": gzip.compress(text),
        "x.parquet": (tmp_path / "t.parquet").read_bytes(),
    }.items():
        folder = tmp_path / f"in-{name}"
        folder.mkdir()
        total, answers, _, _ = ingest(folder, {name: content}, n_buckets=4)
        assert answers == want
        assert total["rows_in"] == total["rows_encoded"] == len(want)


def test_ingest__parquet_numbers_match_csv_texts(tmp_path):
    schema = pmf.Schema((pmf.Variable("1", STARS), pmf.Variable("2", ("0.5", "1"))))
    floats = pa.table(
        {"user": [7.0, 8.5, None], "item": [1, 2, 1], "rating": pa.array([5.0, 0.5, 1.0])}
    )
    pq.write_table(floats, tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    files = {"x.parquet": content, "y.csv": b"user,item,rating\n7,2,1.0\n"}
    total, answers, _, _ = ingest(tmp_path, files, schema=schema)
    assert answers == {("7", "1"): "5", ("8.5", "2"): "0.5", ("7", "2"): "1"}
    assert total["reasons"] == {"no_sample": 1}


def test_ingest__what_does_not_fit(tmp_path):
    lines = [
        b"user,item,rating",
        b"u1,m1,5",
        b"u1,m9,5",
        b"u1,m2,6",
        b"u1,g,5",
        b"u1",
        b",m1,5",
        b"  ,m1,5",
        b"u\xff,m1,5",
        b"u2,m\xff,5",
        b"u2,m1,\xff",
        b"u3,m1,",
        b" u1 , g , a",
        b"u\xc3\xa9,m1,4.0",
    ]
    total, answers, known, quarantined = ingest(tmp_path, {"x.csv": b"\n".join(lines)})
    assert answers == {("u1", "m1"): "5", ("u1", "g"): "a", ("ué", "m1"): "4"}
    # a value that is missing is no answer, but the sample is known
    assert known == ["u1", "u3", "ué"]
    assert [(q["row"], q["reason"], q["column"], q["raw"]) for q in quarantined] == [
        (2, "unknown_variable", "item", "u1,m9,5"),
        (3, "unknown_level", "rating", "u1,m2,6"),
        (4, "unknown_level", "rating", "u1,g,5"),
        (5, "ragged", None, "u1"),
        (6, "no_sample", "user", ",m1,5"),
        (7, "no_sample", "user", "  ,m1,5"),
        (8, "undecodable", "user", "u\\xff,m1,5"),
        (9, "undecodable", "item", "u2,m\\xff,5"),
        (10, "undecodable", "rating", "u2,m1,\\xff"),
    ]
    assert total["rows_in"] == 13
    counts = np.load(tmp_path / "spill-x.csv" / LEVEL_COUNTS)
    assert np.flatnonzero(counts).tolist() == [3, 4, 10]
    assert counts.sum() == 3


def test_ingest__unknown_level_as_missing(tmp_path):
    content = b"user,item,rating\nu1,m1,6\nu1,m2,7\nu2,m2,8\n,m2,9\nu2,m9,9\n"
    policy = SchemaOptions(on_unknown_level="missing")
    total, answers, known, _ = ingest(tmp_path, {"x.csv": content}, policy=policy)
    assert (answers, known) == ({}, ["u1", "u2"])
    assert total["cells_made_missing"] == {"m1": 1, "m2": 2}
    assert total["reasons"] == {"no_sample": 1, "unknown_variable": 1}


@pytest.mark.parametrize(
    ("row", "policy", "kind", "message"),
    [
        (b"u,m1,9", {"on_unknown_level": "error"}, SchemaError, "'9'"),
        (b"u,m9,1", {"on_malformed": "error"}, SchemaError, "'m9'"),
        (b",m1,1", {"on_malformed": "error"}, SourceError, "''"),
        (b"u,m1", {"on_malformed": "error"}, SourceError, ""),
        (b"u,m1,\xff", {"on_malformed": "error"}, SourceError, "xff"),
    ],
)
def test_spill_long__stops_where_told(tmp_path, row, policy, kind, message):
    content = b"user,item,rating\nu,m2,1\n" + row + b"\n,,\n"
    with pytest.raises(kind, match=rf"x\.csv, row 2.*{message}"):
        spill(tmp_path, "x.csv", content, policy=SchemaOptions(**policy))


def test_ingest__last_by_time_then_position_wins(tmp_path):
    files = {
        "a.csv": b"user,item,rating,ts\nu,m1,1,30\nu,m1,2,10\nu,m2,1,5\nu,m1,3,\nu,m1,3,soon\n",
        "b.csv": b"user,item,rating,ts\nu,m1,4,30.0\nu,m2,2,4\nu,m2,,99\n",
    }
    _, answers, _, quarantined = ingest(tmp_path, files, TIMED)
    assert answers == {("u", "m1"): "4", ("u", "m2"): "1"}
    lost = [(q["file"], q["row"], q["reason"], q["raw"]) for q in quarantined]
    assert sorted(lost) == [
        ("a.csv", 1, "duplicate", "u,m1,1,30"),
        ("a.csv", 2, "duplicate", "u,m1,2,10"),
        ("a.csv", 4, "bad_time", "u,m1,3,"),
        ("a.csv", 5, "bad_time", "u,m1,3,soon"),
        ("b.csv", 2, "duplicate", "u,m2,2,4"),
    ]


@pytest.mark.parametrize(("rule", "winner"), [("last", 3), ("first", 1)])
def test_ingest__what_is_superseded_names_the_row_that_did(tmp_path, rule, winner):
    header, rows = b"user,item,rating,ts\n", [b"u,m1,1,10", b"u,m1,2,20", b"u,m1,1,30"]
    files = {f"{n}.csv": header + row + b"\n" for n, row in enumerate(rows, 1)}
    files["4.csv"] = header + b"u,m2,9,soon\n"
    quarantined = ingest(tmp_path, files, TIMED, SchemaOptions(on_duplicate=rule))[3]
    keys = ("winner_file", "winner_row", "winner_time", "winner_agrees")
    found = {q["file"]: tuple(q.get(key) for key in keys) for q in quarantined}
    for n in {1, 2, 3} - {winner}:
        agrees = rows[n - 1][5] == rows[winner - 1][5]
        assert found[f"{n}.csv"] == (f"{winner}.csv", 1, f"{10 * winner}", agrees)
    assert found["4.csv"] == (None, None, None, None)


def test_ingest__without_times_the_later_row_wins(tmp_path):
    files = {"a.csv": b"user,item,rating\nu,m1,1\nu,m1,2\n", "b.csv": b"user,item,rating\nu,m1,3\n"}
    assert ingest(tmp_path, files)[1] == {("u", "m1"): "3"}


def test_assemble__duplicate_stops(tmp_path):
    files = {"a.csv": b"user,item,rating\nu,m1,\nu,m1,1\n", "b.csv": b"user,item,rating\nu,m1,3\n"}
    with pytest.raises(SchemaError, match=r"a\.csv row 2 and b\.csv row 1"):
        ingest(tmp_path, files, policy=SchemaOptions(on_duplicate="error"))


def test_ingest__instants_with_and_without_zone(tmp_path):
    rows = [
        b"u,m1,1,2020-01-01T00:00:00Z",
        b"u,m1,2,2020-01-01T01:00:00+02:00",
        b"u,m1,3,2020-01-01 00:00:00.000001",
        b"u,m1,4,2019-12-31",
        b"u,m1,5,1577836800",
    ]
    files = {"a.csv": b"user,item,rating,ts\n" + b"\n".join(rows)}
    total, answers, _, _ = ingest(tmp_path, files, TIMED)
    assert answers == {("u", "m1"): "3"}
    assert total["reasons"] == {"bad_time": 1, "duplicate": 3}


def test_ingest__parquet_timestamps_match_iso_texts(tmp_path):
    table = pa.table(
        {
            "user": ["u", "u"],
            "item": ["m1", "m2"],
            "rating": ["1", "1"],
            "ts": pa.array(
                [1_577_836_800_000_000_000, 1_577_836_799_000_000_000], pa.timestamp("ns")
            ),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    later = b"user,item,rating,ts\nu,m1,2,2019-12-31T23:59:59.5\nu,m2,2,2019-12-31T23:59:59.5\n"
    files = {"x.parquet": (tmp_path / "t.parquet").read_bytes(), "y.csv": later}
    assert ingest(tmp_path, files, TIMED)[1] == {("u", "m1"): "1", ("u", "m2"): "2"}


def test_assemble__numbers_and_instants_do_not_mix(tmp_path):
    files = {
        "a.csv": b"user,item,rating,ts\nu,m1,1,30\n",
        "b.csv": b"user,item,rating,ts\nu,m2,1,2020-01-01\n",
    }
    with pytest.raises(SourceError, match=r"a\.csv .*b\.csv"):
        ingest(tmp_path, files, TIMED)


def reference(lines, keep):
    """Answers and fate of rows, one row at a time."""
    chosen, fate = {}, {}
    for row, line in enumerate(lines, 1):
        fields = line.split(",")
        if len(fields) != 4:
            fate[row] = "ragged"
        elif not fields[0]:
            fate[row] = "no_sample"
        elif fields[1] not in SCHEMA.names:
            fate[row] = "unknown_variable"
        elif not fields[3].isdigit():
            fate[row] = "bad_time"
        elif fields[2] and fields[2] not in SCHEMA[fields[1]].levels:
            fate[row] = "unknown_level"
        elif fields[2]:
            chosen.setdefault((fields[0], fields[1]), []).append((int(fields[3]), row, fields[2]))
    for rivals in chosen.values():
        rivals.sort(reverse=keep == "first")
        fate |= {row: "duplicate" for _, row, _ in rivals[:-1]}
    return {key: rivals[-1][2] for key, rivals in chosen.items()}, fate


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["u1", "u2", "u3", ""]),
                st.sampled_from(["m1", "m2", "g", "m9"]),
                st.sampled_from(["1", "5", "a", "", "9"]),
                st.sampled_from(["1", "2", "10", "", "x"]),
            ).map(",".join),
            st.sampled_from(["u1", "u1,m1,1,1,1"]),
        ),
        max_size=60,
    ),
    block=st.integers(48, 200),
    flush=st.sampled_from([64, 400, 1 << 20]),
    keep=st.sampled_from(["last", "first"]),
    n_buckets=st.integers(1, 3),
)
def test_ingest__dirty_files_equal_the_reference(
    tmp_path_factory, lines, block, flush, keep, n_buckets
):
    # the kind of the times is set by the first batch: let it be numbers
    lines = ["u9,m1,1,1", *lines]
    content = "\n".join(["user,item,rating,ts", *lines]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "CSV_BYTES", block)
        patch.setattr(spills, "SPILL_BYTES", flush)
        folder = tmp_path_factory.mktemp("dirty")
        policy = SchemaOptions(on_duplicate=keep)
        total, answers, _, quarantined = ingest(
            folder, {"x.csv": content}, TIMED, policy, n_buckets
        )
    want, fate = reference(lines, keep)
    assert answers == want
    assert {q["row"]: q["reason"] for q in quarantined} == fate
    assert total["rows_in"] == len(lines)


def test_ingest__samples_do_not_depend_on_the_order_of_rows(tmp_path):
    rng = np.random.default_rng(3)
    keys = sorted({(int(u), int(v)) for u, v in rng.integers(0, [500, 2], (800, 2))})
    lines = [b"u%d,m%d,%d" % (u, v + 1, rng.integers(1, 6)) for u, v in keys]
    stored = []
    for name, order in (("p", range(len(lines))), ("q", rng.permutation(len(lines)))):
        folder = tmp_path / name
        folder.mkdir()
        content = b"\n".join([b"user,item,rating", *(lines[index] for index in order)])
        ingest(folder, {"x.csv": content})
        stored.append([tree_bytes(folder / f"bucket-{bucket}") for bucket in range(2)])
    assert stored[0] == stored[1]


def test_ingest__dense_where_much_is_observed(tmp_path):
    schema = pmf.Schema(tuple(pmf.Variable(f"q{n}", STARS) for n in range(8)))
    layouts = {}
    for name, n_answers in (("dense", 2), ("sparse", 1)):
        folder = tmp_path / name
        folder.mkdir()
        rows = [b"u%d,q%d,1" % (u, v) for u in range(40) for v in range(n_answers)]
        content = b"user,item,rating\n" + b"\n".join(rows)
        ingest(folder, {"x.csv": content}, n_buckets=1, schema=schema)
        (block,) = list_blocks(folder / "bucket-0" / "samples")
        layouts[name] = type(read_block(block)).__name__
    assert layouts == {"dense": "DenseBlock", "sparse": "SparseBlock"}


def test_ingest__continuous_values_and_different_levels(tmp_path):
    schema = pmf.Schema(
        (
            pmf.Variable("age", ("young", "old"), edges=(40.0,)),
            pmf.Variable("m", STARS),
            pmf.Variable("w", tuple(map(str, range(200)))),
        )
    )
    rows = [b"u%d,age,%d.5" % (n, n % 80) for n in range(3000)]
    rows += [b"u%d,w,%d" % (n, n % 200) for n in range(3000)]
    rows += [b"u%d,m,%d" % (n, n % 5 + 1) for n in range(3000)]
    content = b"user,item,rating\n" + b"\n".join(rows)
    _, answers, _, quarantined = ingest(tmp_path, {"x.csv": content}, schema=schema)
    assert quarantined == []
    for n in range(3000):
        assert answers[f"u{n}", "age"] == ("young" if n % 80 + 0.5 < 40 else "old")
        assert answers[f"u{n}", "w"] == str(n % 200)
        assert answers[f"u{n}", "m"] == str(n % 5 + 1)


def test_spill_long__needs_its_columns(tmp_path):
    with pytest.raises(SourceError, match="'rating'"):
        spill(tmp_path, "x.csv", b"user,item,ratings\nu,m1,1\n")


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


@given(st.lists(st.binary(max_size=12), max_size=20))
def test_read_identifiers__hash_and_marks_equal_the_slow_ones(texts):
    from pmflib.base import mix_hashes

    got = read_identifiers(pa.array([b"pad", *texts], pa.binary())[1:])
    stripped = [text.strip() for text in texts]
    if all(text[:1] > b" " and text[-1:] > b" " for text in texts):
        assert got.texts.to_pylist() == texts
    assert [text.strip() for text in got.texts.to_pylist()] == stripped
    want = np.array([fnv(text) for text in got.texts.to_pylist()], np.uint64)
    assert got.hashes.tolist() == mix_hashes(want).tolist()
    assert got.absent.tolist() == [not text for text in stripped]

    def decodes(text):
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert got.undecodable.tolist() == [not decodes(text) for text in stripped]


def test_read_identifiers__hash_never_changes():
    # a sample must stay in its bucket from release to release
    got = read_identifiers(pa.array([b"foobar", b"42"], pa.binary()))
    assert got.hashes.tolist() == [6769637297169358415, 3332507518487421172]


def test_ingest__unknown_levels_of_a_variable_with_other_are_counted_there(tmp_path):
    # two variables that differ in other alone: one of them rejects what the other one takes
    levels = ("a", "other")
    schema = pmf.Schema((pmf.Variable("p", levels, other="other"), pmf.Variable("q", levels)))
    content = b"user,item,rating\nu,p,a\nv,p,b\nu,q,b\nv,q,a\nw,p,\n"
    total, answers, _, quarantined = ingest(tmp_path, {"x.csv": content}, schema=schema)
    assert answers == {("u", "p"): "a", ("v", "p"): "other", ("v", "q"): "a"}
    assert total["reasons"] == {"unknown_level": 1}
    assert [each["row"] for each in quarantined] == [3]
