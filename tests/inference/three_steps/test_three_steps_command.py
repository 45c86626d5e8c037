"""`pmf three-steps`: outcomes and covariates of the classes of a pipeline's live model."""

import json
import shutil

import numpy as np
import pyarrow.csv
import pytest

import pmflib as pmf
from pmflib.em import StoredSamples
from pmflib.store import Store, find_last_run
from pmflib_tasks.three_steps import read_samples
from tests.factories import run_command
from tests.pipelines import as_wide, make_schema
from tests.surveys.design.test_task_replicates import write
from tests.surveys.design.test_task_weights import write_designed

CONFIG = """
[source]
path = "data"
layout = "wide"
sample = "id"
{drawn}
[store]
folds = 4
[model]
rank = 2
[em]
pseudo_count = 0.0
tol = 1e-8
[evaluate]
validation_folds = 0
"""
DRAWN = 'weight = "w"\nstratum = "region"\npsu = "school"'
N_PEOPLE, SIZES = 1200, [2] * 5


@pytest.fixture(scope="module")
def survey_once(tmp_path_factory):
    """Folder of a pipeline that has run on people of two classes, with a file of what else is known of them, in another
    order; and what was drawn.
    """
    folder = tmp_path_factory.mktemp("survey")
    rng = np.random.default_rng(0)
    school = rng.integers(0, 60, N_PEOPLE)
    kind = (rng.random(N_PEOPLE) < rng.uniform(0.2, 0.8, 60)[school]).astype(int)
    codes = (rng.random((N_PEOPLE, 5)) < np.array([0.15, 0.85])[kind][:, None]).astype(int)
    weights = np.where(kind == 1, 0.8, 2.4) * rng.uniform(0.8, 1.2, N_PEOPLE).round(2)
    names = [f"p{row}" for row in range(N_PEOPLE)]
    make_schema(*SIZES).save(folder / "schema.json")
    (folder / "data").mkdir()
    path = folder / "data" / "a.csv"
    write_designed(path, codes, weights, school % 3, school, names)
    (folder / "pipeline.toml").write_text(CONFIG.format(drawn=DRAWN))
    hours = kind + rng.normal(size=N_PEOPLE)
    votes = np.where(rng.random(N_PEOPLE) < 0.3 + 0.4 * kind, "left", "right")
    order = rng.permutation(N_PEOPLE)[100:]
    lines = [f"{names[p]};{hours[p]:.6f};{votes[p]};{school[p]}" for p in order]
    text = "\n".join(["id;hours;votes;school", *lines, "nobody;1.5;left;3", "p0;1", ";1.5;left;3"])
    (folder / "more.csv").write_text(text + "\n")
    run_command(folder, "run", "pipeline.toml")
    return folder, (codes, weights, hours.round(6), order)


@pytest.fixture
def survey(survey_once, tmp_path):
    """What was drawn, in a copy of the folder."""
    folder, drawn = survey_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return drawn


def test_three_steps__are_those_of_the_library(survey, call, tmp_path):
    codes, weights, hours, order = survey
    answer = call("three-steps", "pipeline.toml", "more.csv", "--outcome", "hours", "--json")
    assert answer[0] == 0, answer[2]
    found = json.loads(answer[1])
    assert (found["samples"], found["in_the_file"], found["rows_skipped"]) == (N_PEOPLE, 1100, 2)
    store = Store(tmp_path / "store")
    (stages,) = [find_last_run(store, name).stages for name in ["pipeline"]]
    model = pmf.JointPMF.load(store.locate(stages["model"]) / "model")
    known = read_samples(store, stages["dataset"], model.schema, [0, 1, 2])
    place = [int(name.as_py()[1:]) for name in known.names]
    assert isinstance(known.codes, pmf.Codes)
    assert (known.codes == codes[place]).all()
    assert known.design.n_strata == 3
    assert known.design.n_units == len(set(survey_schools(tmp_path)))
    values = np.full(N_PEOPLE, np.nan)
    values[order] = hours[order]
    expected = pmf.inference.distal_outcome(
        model, known.codes, values[place], design=known.design, fitted=known.fitted
    )
    estimates = found["results"]["hours"]["estimates"]
    assert [row["values"] for row in estimates] == pytest.approx(expected.values.tolist())
    assert [row["errors"] for row in estimates] == pytest.approx(expected.errors.tolist())
    # classes differ by one hour; the weights are those of the file
    gap = abs(estimates[0]["values"] - estimates[1]["values"])
    assert abs(gap - 1) < 4 * max(row["errors"] for row in estimates)
    scaled = known.design.weights.units / 1e6
    assert scaled == pytest.approx(weights[place])
    training = StoredSamples.open(store, stages["dataset"], model.schema, [0, 1, 2])
    assert known.fitted.sum() == training.n_rows


def survey_schools(folder):
    return pyarrow.csv.read_csv(folder / "data" / "a.csv")["school"].to_pylist()


def test_three_steps__of_covariates_and_texts(survey, call, tmp_path):
    words = ("--covariate", "hours", "--covariate", "votes", "--outcome", "votes")
    code, out, err = call(
        "three-steps",
        "pipeline.toml",
        "more.csv",
        *words,
        "--correction",
        "ml",
        "--output",
        "a.csv",
    )
    assert code == 0, err
    assert "1,100 of 1,200" in out
    table = pyarrow.csv.read_csv(tmp_path / "a.csv")
    assert table["of"].to_pylist() == ["votes"] * 4 + ["classes"] * 3
    assert table["covariate"].to_pylist()[4:] == ["intercept", "hours", "votes = right"]


def test_three_steps__numbers_that_are_names(survey, call):
    words = ("three-steps", "pipeline.toml", "more.csv", "--outcome", "school", "--json")
    as_number = json.loads(call(*words)[1])["results"]["school"]["estimates"]
    as_names = json.loads(call(*words, "--nominal", "school")[1])["results"]["school"]["estimates"]
    assert len(as_number) == 2
    assert len(as_names) == 2 * 60


def test_three_steps__what_is_refused(survey, call, tmp_path):
    run = ("three-steps", "pipeline.toml", "more.csv")
    for words, code, message in (
        ((), 2, "--outcome"),
        (("--outcome", "v1"), 2, "'v1'"),
        (("--outcome", "hour"), 3, "'hour'"),
        (("--outcome", "hours", "--correction", "bhc"), 2, "correction"),
        (("--outcome", "hours", "--sample", "votes"), 3, "more.csv"),
    ):
        found = call(*run, *words)
        assert message in found[2].replace("\n", " "), found[2]
        assert found[0] == code
    shutil.move(tmp_path / "store", tmp_path / "kept")
    assert call(*run, "--outcome", "hours")[0] == 4
    shutil.move(tmp_path / "kept", tmp_path / "store")
    text = (tmp_path / "pipeline.toml").read_text().replace('sample = "id"\n', "")
    (tmp_path / "pipeline.toml").write_text(text)
    assert "source.sample" in call(*run, "--outcome", "hours")[2]


def test_three_steps__of_a_pipeline_without_weights(survey, call, tmp_path):
    codes, *_ = survey
    (tmp_path / "pipeline.toml").write_text(CONFIG.format(drawn=""))
    names = [f"p{row}" for row in range(N_PEOPLE)]
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes, names))
    assert call("run", "pipeline.toml")[0] == 0
    words = ("three-steps", "pipeline.toml", "more.csv", "--covariate", "hours", "--json")
    code, out, err = call(*words)
    assert code == 0, err
    assert json.loads(out)["samples"] == N_PEOPLE


def test_score__new_samples_need_no_weights(survey, call, tmp_path):
    codes, *_ = survey
    (tmp_path / "new.csv").write_text(as_wide(codes[:50], [f"n{row}" for row in range(50)]))
    words = ("score", "pipeline.toml", "--data", "new.csv", "--target", "v0", "--output", "s.csv")
    code, _, err = call(*words)
    assert code == 0, err
    plain = pyarrow.csv.read_csv(tmp_path / "s.csv")
    assert plain.num_rows == 50
    # with a column of weights it is the same
    lines = (tmp_path / "new.csv").read_text().splitlines()
    weighted = "\n".join(
        [f"{lines[0]},w", *(f"{line},{2 + n % 3}" for n, line in enumerate(lines[1:]))]
    )
    (tmp_path / "new.csv").write_text(weighted + "\n")
    assert call(*words)[0] == 0
    again = pyarrow.csv.read_csv(tmp_path / "s.csv")
    assert again.sort_by("sample").equals(plain.sort_by("sample"))


def test_three_steps__errors_are_those_of_replicate_weights(survey, call, tmp_path):
    codes, weights, hours, order = survey
    rng = np.random.default_rng(1)
    replicates = (weights[:, None] * rng.choice([0.5, 1.5], (N_PEOPLE, 10))).round(6)
    drawn = 'weight = "w"\nreplicates = "r*"\nreplicate_method = "Fay"\nfay = 0.5'
    (tmp_path / "pipeline.toml").write_text(CONFIG.format(drawn=drawn))
    write(
        tmp_path / "data" / "a.csv", codes, weights, replicates, [f"p{n}" for n in range(N_PEOPLE)]
    )
    assert call("run", "pipeline.toml")[0] == 0
    code, out, err = call(
        "three-steps", "pipeline.toml", "more.csv", "--outcome", "hours", "--json"
    )
    assert code == 0, err
    store = Store(tmp_path / "store")
    stages = find_last_run(store, "pipeline").stages
    model = pmf.JointPMF.load(store.locate(stages["model"]) / "model")
    known = read_samples(store, stages["dataset"], model.schema, [0, 1, 2])
    place = [int(name.as_py()[1:]) for name in known.names]
    values = np.full(N_PEOPLE, np.nan)
    values[order] = hours[order]
    design = pmf.surveys.SurveyDesign(
        weights[place], replicates=replicates[place], method="Fay", fay=0.5
    )
    expected = pmf.inference.distal_outcome(
        model, known.codes, values[place], design=design, fitted=known.fitted
    )
    found = [row["errors"] for row in json.loads(out)["results"]["hours"]["estimates"]]
    assert found == pytest.approx(expected.errors.tolist(), rel=1e-4)
