from functools import partial
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.fits import N_FOLDS
from pmflib.inference.target import fit_trial
from pmflib.ingest import build_dataset, find_sources, make_source
from pmflib.store import Store, list_layers, read_block
from pmflib.surveys.drafting import DraftedSchema, draw_rows
from pmflib_tasks.config import load_config, make_config
from pmflib_tasks.drafting import DraftOptions, draft_pipeline
from pmflib_tasks.target import draft_cuts

N_ROWS = 1500


def list_stored_blocks(folder, reference):
    """Blocks of a dataset, each with its codes and its fold."""
    for layer in list_layers(Store(folder / "store"), reference):
        for block in layer.blocks:
            read = read_block(block)
            assert isinstance(read, DenseBlock)
            yield read.codes, block.fold


def make_table(seed=0, n_rows=N_ROWS, shape="interval"):
    """A number x whose narrow interval decides y in most rows, a number u that says nothing, and a name g."""
    rng = np.random.default_rng(seed)
    x, u = rng.random(n_rows).round(5), rng.normal(size=n_rows).round(5)
    likely = np.select(
        [shape == "interval", shape == "halves"],
        [np.where(np.abs(x - 0.32) < 0.03, 0.95, 0.1), np.where(x > 0.5, 0.6, 0.4)],
        0.5,
    )
    y = np.where(rng.random(n_rows) < likely, "yes", "no")
    return {"x": x, "u": u, "g": rng.choice(["a", "b"], n_rows), "y": y}


def write(path, table):
    lines = [
        ",".join(table),
        *(",".join(map(str, row)) for row in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")


def draft(folder, table, target="y", name="out", **options):
    write(folder / "a.csv", table)
    given = DraftOptions(target=target, **options)
    return draft_pipeline(str(folder / "a.csv"), folder / name, given)


def find_held_out(folder, table):
    """Mask of the rows in the folds that the drafted pipeline validates and tests on, from its dataset."""
    rows = {"row": [f"r{number}" for number in range(len(table["x"]))]}
    variable = pmf.Variable("row", tuple(rows["row"]))
    write(folder / "a.csv", table | rows)
    config = load_config(folder / "out" / "pipeline.toml")
    entry = build_dataset(
        None, Store(folder / "store"), config.dataset_options, pmf.Schema((variable,))
    )
    folds = config.fold_split
    is_held_out = np.zeros(len(rows["row"]), bool)
    for codes, fold in list_stored_blocks(folder, entry.reference):
        is_held_out[codes[:, 0]] = fold in (*folds.validation, *folds.test)
    return is_held_out


def test_draft_pipeline__numbers_are_cut_where_the_target_changes(tmp_path):
    drafted = draft(tmp_path, make_table())
    assert drafted.schema["x"].edges == pytest.approx((0.29, 0.35), abs=0.005)
    assert drafted.schema["u"].cardinality == 8
    (note,) = (note for note in drafted.notes if "instead of quantiles" in note)
    assert note.startswith("cuts of x by 'y' ")
    assert note.endswith("; chosen")
    assert "x: continuous: cut into 3 bins by 'y'; values are the bins' means" in drafted.notes
    assert (
        "u: continuous: cut into 8 bins at the quantiles; values are the bins' means"
        in drafted.notes
    )
    written = DraftedSchema.load(tmp_path / "out" / "schema.json")
    assert written.schema == drafted.schema
    assert "by 'y'" in written.columns["x"].note


def test_draft_pipeline__rows_of_folds_held_out_have_no_part_in_the_cuts(tmp_path):
    table = make_table()
    before = draft(tmp_path, table)
    held_out = find_held_out(tmp_path, table)
    assert 0.05 < held_out.mean() < 0.2
    flipped = np.where(table["y"] == "yes", "no", "yes")
    after = draft(
        tmp_path, table | {"y": np.where(held_out, flipped, table["y"])}, name="other target"
    )
    assert (after.schema, after.notes) == (before.schema, before.notes)
    moved = {"x": np.where(held_out, 0.999 - table["x"], table["x"]).round(5)}
    after = draft(tmp_path, table | moved, name="other numbers")
    assert after.schema["x"].edges == before.schema["x"].edges
    # whereas a training row counts
    flipped = np.where(held_out | (np.arange(N_ROWS) > 700), table["y"], flipped)
    after = draft(tmp_path, table | {"y": flipped}, name="training")
    assert after.schema["x"].edges != before.schema["x"].edges


@pytest.mark.parametrize("design", ["rows", "identifiers", "units"])
def test_draw_rows__folds_are_those_of_the_dataset(design, tmp_path):
    n_rows, n_folds = 300, 4
    rng = np.random.default_rng(1)
    names = [f"r{number}" for number in range(n_rows)]
    numbers = pmf.Variable("x", ("low", "high"), edges=(0.5,))
    schema = pmf.Schema(
        (pmf.Variable("row", tuple(names)), pmf.Variable("y", ("no", "yes")), numbers)
    )
    (tmp_path / "data").mkdir()
    y = rng.choice(["no", "yes", ""], n_rows)
    table: dict[str, Any] = {
        "row": names,
        "y": y,
        "x": rng.random(n_rows).round(3),
        "id": rng.permutation(n_rows),
    }
    table |= {"w": rng.integers(1, 4, n_rows), "psu": rng.integers(0, 40, n_rows)}
    for name, part in (("b.csv", slice(0, 100)), ("a.csv", slice(100, None))):
        write(tmp_path / "data" / name, {key: column[part] for key, column in table.items()})
    fields = {"identifiers": {"sample": "id"}, "units": {"weight": "w", "psu": "psu"}}.get(
        design, {}
    )
    source = make_source({"path": str(tmp_path / "data"), "layout": "wide", **fields})
    config = make_config(
        {
            "source": source.model_dump(exclude_defaults=True),
            "model": {"rank": 1},
            "store": {"folds": n_folds},
        },
        base=tmp_path,
    )
    store = Store(tmp_path / "store")
    entry = build_dataset(None, store, config.dataset_options, schema)
    stored = {fold: set() for fold in range(n_folds)}
    for codes, fold in list_stored_blocks(tmp_path, entry.reference):
        stored[fold].update(codes[codes[:, 1] >= 0, 0].tolist())
    for fold in range(n_folds):
        drawn = draw_rows(
            find_sources(str(tmp_path / "data")),
            schema,
            source,
            n_folds=n_folds,
            folds=[fold],
            target=1,
            numeric=[2],
            most=n_rows,
        )
        codes = drawn.block.codes[:, 0]
        assert set(codes.tolist()) == stored[fold]
        assert codes.size == len(stored[fold])
        assert (drawn.block.weights is None) == (design != "units")
        if design == "units":
            units, parts = table["psu"][codes], drawn.block.assign_folds(5)
            assert all(np.unique(parts[units == unit]).size == 1 for unit in np.unique(units))


def test_draw_rows__of_many_rows_the_same_are_drawn_whatever_the_others_are(tmp_path):
    table: dict[str, Any] = make_table() | {"row": np.arange(N_ROWS)}
    numbers = pmf.Variable("x", ("low", "high"), edges=(0.5,))
    rows = pmf.Variable("row", tuple(map(str, range(N_ROWS))))
    schema = pmf.Schema((rows, numbers))
    write(tmp_path / "a.csv", table)
    draw = partial(
        draw_rows,
        find_sources(str(tmp_path / "a.csv")),
        schema,
        make_source({"path": "x", "layout": "wide"}),
        n_folds=4,
        folds=(0, 1),
        target=0,
        numeric=[1],
    )
    some, more, all_of_two = (draw(most=most) for most in (50, 90, N_ROWS))
    assert len(some.block) == 50
    chosen, wider = (each.block.codes[:, 0] for each in (some, more))
    assert set(chosen) < set(wider)
    assert (np.diff(chosen) > 0).all()
    assert some.numbers[1].tolist() == table["x"][chosen].tolist()
    table["x"][np.setdiff1d(np.arange(N_ROWS), all_of_two.block.codes[:, 0])] = 0.123
    write(tmp_path / "a.csv", table)
    again = draw(most=50)
    assert again.block.codes.tolist() == some.block.codes.tolist()


@pytest.mark.parametrize("shape", ["halves", "nothing"])
def test_draft_pipeline__without_a_clear_gain_bins_stay_at_the_quantiles(shape, tmp_path):
    table = make_table(shape=shape)
    with_target = draft(tmp_path, table)
    without = draft(tmp_path, table, target=None, name="without")
    assert with_target.schema == without.schema
    compared = [note for note in with_target.notes if note not in without.notes]
    assert all(note.endswith("; not chosen") for note in compared)
    assert len(compared) == (shape == "halves")


@pytest.mark.parametrize("kind", ["no numbers", "few rows", "long"])
def test_draft_pipeline__nothing_is_fitted_without_numbers_or_rows(kind, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a model is fitted")

    monkeypatch.setattr(draft_cuts, "fit_trial", refuse)
    options = {}
    table = make_table(n_rows=150 if kind == "few rows" else 400)
    if kind == "no numbers":
        table = {"g": table["g"], "y": table["y"]}
    if kind == "long":
        n = 400
        table = {
            "who": np.repeat(np.arange(n), 2),
            "what": np.tile(["x", "y"], n),
            "answer": np.column_stack([table["x"], (table["y"] == "yes").astype(int)]).ravel(),
        }
        options = {"sample": "who", "variable": "what", "value": "answer"}
    drafted = draft(tmp_path, table, **options)
    assert not any("quantiles: log-loss" in note for note in drafted.notes)
    assert (
        (drafted.schema["x"].edges is not None)
        if kind != "no numbers"
        else "x" not in drafted.schema
    )


@pytest.mark.parametrize("kind", ["gaps", "weights", "ordered", "rare", "units", "words"])
def test_draft_pipeline__odd_tables_are_cut_as_well(kind, tmp_path):
    n_rows = 4000
    rng = np.random.default_rng(3)
    table, options = make_table(n_rows=n_rows), {}
    if kind == "gaps":
        table["x"] = np.where(rng.random(n_rows) < 0.2, "", table["x"].astype(str))
        table["y"] = np.where(rng.random(n_rows) < 0.2, "", table["y"])
    elif kind == "weights":
        table["w"], options = rng.integers(1, 5, n_rows), {"weight": "w"}
    elif kind == "units":
        table |= {"w": rng.integers(1, 5, n_rows), "psu": rng.integers(0, 99, n_rows)}
        options = {"weight": "w", "psu": "psu"}
    elif kind == "ordered":
        table["y"] = np.where(table["y"] == "yes", 3, rng.integers(1, 3, n_rows))
    elif kind == "rare":
        table["y"][:3] = "never seen again"
    elif kind == "words":
        table["x"] = np.where(np.arange(n_rows) < 5, "a word", table["x"].astype(str))
    drafted = draft(tmp_path, table, **options)
    ends = np.array(drafted.schema["x"].edges)
    assert all(np.abs(ends - end).min() < 0.01 for end in (0.29, 0.35))


def test_draft_pipeline__a_target_of_numbers_keeps_its_bins(tmp_path):
    table = make_table(n_rows=4000)
    table["y"] = np.where(table["y"] == "yes", 100, 0) + table["u"]
    drafted = draft(tmp_path, table)
    assert drafted.schema["x"].cardinality != 8
    assert drafted.schema["y"] == draft(tmp_path, table, None, name="without").schema["y"]


@pytest.mark.parametrize("level", ["no", "yes"])
def test_draft_pipeline__training_rows_of_one_level_cut_nothing(level, tmp_path):
    table = make_table()
    draft(tmp_path, table)
    table["y"] = np.where(find_held_out(tmp_path, table), table["y"], level)
    drafted = draft(tmp_path, table, name="one level")
    assert drafted.schema["y"].cardinality == 2
    assert drafted.schema["x"].cardinality == 8


def test_fit_trial__the_first_fold_chooses_steps_alone():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (300, 3)).astype(np.int8)
    schema = pmf.Schema.from_cardinalities([2, 2, 2])
    block = DenseBlock(codes)
    held_out = block.assign_folds(N_FOLDS) == 0
    result = fit_trial(block, schema, 2)
    assert result.trial is result.model
    assert result.training.n_rows == np.count_nonzero(~held_out)
    # no row of a level
    codes[:, 2] = 0
    assert fit_trial(DenseBlock(codes), schema, 2).trial.predict_proba(codes, 2)[0, 0] > 0.9
