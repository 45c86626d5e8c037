"""Every value of every column means the same at every door: tables of any kind, conditions, questions, commands."""

import csv
import json
from bisect import bisect_right
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.store import find_record
from tests.factories import call_command
from tests.flows.nights import Nights

# no number is at its own position among the levels
SCHEMA = pmf.Schema(
    (
        pmf.Variable("word", ("no", "yes, often", "6'3\"")),
        pmf.Variable("text", ("4", "x", "0", "3", "1")),
        pmf.Variable("whole", ("3", "1", "2", "0"), (3.0, 1.0, 2.0, 0.0)),
        pmf.Variable("real", ("2.5", "0", "1"), (2.5, 0.0, 1.0)),
        pmf.Variable("bins", ("low", "middle", "high", "top"), edges=(1.0, 5.0, 10.0)),
        pmf.Variable("truth", ("true", "false")),
        pmf.Variable("sign", ("1", "-1", "0"), (1.0, -1.0, 0.0)),
        pmf.Variable("target", ("a", "b", "c")),
    )
)
TARGET = SCHEMA["target"]
RAW: dict[str, list[Any]] = {
    "word": ["no", "yes, often", "6'3\""],
    "text": ["4", "x", "0", "3", "1"],
    "whole": [0, 1, 2, 3],
    "real": [0, 1.0, 2.5],
    "bins": [-3, 0, 1, 2, 3, 5, 9.5, 10, 77],
    "truth": [True, False],
    "sign": [-1, 0, 1],
}
"""Values of the columns as they are in the data."""


def spell(name, value):
    """The value in all types that hold it; texts as questions, files and arrays of texts have them."""
    if isinstance(value, bool):
        return [value, np.bool_(value), str(value).lower()]
    if isinstance(value, str):
        more = [int(value), float(value)] if value.isdigit() else []
        return [value, np.str_(value), *more]
    whole = [int(value), np.int8(value), np.int64(value)] if value == int(value) else []
    return [*whole, float(value), np.float32(value), np.float64(value), str(value)]


def find_code(name, value):
    """The code of a value, from the definition of levels and bins alone."""
    variable = SCHEMA[name]
    if variable.edges is not None:
        return bisect_right(variable.edges, value)
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if value in RAW["real"]
        else value
    )
    return variable.levels.index(str(text))


CASES: Any = [
    pytest.param(name, value, find_code(name, value), id=f"{name}-{value!r}")
    for name, values in RAW.items()
    for value in values
]


def fill_row(name, value):
    return {each.name: value if each.name == name else None for each in SCHEMA}


TABLES = {
    "mapping": lambda row: {name: [value] for name, value in row.items()},
    "pandas": lambda row: pd.DataFrame([row]),
    "rows of a frame": lambda row: pd.DataFrame([row, row]).iloc[1:],
    "polars": lambda row: pl.DataFrame({name: pl.Series([value]) for name, value in row.items()}),
    "arrow": lambda row: pa.table({name: pa.array([value]) for name, value in row.items()}),
    "array of objects": lambda row: np.array([[*row.values()]], object),
}
GIVEN = {
    "level": lambda name, value: {name: value},
    "list": lambda name, value: {name: [value, value]},
    "set": lambda name, value: {name: {value}},
    "array": lambda name, value: {name: np.array([value])},
    "column": lambda name, value: {name: pd.Series([value])},
    "row as a mapping": lambda name, value: pd.DataFrame({name: [value]}).iloc[0].to_dict(),
    "row as a Series": lambda name, value: pd.DataFrame({name: [value], "": "text"}).iloc[0][
        [name]
    ],
    "place": lambda name, value: {SCHEMA.position(name): value},
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline of one night whose samples have every value."""
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        made = Nights(
            tmp_path_factory.mktemp("doors") / "pipeline",
            SCHEMA,
            patch,
            source={"path": "log", "layout": "wide"},
            em={"max_passes": 20},
        )
        states = rng.integers(0, 2, 400)
        columns: dict[str, list[Any]] = {}
        for name, values in (RAW | {"target": [*TARGET.levels]}).items():
            likely = np.where(rng.random(400) < 0.5, states, rng.integers(0, len(values), 400))
            columns[name] = [values[place] for place in likely]
        with (made.log / "day1.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(
                [str(each).lower() if isinstance(each, bool) else each for each in row]
                for row in zip(*columns.values(), strict=True)
            )
        made.run()
        return made, columns


@pytest.fixture(scope="module")
def model(pipeline):
    made, _ = pipeline
    record = find_record(made.store, "pipeline", 1)
    return pmf.JointPMF.load(made.store.locate(record.stages["model"]) / "model")


@pytest.fixture(scope="module")
def codes(pipeline):
    """Codes of the samples, from the definition alone."""
    found = [
        [(TARGET.levels.index if name == "target" else lambda each, name=name: find_code(name, each))(value)
         for value in values]
        for name, values in pipeline[1].items()
    ]  # fmt: skip
    return np.array(found).T


def expect(model, name, code):
    """The PMF of the target given a code, from the parameters."""
    joint = model.prior * model.factor(SCHEMA.position(name))[code]
    found = model.factor(SCHEMA.position("target")) @ joint
    return found / found.sum()


def quote(value):
    if isinstance(value, float | np.float32):
        # among texts, "1.0" is not "1"
        return f"{value:g}"
    text = str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
    return f"'{text}'" if "," in text else text


@pytest.mark.parametrize(("name", "value", "code"), CASES)
def test_tables__every_value_has_its_code(name, value, code):
    alone = pmf.Schema((SCHEMA[name],))
    for spelled in spell(name, value):
        for door, convert in TABLES.items():
            assert alone.encode(convert({name: spelled})).tolist() == [[code]], (door, spelled)
        # arrays of the value's own type
        assert alone.encode(np.array([[spelled]])).tolist() == [[code]], spelled
    assert alone.encode(pmf.Codes([[code]])).tolist() == [[code]]


@pytest.mark.parametrize(("name", "value", "code"), CASES)
def test_model__every_value_has_one_meaning(model, name, value, code):
    expected = expect(model, name, code)
    for spelled in spell(name, value):
        for way, condition in GIVEN.items():
            given = condition(name, spelled)
            found = model.marginal(["target"], given)
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"{way} {spelled!r}")
        np.testing.assert_allclose(
            model.ask(f"P(target=a | {name}={quote(spelled)})").value, expected[0], rtol=1e-9
        )
    for door in TABLES.values():
        found = model.predict_proba(door(fill_row(name, value)), "target")[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert set(model.sample(5, 0, given={name: value})[:, SCHEMA.position(name)]) == {code}
    assert model.condition({name: value}).factor(SCHEMA.position(name))[code] == pytest.approx(1)
    found = model.marginal(["target"], {name: pmf.Codes([code])})
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_samples__are_the_same_from_every_door(pipeline, model, codes):
    made, samples = pipeline
    frame = pd.DataFrame(samples)
    for door in (
        samples,
        frame,
        pl.DataFrame(frame.to_dict("list")),
        frame.to_numpy(object),
        pmf.Codes(codes),
        pd.read_csv(made.log / "day1.csv"),
        pd.read_csv(made.log / "day1.csv", dtype=str),
    ):
        np.testing.assert_array_equal(SCHEMA.encode(door), codes)
    dataset = find_record(made.store, "pipeline", 1).stages["dataset"]
    stored = pmf.em.StoredSamples.open(made.store, dataset, SCHEMA, range(8)).read_codes()
    assert sorted(stored.tolist()) == sorted(codes.tolist())


def test_questions__counted_and_by_command(pipeline, model, codes, tmp_path, capsys, monkeypatch):
    made, samples = pipeline
    frame, questions, expected = pd.DataFrame(samples), [], []
    for name, value, code in (case.values for case in CASES):
        questions.append(f"P(target=a | {name}={quote(value)})")
        chosen = codes[codes[:, SCHEMA.position(name)] == code]
        expected.append((chosen[:, -1] == 0).mean())
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(questions), "utf-8")
    capsys.readouterr()
    assert call_command(
        monkeypatch, "query", made.path, "--file", path, "--from", "counts", "--json"
    ) == 0  # fmt: skip
    answers = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose([each["value"] for each in answers], expected, rtol=1e-9)
    for question, share in zip(questions[::3], expected[::3], strict=True):
        for data in (frame, pmf.Codes(codes)):
            assert model.ask(question, data, source="counts").value == pytest.approx(share)


@pytest.mark.parametrize("gap", [None, "", "NA", np.nan])
def test_gaps__are_no_answer_at_every_door(model, gap):
    everyone = model.marginal(["target"])
    for name in RAW:
        for door in TABLES.values():
            found = model.predict_proba(door(fill_row(name, gap)), "target")[0]
            np.testing.assert_allclose(found, everyone, rtol=1e-9)
        with pytest.raises(SchemaError, match="no level"):
            model.marginal(["target"], {name: gap})


def test_positions__fail_in_words(model):
    plain = np.asarray(model.sample(20, 0))
    for call in (model.log_prob, model.posterior, model.complete, SCHEMA.encode):
        with pytest.raises(SchemaError, match=r"codes are of type pmflib\.Codes"):
            call(plain)
    with pytest.raises(SchemaError, match="a number is an answer, no position: that at 1 is 'yes"):
        model.marginal(["target"], {"word": 1})
    with pytest.raises(SchemaError, match="no level -1"):
        model.marginal(["target"], {"whole": -1})
