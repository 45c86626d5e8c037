import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib import features
from pmflib.base import PmfError, SchemaError, SourceError
from pmflib.surveys.sites.disclosure_control import round_tables
from pmflib.surveys.sites.site_files import HEADER, digest_content, read_site
from tests.reference import make_codes, tables_of_codes

CARDINALITIES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)


def draw(n_rows=200, seed=0):
    return make_codes(np.random.default_rng(seed), n_rows, CARDINALITIES)


def export(folder, codes, splits, **options):
    paths = [folder / f"site {number}.counts" for number in range(len(splits) + 1)]
    for path, part in zip(paths, np.split(codes, splits), strict=True):
        pmf.count_pairs(part, SCHEMA).export(path, **options)
    return paths


def test_read_counts__sums_over_sites_are_the_counts_of_all_rows(tmp_path):
    codes = draw()
    found = pmf.surveys.read_counts(export(tmp_path, codes, [1, 90]))
    whole = pmf.count_pairs(codes, SCHEMA)
    assert found.to_dense().tobytes() == whole.to_dense().tobytes()
    assert found.n_rows.sum() == 200
    assert found.schema == whole.schema


@given(case=tables_of_codes(max_rows=30), n_folds=st.integers(1, 4))
def test_read_counts__gives_one_file_back_fold_by_fold(tmp_path_factory, case, n_folds):
    path = tmp_path_factory.mktemp("site") / "counts"
    counts = pmf.count_pairs(case[1], case[0], n_folds=n_folds)
    counts.export(path)
    found = pmf.surveys.read_counts(path)
    assert np.array_equal(found.tables, counts.tables)
    assert np.array_equal(found.n_rows, counts.n_rows)


def test_read_counts__adds_weights(tmp_path):
    codes, weight = draw(60), np.random.default_rng(1).integers(1, 4, 60) / 2
    schema = dataclasses.replace(SCHEMA, weight_decimals=1)
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, part in zip(paths, (slice(20), slice(20, None)), strict=True):
        pmf.count_pairs(codes[part], schema, weight=weight[part]).export(path)
    found, whole = pmf.surveys.read_counts(paths), pmf.count_pairs(codes, schema, weight=weight)
    assert np.array_equal(found.to_dense(), whole.to_dense())
    assert found.n_effective == whole.n_effective
    pmf.count_pairs(codes, SCHEMA).export(tmp_path / "c")
    with pytest.raises(SchemaError, match=r"c' cannot be added to .*weights"):
        pmf.surveys.read_counts([*paths, tmp_path / "c"])


def test_read_counts__names_with_signs_and_equal_labels_stay_apart(tmp_path):
    table = {"a=b": ["c", "d", "c"], "a": ["b=c", "c", "c"], "é\n": ["", "c", "ß"]}
    counts = pmf.count_pairs(table, pmf.Schema.infer(table))
    counts.export(tmp_path / "x")
    assert np.array_equal(pmf.surveys.read_counts(tmp_path / "x").tables, counts.tables)
    assert set(pq.read_table(tmp_path / "x").to_pandas().variable) == {*table}


def test_fit__and_questions_work_on_the_sum(tmp_path):
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=(900, 1))
    codes = np.where(rng.random((900, 5)) < 0.9, side, 1 - side)
    paths = []
    for number, part in enumerate(np.split(codes, [200, 500])):
        paths.append(tmp_path / str(number))
        pmf.count_pairs(part, [2] * 5).export(paths[-1], 5, seed=number)
    counts = pmf.surveys.read_counts(paths)
    model = pmf.fit(counts, "auto").model
    assert model.rank == 2
    answer = model.ask("P(v1=1 | v0=1)", data=counts)
    assert answer.interval[0] < 0.82 < answer.interval[1]


@pytest.mark.parametrize("minimum", [3, 5, 10])
def test_export__shows_no_cell_below_the_minimum(tmp_path, minimum):
    codes = draw()
    (path,) = export(tmp_path, codes, [], minimum=minimum, seed=7)
    exact, found = pmf.count_pairs(codes, SCHEMA), pmf.surveys.read_counts(path)
    assert not (found.tables % minimum).any()
    assert not found.tables[exact.tables == 0].any()
    assert np.array_equal(found.n_rows, exact.n_rows)
    offsets = SCHEMA.offsets
    moved = np.abs(np.diag(found.to_dense() - exact.to_dense()))
    assert 0 < moved.max() < minimum
    observed = [np.add.reduceat(np.diag(x.to_dense()), offsets[:-1]) for x in (found, exact)]
    assert np.abs(observed[0] - observed[1]).max() < minimum
    assert read_site(path).minimum == minimum


def test_round_tables__is_unbiased_and_varies_by_less_than_random_rounding():
    counts = pmf.count_pairs(draw(60), SCHEMA, n_folds=3)
    n_draws, base = 4000, 5
    found = np.array(
        [round_tables(counts.tables, SCHEMA.offsets, base, seed) for seed in range(n_draws)]
    )
    errors = found.std(axis=0) / np.sqrt(n_draws)
    apart = np.abs(found.mean(axis=0) - counts.tables)
    assert (apart <= 4.5 * errors + 1e-12).all()
    # single counts vary as those that are rounded alone, over all folds
    levels = np.diagonal(found.sum(axis=1), axis1=1, axis2=2)
    assert levels.var(axis=0).max() <= base**2 / 4 * 1.1


@pytest.mark.parametrize("n_rare", [1, 2, 5, 13])
def test_round_tables__pairs_vary_by_at_most_what_the_page_says(n_rare):
    codes = np.repeat((np.arange(100) < n_rare)[:, None], 2, axis=1).astype(np.int8)
    tables, base = pmf.count_pairs(codes, [2, 2], n_folds=1).tables, 10
    offsets = np.array([0, 2, 4])
    found = np.array([round_tables(tables, offsets, base, seed)[0] for seed in range(4000)])
    variance = found[:, :2, 2:].var(axis=0).max()
    assert base**2 / 4 < variance <= 1.25 * base**2 * 1.1


def test_round_tables__tables_of_a_level_together_do_not_tell_its_count():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (400, 40)).astype(np.int8)
    codes[:, 0] = np.arange(400) < 3
    tables = pmf.count_pairs(codes, [2] * 40, n_folds=1).tables
    offsets = np.arange(0, 81, 2)
    for seed in range(6):
        rounded = round_tables(tables, offsets, 5, seed)[0]
        by_pair = rounded[1, 2:].reshape(-1, 2).sum(axis=1)
        assert by_pair.mean() == pytest.approx(rounded[1, 1], abs=1.5)
        assert rounded[1, 1] in (0, 5)


def test_export__follows_from_counts_and_seed(tmp_path):
    counts, other = (pmf.count_pairs(draw(seed=seed), SCHEMA) for seed in (0, 1))
    digests = {
        name: x.export(tmp_path / name, 5, seed=seed)
        for name, x, seed in (("a", counts, 1), ("b", counts, 1), ("c", counts, 2), ("d", other, 1))
    }
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len({*digests.values()}) == 3
    assert counts.export(tmp_path / "e", 5) != counts.export(tmp_path / "f", 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minimum": 0}, "minimum is 0; pass a whole number of at least 1"),
        ({"minimum": 2.5}, r"minimum is 2\.5; pass a whole number"),
        ({"minimum": 5, "seed": -1}, "seed is -1; pass a whole number of at least 0"),
        ({"minimum": 201}, "counts have 200 rows, fewer than minimum=201"),
    ],
)
def test_export__refuses_arguments(tmp_path, options, words):
    with pytest.raises(pmf.PmfError, match=words):
        pmf.count_pairs(draw(), SCHEMA).export(tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_export__refuses_a_minimum_of_weights_and_effective_samples(tmp_path):
    counts = pmf.count_pairs(draw(), SCHEMA, weight=np.arange(1, 201))
    with pytest.raises(pmf.PmfError, match="sums of weights"):
        counts.export(tmp_path / "x", 5)
    with pytest.raises(pmf.PmfError, match="effective samples"):
        counts.to_samples().export(tmp_path / "x")


@pytest.mark.parametrize("n_rows", [0, 1, 2])
def test_export__few_rows_and_one_variable(tmp_path, n_rows):
    counts = pmf.count_pairs(np.zeros((n_rows, 1), np.int8), [1])
    counts.export(tmp_path / "x")
    assert pmf.surveys.read_counts([tmp_path / "x"]).to_dense().tolist() == [[n_rows]]


def variables(**changes):
    first = {"name": "sex", "levels": ["f", "m"], "missing": ["", "9"]}
    second = {"name": "age", "levels": ["y", "o"], "missing": [""]}
    return {"format": "pmf-schema-1", "variables": [first | changes, second]}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (variables(levels=["m", "f"]), r"'sex' has its levels in the order \['m', 'f'\], not \['f"),
        (variables(levels=["f", "x"]), r"'sex' lacks the levels \['m'\]; 'sex' also has .*\['x'\]"),
        (variables(missing=["", "8"]), r"'sex' has the missing codes \['', '8'\], not \['', '9'\]"),
        (variables(other="f"), r"'sex' has the other f, not None"),
        (variables(name="gender"), r"it lacks \['sex'\]; it also has \['gender'\]"),
        (
            variables() | {"variables": variables()["variables"][::-1]},
            r"its variables are in the order \['age', 'sex'\]",
        ),
    ],
)
def test_read_counts__refuses_another_schema_and_says_in_what(tmp_path, schema, words):
    for path, each in ((tmp_path / "north", variables()), (tmp_path / "south", schema)):
        own = pmf.Schema.from_json(each)
        pmf.count_pairs(pmf.Codes(np.zeros((3, 2), np.int8)), own).export(path)
    with pytest.raises(SchemaError, match=words) as caught:
        pmf.surveys.read_counts([tmp_path / "north", tmp_path / "south"])
    assert "south' have another schema than '" in str(caught.value)


def test_read_counts__refuses_other_folds_and_the_same_counts_twice(tmp_path):
    paths = export(tmp_path, draw(), [50])
    pmf.count_pairs(draw(), SCHEMA, n_folds=2).export(tmp_path / "two")
    with pytest.raises(
        SchemaError, match=r"two' cannot be added to .*n_folds is 2; pass one of \[16\]"
    ):
        pmf.surveys.read_counts([paths[0], tmp_path / "two"])
    (tmp_path / "copy").write_bytes(paths[0].read_bytes())
    with pytest.raises(pmf.PmfError, match="are the same, and their rows would count twice"):
        pmf.surveys.read_counts([*paths, tmp_path / "copy"])
    with pytest.raises(pmf.PmfError, match="paths is empty"):
        pmf.surveys.read_counts([])
    with pytest.raises(SourceError, match="is not a file"):
        pmf.surveys.read_counts(tmp_path / "none")


def rewrite(path, change):
    """Write the table of a file again after a change of its columns or of its header."""
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[HEADER])
    table = change(table, header)
    pq.write_table(table.replace_schema_metadata({HEADER: json.dumps(header)}), path)


def raise_count(table, header):
    column = table["count"].to_numpy().copy()
    column[3] += 1
    return table.set_column(table.column_names.index("count"), "count", [column])


def drop_cell(table, header):
    return table.slice(1)


def hide_rounding(table, header):
    header["minimum"] = 1
    return table


def add_row(table, header):
    header["rows"][0] += 1
    return table


def rename_level(table, header):
    header["schema"]["variables"][0]["levels"][0] = "other"
    return table


@pytest.mark.parametrize("change", [raise_count, drop_cell, hide_rounding, add_row, rename_level])
def test_read_counts__refuses_a_changed_file(tmp_path, change):
    (path,) = export(tmp_path, draw(), [], minimum=5, seed=0)
    rewrite(path, change)
    with pytest.raises(SourceError, match="is damaged, changed or no file of counts"):
        pmf.surveys.read_counts(path)


def test_read_counts__refuses_every_truncated_file(tmp_path):
    (path,) = export(tmp_path, draw(20), [])
    content = path.read_bytes()
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        with pytest.raises(SourceError, match="export the counts again"):
            pmf.surveys.read_counts(path)


def test_read_counts__refuses_counts_below_zero_even_with_their_digest(tmp_path):
    (path,) = export(tmp_path, draw(20), [])

    def change(table, header):
        site = read_site(path)
        column = table["count"].to_numpy().copy()
        spot = tuple(np.argwhere(site.tables)[0])
        column[0] = site.tables[spot] = -1
        header["digest"] = digest_content(header, site.tables)
        return table.set_column(table.column_names.index("count"), "count", [column])

    rewrite(path, change)
    with pytest.raises(SourceError, match="a count is below 0"):
        pmf.surveys.read_counts(path)


def test_export_is_refused_without_the_feature(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "FEATURES", ())
    with pytest.raises(PmfError, match=r"PairCounts\.save keeps them"):
        pmf.count_pairs(draw(), SCHEMA).export(tmp_path / "x")
