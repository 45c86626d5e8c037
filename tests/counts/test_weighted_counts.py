import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError, read_weights, sum_squares

SCHEMA = pmf.Schema.from_cardinalities([3, 2, 4])


def draw(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(-1, size, n_rows) for size in SCHEMA.cardinalities], axis=1)
    return codes.astype(np.int8), rng.integers(1, 9, n_rows)


@pytest.mark.parametrize("n_rows", [1, 400])
def test_count_pairs__whole_weights_count_as_repeated_rows(n_rows):
    codes, weight = draw(n_rows)
    weighted = pmf.count_pairs(codes, SCHEMA, weight=weight, n_folds=1)
    repeated = pmf.count_pairs(np.repeat(codes, weight, axis=0), SCHEMA, n_folds=1)
    np.testing.assert_array_equal(weighted.tables, repeated.tables)
    assert weighted.n_rows.tolist() == [n_rows]


@pytest.mark.parametrize(("largest", "missing"), [(2, 0.1), (1 << 20, 0.1), (1 << 20, 0.95)])
def test_count_pairs__weights_of_wide_rows_have_the_same_sums_by_every_kernel(largest, missing):
    rng = np.random.default_rng(3)
    codes = rng.integers(3, size=(3000, 40)).astype(np.int8)
    codes[rng.random(codes.shape) < missing] = -1
    weight = rng.integers(1, largest + 1, 3000)
    found = pmf.count_pairs(codes, [3] * 40, weight=weight, n_folds=1).tables[0]
    hot = (codes[:, :, None] == np.arange(3)).reshape(3000, 120).astype(np.int64)
    np.testing.assert_array_equal(found, np.triu(hot.T @ (hot * weight[:, None])))


@pytest.mark.parametrize("equal", [1, 3, 2.5, 1e9, 0.000004])
def test_to_samples__equal_weights_give_the_counts_without_any(equal):
    codes, _ = draw()
    counts = pmf.count_pairs(codes, SCHEMA, weight=np.full(400, equal)).to_samples()
    plain = pmf.count_pairs(codes, SCHEMA)
    assert counts.tables.dtype == plain.tables.dtype
    np.testing.assert_array_equal(counts.tables, plain.tables)
    np.testing.assert_array_equal(counts.n_rows, plain.n_rows)


def test_weighted_counts__add_and_subtract_exactly_with_a_weight_of_a_thousand_million():
    codes, weight = draw()
    weight[7] = 10**9
    schema = pmf.Schema(SCHEMA.variables, weight_decimals=2)
    first = pmf.count_pairs(codes[:200], schema, weight=weight[:200], n_folds=1)
    second = pmf.count_pairs(codes[200:], schema, weight=weight[200:], n_folds=1)
    whole = pmf.count_pairs(codes, schema, weight=weight, n_folds=1)
    both = first + second
    np.testing.assert_array_equal(both.tables, whole.tables)
    assert both.weights == whole.weights
    assert (whole - second).weights == first.weights
    exact = sum(int(each) for each in weight) ** 2 / sum(int(each) ** 2 for each in weight)
    assert whole.n_effective == pytest.approx(exact, rel=1e-14)


def test_weighted_counts__of_folds_sum_to_the_whole_and_survive_the_disk(tmp_path):
    codes, weight = draw()
    counts = pmf.count_pairs(codes, SCHEMA, weight=weight * 0.125)
    assert counts.weights is not None
    assert counts.weights.decimals == 3
    parts = [counts.select_folds(folds) for folds in (range(5), range(5, 16))]
    assert sum(part.weights.totals[0] for part in parts) > 0
    counts.save(tmp_path / "counts")
    loaded = pmf.PairCounts.load(tmp_path / "counts")
    assert loaded.weights == counts.weights
    np.testing.assert_array_equal(loaded.tables, counts.tables)
    total = pmf.PairCounts.load_total(tmp_path / "counts")
    assert total.weights == counts.weights.merge()


def test_weighted_counts__do_not_join_others():
    codes, weight = draw()
    whole = pmf.count_pairs(codes, SCHEMA, weight=weight)
    with pytest.raises(SchemaError, match="weights"):
        whole + pmf.count_pairs(codes, SCHEMA)
    with pytest.raises(pmf.PmfError, match="weight_decimals=1"):
        whole + pmf.count_pairs(codes, SCHEMA, weight=weight + 0.5)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, r"weight\[3\]"),
        (-2, r"weight\[3\]"),
        (np.nan, r"weight\[3\]"),
        (np.inf, r"weight\[3\]"),
        (1e-16, r"weight\[3\]"),
        (1e19, "weight"),
    ],
)
def test_count_pairs__a_weight_that_is_none_is_named_with_its_row(value, said):
    codes, weight = draw()
    weight = weight.astype(float)
    weight[3] = value
    with pytest.raises(pmf.PmfError, match=said):
        pmf.count_pairs(codes, SCHEMA, weight=weight)


def test_count_pairs__weights_of_another_number_of_rows_or_of_batches_are_refused():
    codes, weight = draw()
    with pytest.raises(pmf.PmfError, match="weight"):
        pmf.count_pairs(codes, SCHEMA, weight=weight[1:])
    with pytest.raises(pmf.PmfError, match="weight"):
        pmf.count_pairs(codes, SCHEMA, weight=["a"] * 400)
    with pytest.raises(pmf.PmfError, match="weight"):
        pmf.count_pairs(iter([codes]), SCHEMA, weight=weight)


def test_sum_squares__is_exact_beyond_int64():
    units = np.array([2**62, 3, 2**40 + 1], np.int64)
    assert sum_squares(units) == 2**124 + 9 + (2**40 + 1) ** 2


def test_read_weights__keeps_as_few_decimals_as_hold_all():
    assert read_weights([1, 2], 2).decimals == 0
    assert read_weights([1.25, 2], 2).decimals == 2
    assert read_weights([1 / 3, 2], 2).units.tolist() == [333333, 2000000]


def test_schema__keeps_the_unit_of_weights_in_its_file_and_not_in_its_digest(tmp_path):
    schema = pmf.Schema(SCHEMA.variables, weight_decimals=4)
    schema.save(tmp_path / "schema.json")
    assert pmf.Schema.load(tmp_path / "schema.json").weight_decimals == 4
    assert schema.digest == SCHEMA.digest
