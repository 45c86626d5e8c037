import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.base import Progress, SchemaError, SourceError, listen
from pmflib.ingest.dataset import build_steps
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import as_wide, draw_codes, make_schema, read_dataset, summary_of

SIZES = (3, 2, 4)
SCHEMA = make_schema(*SIZES)
LONG = {"layout": "long", "sample": "who", "variable": "what", "value": "answer", "time": "at"}


def as_long(codes):
    """Columns of the observed answers of samples s0, s1, ..., row by row."""
    rows, variables = np.nonzero(codes >= 0)
    return {
        "who": [f"s{row}" for row in rows],
        "what": [f"v{variable}" for variable in variables],
        "answer": [str(code) for code in codes[rows, variables]],
        "at": np.arange(rows.size).tolist(),
    }


def write_csv(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))


def test_ingest__wide_rows_are_the_samples(pipeline, tmp_path, workers):
    config = pipeline(SCHEMA, {})
    codes = draw_codes(50, SIZES)
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes[:20]))
    (tmp_path / "data" / "b.csv").write_text(as_wide(codes[20:]) + "9,0,0\n0,0\n")
    dataset = ingest.fn(config, workers)
    account = summary_of(config, dataset)
    assert (account["rows_in"], account["rows_encoded"], account["samples"]) == (52, 50, 50)
    assert account["reasons"] == {"ragged": 1, "unknown_level": 1}
    assert account["observed"] == np.count_nonzero(codes >= 0)
    found, names = read_dataset(config, dataset)
    assert sorted(found.tolist()) == sorted(codes.tolist())
    assert set(names) == {""}


def test_ingest__wide_samples_with_names_keep_their_last_row(pipeline, tmp_path, workers):
    config = pipeline(SCHEMA, {"sample": "id"})
    codes = draw_codes(30, SIZES)
    names = [f"s{index}" for index in range(29)] + ["s0"]
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes, names))
    dataset = ingest.fn(config, workers)
    found, found_names = read_dataset(config, dataset)
    assert dict(zip(found_names, found.tolist(), strict=True)) == dict(
        zip(names, codes.tolist(), strict=True)
    )
    assert summary_of(config, dataset)["reasons"] == {"duplicate": 1}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ingest__long_answers_become_samples(pipeline, tmp_path, workers, kind):
    config = pipeline(SCHEMA, LONG)
    codes = draw_codes(40, SIZES)
    codes[:, 0] = np.maximum(codes[:, 0], 0)
    columns = as_long(codes)
    for name, part in (("a", slice(0, 50)), ("b", slice(50, None))):
        mine = {key: values[part] for key, values in columns.items()}
        if kind == "csv":
            write_csv(tmp_path / "data" / f"{name}.csv", mine)
        else:
            pq.write_table(pa.table(mine), tmp_path / "data" / f"{name}.parquet")
    found, names = read_dataset(config, ingest.fn(config, workers))
    expected = {f"s{index}": row for index, row in enumerate(codes.tolist())}
    assert dict(zip(names, found.tolist(), strict=True)) == expected


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_ingest__reads_only_the_new_file(pipeline, tmp_path, workers, monkeypatch, layout):
    config = pipeline(SCHEMA, {} if layout == "wide" else LONG)
    codes = draw_codes(20, SIZES, missing=0)
    read = []
    function = "encode_wide" if layout == "wide" else "spill_long"
    original = getattr(build_steps, function)

    def spy(source, *arguments, **options):
        read.append(source.name)
        return original(source, *arguments, **options)

    monkeypatch.setattr(build_steps, function, spy)

    def write(name, part):
        if layout == "wide":
            (tmp_path / "data" / name).write_text(as_wide(part))
        else:
            write_csv(tmp_path / "data" / name, as_long(part))

    write("a.csv", codes[:10])
    first = ingest.fn(config, workers)
    assert ingest.fn(config, workers) == first
    assert read == ["a.csv"]
    write("b.csv", codes)
    second = ingest.fn(config, workers)
    assert read == ["a.csv", "b.csv"]
    assert summary_of(config, second)["rows_in"] == 30 * (1 if layout == "wide" else 3)


def test_ingest__options_that_do_not_matter_redo_nothing(pipeline, tmp_path, workers, monkeypatch):
    config = pipeline(SCHEMA, {})
    (tmp_path / "data" / "a.csv").write_text(as_wide(draw_codes(10, SIZES)))
    first = ingest.fn(config, workers)
    monkeypatch.setattr(build_steps, "encode_wide", None)
    other = pipeline(SCHEMA, {}, cluster={"workers": 1}, model={"rank": 3}, em={"tol": 0.1})
    assert ingest.fn(other, workers) == first


def test_ingest__a_changed_policy_encodes_again(pipeline, tmp_path, workers):
    config = pipeline(SCHEMA, {})
    (tmp_path / "data" / "a.csv").write_text("v0,v1,v2\n0,1,2\n7,1,2\n")
    assert summary_of(config, ingest.fn(config, workers))["rows_encoded"] == 1
    lenient = pipeline(SCHEMA, {}, schema={"on_unknown_level": "missing"})
    account = summary_of(lenient, ingest.fn(lenient, workers))
    assert (account["rows_encoded"], account["cells_made_missing"]) == (2, {"v0": 1})
    strict = pipeline(SCHEMA, {}, schema={"on_unknown_level": "error"})
    with pytest.raises(SchemaError, match="row 2, column 'v0': '7'"):
        ingest.fn(strict, workers)


def test_ingest__no_file(pipeline, workers):
    config = pipeline(SCHEMA, {"path": "nowhere.csv"})
    with pytest.raises(SourceError, match=r"nowhere\.csv"):
        ingest.fn(config, workers)


def test_ingest__reports_rows_while_files_are_read(pipeline, tmp_path, workers):
    config = pipeline(SCHEMA, LONG)
    codes = draw_codes(10, SIZES, missing=0)
    for index in range(6):
        write_csv(tmp_path / "data" / f"{index}.csv", as_long(codes))
    received = []
    with listen(received.append, Progress):
        ingest.fn(config, workers)
    reading = [p for p in received if p.stage == "read files"]
    assert (reading[0].done, reading[0].total, reading[0].text) == (0, 6, "")
    assert (reading[-1].done, reading[-1].text) == (6, "180 rows")
    assert [p.done for p in reading] == sorted(p.done for p in reading)
    assert {p.text for p in reading} - {"", "180 rows"}
    received.clear()
    with listen(received.append, Progress):
        ingest.fn(config, workers)
    # files that are known are looked up, and none is being read
    again = [(p.done, p.total, p.text) for p in received if p.stage == "read files"]
    assert again == [(6, 6, "180 rows")]
