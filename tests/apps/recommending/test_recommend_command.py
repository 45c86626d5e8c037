"""`pmf recommend`: the best items for every sample of a rating log, and of files of new users."""

import json
from dataclasses import replace

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import readstat_arrow

import pmflib as pmf
from pmflib.answering import score_stored
from pmflib.apps.recommending import Recommendations, Recommender
from pmflib.base import DenseBlock, concatenate_blocks
from pmflib.store import Store, find_last_run, list_dataset_blocks, list_layers, read_block
from pmflib_flows.recommending.recommend_flow import recommend_flow
from tests.factories import run_command
from tests.pipelines import as_wide, draw_codes, make_schema

SIZES = (3, 3, 3, 3, 3, 3)
CODES = draw_codes(400, SIZES)
CODES[0] = 2
SOURCE = 'path = "data"\nlayout = "long"\nsample = "user"\nvariable = "movie"\nvalue = "rating"'
CONFIG = """
[source]
{source}
[store]
folds = 4
path = "{store}"
[model]
rank = 2
[em]
max_passes = 5
[cluster]
workers = {workers}
"""


def as_log(codes):
    lines = [f"u{u},v{i},{codes[u, i]}" for u, i in np.argwhere(codes >= 0).tolist()]
    return "\n".join(["user,movie,rating", *lines]) + "\n"


def write_config(home, name, source=SOURCE, workers=1):
    text = CONFIG.format(source=source, store=f"store-{name}", workers=workers)
    (home / f"{name}.toml").write_text(f'name = "{name}"\n' + text)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of a pipeline that has run on the ratings of 400 users, of whom u0 has rated everything."""
    home = tmp_path_factory.mktemp("pipeline")
    (home / "data").mkdir()
    (home / "data" / "log.csv").write_text(as_log(CODES) + "u1,v9,2\nu1,v1\n")
    make_schema(*SIZES).save(home / "schema.json")
    write_config(home, "p")
    run_command(home, "run", "p.toml")
    return home


def recommend(home, *words, config="p.toml"):
    answer = json.loads(run_command(home, "recommend", config, *words, "--json"))
    return answer, answer["path"]


def test_recommend__is_the_library_for_every_user(home):
    answer, _ = recommend(home, "--top", "3", "--output", "recs.parquet")
    assert answer["rows_in"] == answer["rows_encoded"] + answer["rows_quarantined"]
    assert (answer["samples"], answer["rows_quarantined"]) == (400, 2)
    found = polars.read_parquet(home / "recs.parquet").drop("row")
    rated = (CODES >= 0).any(axis=1)
    # of rows in the order of the store and judges in its folds, which the library is told
    store = Store(home / "store-p")
    dataset, schema = find_last_run(store, "p").stages["dataset"], make_schema(*SIZES)
    blocks = list_dataset_blocks(store, dataset, None)
    folds = np.repeat([each.fold for each in blocks], [each.n_rows for each in blocks])
    samples = [read_block(each).to_sparse(schema.offsets) for each in blocks]
    learned = concatenate_blocks(samples, schema.offsets).to_sparse(schema.offsets)
    assert sorted(map(tuple, learned.to_codes(schema.offsets))) == sorted(map(tuple, CODES[rated]))
    made = Recommender(learned, schema, Recommendations(top=3), folds % 4 == 1)
    assert answer["ridge"] == made.facts["ridge"]
    names = [f"u{user}" for user in np.flatnonzero(rated)]
    block = DenseBlock(CODES[rated]).to_sparse(schema.offsets)
    expected = polars.from_arrow(made.rank(block, {"sample": pa.array(names)}))
    both = [each.sort(["sample", "rank"]) for each in (found, expected)]
    for name in ("sample", "rank", "item", "value", "ratings", "answers"):
        assert both[0][name].to_list() == both[1][name].to_list()
    # one who has rated everything gets nothing, and as much as others where nothing is left out
    assert "u0" not in found["sample"]
    recommend(home, "--top", "2", "--exclude", "none", "--output", "all.csv")
    whole = polars.read_csv(home / "all.csv")
    assert whole.filter(sample="u0")["rank"].to_list() == [1, 2]
    assert len(whole) == 2 * 400
    recommend(home, "--top", "2", "--exclude", "none", "--output", "folder")
    assert (
        polars.read_parquet(home / "folder/*.parquet")["item"].to_list() == whole["item"].to_list()
    )


def test_recommend__new_users(home):
    lines = ["user,movie,rating", "ann,v0,2", "ann,v3,2", "bob,v1,0", "eve,v1,none", "eve,v2"]
    (home / "new.csv").write_text("\n".join(lines))
    words = ["--value", "P(item>=2)", "--data", "new.csv", "--output", "new.parquet"]
    answer, _ = recommend(home, *words, "--top", "6")
    assert (answer["rows_in"], answer["rows_quarantined"], answer["samples"]) == (5, 1, 3)
    found = polars.read_parquet(home / "new.parquet").sort(["sample", "rank"])
    # as somebody of the log with the same answers
    again = ["user,movie,rating", "cat,v0,2", "cat,v3,2"]
    (home / "again.csv").write_text("\n".join(again))
    words[3:] = ["again.csv", "--output", "again.parquet"]
    recommend(home, *words, "--top", "6")
    same = polars.read_parquet(home / "again.parquet").sort("rank")
    for name in ("item", "value", "answers"):
        assert same[name].to_list() == found.filter(sample="ann")[name].to_list()
    assert "v0" not in same["item"].to_list()
    # the number of ratings is that of the samples behind the model
    counted = dict(zip(found["item"], found["ratings"], strict=True))
    assert counted == {f"v{n}": int((CODES[:, n] >= 0).sum()) for n in range(6)}
    assert found.filter(sample="eve")["answers"].to_list() == [0] * 6
    (home / "empty.csv").write_text("user,movie,rating\n")
    answer, _ = recommend(home, "--data", "empty.csv", "--output", "empty.parquet")
    assert answer["samples"] == 0
    assert polars.read_parquet(home / "empty.parquet").columns == found.columns


def test_recommend__rows_without_identifiers(home):
    wide = 'path = "data-wide"\nlayout = "wide"'
    (home / "data-wide").mkdir()
    (home / "data-wide" / "a.csv").write_text(as_wide(CODES) + "1,1\n")
    write_config(home, "wide", wide)
    run_command(home, "run", "wide.toml")
    answer, _ = recommend(home, "--top", "2", "--output", "wide.parquet", config="wide.toml")
    assert (answer["rows_in"], answer["samples"], answer["rows_quarantined"]) == (401, 400, 1)
    found = polars.read_parquet(home / "wide.parquet")
    assert found.columns == ["file", "row", "rank", "item", "value", "ratings", "answers"]
    n_open = np.minimum((CODES < 0).sum(axis=1), 2)
    assert found["row"].to_list() == np.repeat(np.arange(1, 401), n_open).tolist()


def test_recommend__limits(home):
    (home / "groups.csv").write_text("item,group\nv0,a\nv1,a\nv2,a\nv3,b\nv4,b\n")
    words = ["--exclude", "none", "--groups", "groups.csv", "--most-per-group", "1"]
    recommend(home, *words, "--output", "few.parquet")
    groups = {"v0": "a", "v1": "a", "v2": "a", "v3": "b", "v4": "b"}
    for _, mine in polars.read_parquet(home / "few.parquet").group_by("sample"):
        assert sorted(groups.get(item, item) for item in mine["item"]) == ["a", "b", "v5"]
    words = ["--items", "v0,v1,v2", "--not-items", "v1", "--at-least", "1", "--penalty", "0.5"]
    recommend(home, *words, "--exclude", "none", "--output", "few.parquet")
    assert {*polars.read_parquet(home / "few.parquet")["item"]} == {"v0", "v2"}


def test_recommend__labels_stand_beside_items(home):
    (home / "movies.csv").write_text('movieId,title,year\nv0,"Alien, the first",1979\nv9,None,1\n')
    recommend(home, "--labels", "movies.csv", "--output", "labels.csv")
    found = polars.read_csv(home / "labels.csv")
    assert found.columns.index("label") == found.columns.index("item") + 1
    labels = {"v0": "Alien, the first", **{f"v{n}": None for n in range(1, 6)}}
    assert dict(zip(found["item"], found["label"], strict=True)) == labels


def test_recommend__needs_no_model(home, monkeypatch):
    """The samples of the last run are enough, also where no model of it is live or left."""
    expected = recommend(home, "--top", "3", "--output", "with.parquet")[0]
    record = find_last_run(Store(home / "store-p"), "p")
    bare = replace(record, live=None, stages={"dataset": record.stages["dataset"]})
    monkeypatch.setattr("pmflib_flows.recommending.recommend_flow.find_last_run", lambda *_: bare)
    monkeypatch.setattr(
        "pmflib_flows.live_samples.find_live", lambda *_: pytest.fail("a live model")
    )
    again = recommend_flow.fn(str(home / "p.toml"), Recommendations(top=3).to_json())
    assert again.digest == expected["digest"]


def test_recommend__absent_level_is_what_empty_cells_stand_for(home):
    """Cells without a rating get level 0, which is neither seen nor counted as a rating."""
    absent = [replace(each, absent="0") for each in make_schema(*SIZES)]
    pmf.Schema(tuple(absent)).save(home / "absent.json")
    write_config(home, "absent")
    with (home / "absent.toml").open("a") as file:
        file.write('[schema]\nfile = "absent.json"\n')
    run_command(home, "run", "absent.toml")
    words = ["--top", "6", "--output", "absent.parquet"]
    recommend(home, *words, config="absent.toml")
    found = polars.read_parquet(home / "absent.parquet")
    rated = CODES > 0
    n_open = (~rated).sum(axis=1)
    counted = dict(found.group_by("sample").len().rows())
    assert counted == {f"u{n}": each for n, each in enumerate(n_open.tolist()) if each}
    assert {*zip(found["item"], found["ratings"], strict=True)} == {
        (f"v{n}", each) for n, each in enumerate(rated.sum(axis=0).tolist())
    }


@pytest.mark.parametrize("suffix", ["sav", "dta"])
def test_recommend__into_spss_and_stata(home, suffix):
    recommend(home, "--top", "2", "--output", f"recs.{suffix}")
    recommend(home, "--top", "2", "--output", "recs2.parquet")
    read = readstat_arrow.read_sav if suffix == "sav" else readstat_arrow.read_dta
    found = polars.from_arrow(read(home / f"recs.{suffix}")[0])
    expected = polars.read_parquet(home / "recs2.parquet")
    assert found.columns == expected.columns
    for name in expected.columns:
        assert found[name].to_list() == expected[name].to_list()


def test_recommend__same_bytes_with_two_workers(home):
    parts = []
    for workers in (1, 2):
        write_config(home, f"w{workers}", workers=workers)
        run_command(home, "run", f"w{workers}.toml")
        recommend(home, "--output", f"w{workers}", config=f"w{workers}.toml")
        paths = sorted((home / f"w{workers}").glob("part-*.parquet"))
        parts.append([pq.read_table(path).replace_schema_metadata() for path in paths])
    assert len(parts[0]) > 1
    assert all(one.equals(two) for one, two in zip(*parts, strict=True))


def test_recommend__goes_on_after_the_parts_that_are_done(home, tmp_path):
    store, schema = Store(home / "store-p"), make_schema(*SIZES)
    learned = DenseBlock(CODES).to_sparse(schema.offsets), schema, Recommendations(top=2)
    layers = list_layers(store, find_last_run(store, "p").stages["dataset"])
    n_calls = []

    class Killed(Recommender):
        def score(self, codes, origins=None):
            if len(codes):
                n_calls.append(len(codes))
            if len(n_calls) == 3:
                raise KeyboardInterrupt
            return super().score(codes, origins)

    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    scorer = Recommender(*learned)
    assert score_stored(None, layers, scorer, whole) == (400, {})
    killed = Killed(*learned)
    with pytest.raises(KeyboardInterrupt):
        score_stored(None, layers, killed, part)
    done = {path.name: path.stat().st_mtime_ns for path in part.glob("part-*.parquet")}
    assert 0 < len(done) < len(layers)
    assert score_stored(None, layers, scorer, part) == (400, {})
    for path in whole.iterdir():
        again = part / path.name
        assert again.read_bytes() == path.read_bytes()
        assert done.get(path.name, again.stat().st_mtime_ns) == again.stat().st_mtime_ns


def test_recommend__second_call_makes_nothing_new(home):
    first, path = recommend(home, "--top", "4")
    assert recommend(home, "--top", "4") == (first, path)
    assert recommend(home, "--top", "5")[1] != path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--top", "0"], 2, "--top"),
        (["--exclude", "sen"], 2, "--not-items"),
        (["--most-per-group", "2"], 2, "groups"),
        (["--groups", "none.csv", "--most-per-group", "2"], 3, "none.csv"),
        (["--groups", "twice.csv", "--most-per-group", "2"], 3, "'v0'"),
        (["--groups", "data/log.csv", "--most-per-group", "2"], 3, "item"),
        (["--groups", "short.csv", "--most-per-group", "2"], 3, "line 3"),
        (["--groups", "comma.csv", "--most-per-group", "2"], 3, "line 2"),
        (["--groups", "quote.csv", "--most-per-group", "2"], 3, "quote.csv"),
        (["--items", "v0,v17"], 3, "'v17'"),
        (["--not-items", "v17"], 3, "'v17'"),
        (["--at-least", "1000"], 2, "at_least=1000"),
        (["--value", "P(v0=1)"], 2, "item"),
        (["--value", "P(item=7)"], 3, "'7'"),
        (["--value", "E(item)"], 2, "auto"),
        (["--labels", "one.csv"], 3, "its label"),
        (["--labels", "none.csv"], 3, "--labels"),
        (["--keep", "age"], 2, "--keep"),
        (["--output", "recs.xlsx"], 2, "recs.xlsx"),
        (["--output", "data/log.csv"], 2, "log.csv"),
        (["--data", "none.csv"], 3, "none.csv"),
    ],
)
def test_recommend__refusals(home, words, code, said):
    (home / "twice.csv").write_text("item,group\nv0,a\nv0,b\n")
    (home / "short.csv").write_text("item,group\nv0,a\nv1\n")
    (home / "comma.csv").write_text("item,group\nv0,The,a\n")
    (home / "one.csv").write_text("item\nv0\n")
    (home / "quote.csv").write_text('item,group\nv0,"a\n')
    assert said in run_command(home, "recommend", "p.toml", *words, code=code)


def test_recommend__before_the_first_run(home):
    write_config(home, "fresh")
    assert "pmf run" in run_command(home, "recommend", "fresh.toml", code=4)


def test_recommend__after_a_change_of_the_schema(home):
    write_config(home, "changed")
    run_command(home, "run", "changed.toml")
    make_schema(*SIZES[:-1]).save(home / "fewer.json")
    with (home / "changed.toml").open("a") as file:
        file.write('[schema]\nfile = "fewer.json"\n')
    assert "has changed since its last run" in run_command(
        home, "recommend", "changed.toml", code=4
    )
