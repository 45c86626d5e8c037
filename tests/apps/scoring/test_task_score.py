import numpy as np
import pyarrow.parquet as pq
import pytest

from pmflib.answering import score_stored
from pmflib.apps.scoring import TableScorer
from pmflib.base import ConfigError, SchemaError, SourceError
from pmflib.ingest import sources
from pmflib.model import ReferenceScores, ScoreOptions
from pmflib.store import list_layers
from pmflib_tasks import predictions
from pmflib_tasks.questions.answer import answer
from pmflib_tasks.scoring.score import score, score_files
from pmflib_tasks.stages.reference import reference
from tests.pipelines import (
    change,
    draw_codes,
    load_model,
    make_schema,
    run_to_model,
    store_of,
    summary_of,
    write_pipeline,
)

SIZES = (3, 2, 4)
CODES = draw_codes(120, SIZES)
CODES[:, 0] = np.maximum(CODES[:, 0], 0)


@pytest.fixture(scope="module")
def long_log(tmp_path_factory, workers):
    """Configuration, references and model of a long log of samples s0, s1, ..."""
    folder = tmp_path_factory.mktemp("long log")
    source = {"layout": "long", "sample": "who", "variable": "what", "value": "answer"}
    config = write_pipeline(folder, make_schema(*SIZES), source)
    lines = ["who,what,answer"]
    for row, variable in np.argwhere(CODES >= 0).tolist():
        lines.append(f"s{row},v{variable},{CODES[row, variable]}")
    (folder / "data" / "a.csv").write_text("\n".join(lines))
    stages = run_to_model(config, workers)
    model = load_model(config, stages["model"])
    return config, stages, model


def read_parquet(config, reference):
    return pq.read_table(store_of(config).locate(reference)).to_pylist()


def make_scores(config, stages, workers, *targets):
    scale = reference.fn(config, stages["dataset"], stages["model"], workers)
    inputs = stages["dataset"], stages["model"], scale
    return score.fn(config, *inputs, ScoreOptions(targets), 1, workers)


def test_score__equals_the_model_called_by_hand(long_log, workers):
    config, stages, model = long_log
    predictions = make_scores(config, stages, workers, "v2")
    rows = read_parquet(config, predictions)
    summary = summary_of(config, predictions)
    assert (summary["samples"], summary["targets"]) == (120, ["v2"])
    known = int((CODES[:, 2] >= 0).sum())
    measures = summary["measures"]["v2"]
    assert (measures["judged"], measures["truth_missing"]) == (known, 120 - known)
    assert 0 <= measures["accuracy"] <= 1
    codes = np.array([CODES[int(row["sample"][1:])] for row in rows])
    assert len({row["sample"] for row in rows}) == 120
    probabilities = model.predict_proba(codes, "v2")
    assert [row["v2.label"] for row in rows] == [str(code) for code in probabilities.argmax(axis=1)]
    np.testing.assert_allclose([row["v2.probability"] for row in rows], probabilities.max(axis=1))
    np.testing.assert_allclose([row["v2.expected"] for row in rows], probabilities @ np.arange(4))
    np.testing.assert_allclose([row["log_prob"] for row in rows], model.log_prob(codes))
    assert [row["state"] for row in rows] == model.posterior(codes).argmax(axis=1).tolist()


def test_score_files__a_file_that_cannot_be_opened(tmp_path, workers, monkeypatch):
    config = write_pipeline(tmp_path, make_schema(*SIZES), {})
    rows = "\n".join(",".join(str(code) if code >= 0 else "" for code in row) for row in CODES)
    (tmp_path / "data" / "a.csv").write_text(f"v0,v1,v2\n{rows}\n")
    stages = run_to_model(config, workers)
    inputs = stages["model"], reference.fn(config, stages["dataset"], stages["model"], workers)
    (tmp_path / "data" / "b.csv").write_text("v0,v1,v2\n1,1,1\n")

    def refuse(name, url):
        if name == "b.csv":
            raise SourceError(f"{name}: cannot be opened (PermissionError)")
        return plain(name, url)

    plain = vars(sources)["open_file"]
    monkeypatch.setattr(sources, "open_file", refuse)
    with pytest.raises(SourceError, match=r"b\.csv: cannot be opened"):
        score_files.fn(config, *inputs, ScoreOptions(()))
    config = change(config, source={"on_unreadable_file": "skip"})
    summary = summary_of(config, score_files.fn(config, *inputs, ScoreOptions(())))
    assert (summary["samples"], list(summary["files_skipped"])) == (120, ["b.csv"])
    assert "PermissionError" in summary["files_skipped"]["b.csv"]


def test_score__second_call_and_other_target(long_log, workers, monkeypatch):
    config, stages, _ = long_log
    first = make_scores(config, stages, workers)
    with pytest.raises(SchemaError, match="'nope'"):
        make_scores(config, stages, workers, "nope")
    monkeypatch.setattr(predictions, "score_stored", None)
    assert make_scores(config, stages, workers) == first


def test_score_stored__goes_on_after_the_partitions_that_are_done(long_log, tmp_path):
    config, stages, model = long_log
    layers = list_layers(store_of(config), stages["dataset"])
    scorer = TableScorer(model, ReferenceScores.draw(model), ScoreOptions(("v1",)))
    for name in ("whole", "part"):
        (tmp_path / name).mkdir()
    whole = score_stored(None, layers, scorer, tmp_path / "whole")
    score_stored(None, layers[:2], scorer, tmp_path / "part")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "part").iterdir()}
    assert score_stored(None, layers, scorer, tmp_path / "part") == whole
    paths = sorted((tmp_path / "part").iterdir())
    assert [path.name for path in paths] == [f"part-{n:05}.parquet" for n in range(len(layers))]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
        assert times.get(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns


def test_answer__equals_the_model_called_by_hand(long_log, tmp_path, workers):
    config, stages, model = long_log
    asked = [("s3", 1), ("s119", 2), ("s3", 0), ("s7", 2)]
    lines = [f"{who},v{variable},{CODES[int(who[1:]), variable]}" for who, variable in asked]
    (tmp_path / "q.csv").write_text(
        "\n".join(["who,what,answer", *lines, "nobody,v2,3", "s3,unheard,1"])
    )
    path = str(tmp_path / "q.csv")
    found = answer.fn(config, stages["dataset"], stages["model"], path, workers)
    rows = read_parquet(config, found)
    correct, n_judged = 0, 0
    for row, (who, variable) in zip(rows, asked, strict=False):
        own = CODES[int(who[1:])]
        probabilities = model.predict_proba(own[None], variable)[0]
        assert (row["sample"], row["variable"], row["known"]) == (who, f"v{variable}", True)
        assert row["label"] == str(probabilities.argmax())
        assert row["probability"] == pytest.approx(probabilities.max())
        assert row["expected"] == pytest.approx(probabilities @ np.arange(SIZES[variable]))
        if own[variable] >= 0:
            assert row["log_prob"] == pytest.approx(np.log(probabilities[own[variable]]))
            correct += probabilities.argmax() == own[variable]
            n_judged += 1
        else:
            assert row["log_prob"] is None
    single = model.marginal(["v2"])
    assert (rows[4]["known"], rows[4]["label"]) == (False, str(single.argmax()))
    assert rows[4]["log_prob"] == pytest.approx(np.log(single[3]))
    n_judged += 1
    correct += single.argmax() == 3
    assert (rows[5]["variable"], rows[5]["label"], rows[5]["probability"]) == (
        "unheard",
        None,
        None,
    )
    summary = summary_of(config, found)
    assert (summary["questions"], summary["unknown"], summary["judged"]) == (6, 1, n_judged)
    assert summary["accuracy"] == pytest.approx(correct / n_judged)
    assert answer.fn(config, stages["dataset"], stages["model"], path, workers) == found


def test_answer__refuses_what_cannot_be_asked(long_log, fitted, tmp_path, workers):
    config, stages, _ = long_log
    with pytest.raises(SourceError, match=r"none\.csv"):
        answer.fn(config, stages["dataset"], stages["model"], str(tmp_path / "none.csv"), workers)
    wide, wide_stages = fitted
    (tmp_path / "q.csv").write_text("who,what\ns1,v1\n")
    with pytest.raises(ConfigError, match="'long'"):
        answer.fn(
            wide, wide_stages["dataset"], wide_stages["model"], str(tmp_path / "q.csv"), workers
        )
