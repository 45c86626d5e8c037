from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib_tasks.gate import compare_pairs, compare_singles
from pmflib_tasks.guards import align_levels, measure_distances

FIRST = pmf.Schema(
    (
        pmf.Variable("a", ("x", "y")),
        pmf.Variable("b", ("0", "1", "2")),
        pmf.Variable("gone", ("n",)),
    )
)
SECOND = pmf.Schema(
    (pmf.Variable("b", ("2", "0", "3")), pmf.Variable("new", ("n",)), pmf.Variable("a", ("y", "x")))
)


def draw(schema, n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return pmf.Codes(rng.integers(-1, schema.cardinalities, (n_rows, schema.n_variables)))


def count(schema, codes):
    return pmf.count_pairs(codes, schema, n_folds=1).to_dense()


def test_align_levels__by_name_and_label():
    levels = align_levels(FIRST, SECOND)
    assert levels.names == ("b", "a")
    # b: 2 0 3 1, a: y x
    assert levels.offsets.tolist() == [0, 4, 6]
    assert levels.first.tolist() == [5, 4, 1, 3, 0, -1]
    assert levels.second.tolist() == [0, 1, 2, -1, 4, 5]
    assert levels.align(np.arange(6.0), levels.first).tolist() == [4, 2, 0, 3, 1, 0]


def test_compare_singles__by_hand():
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("0", "1"))))
    levels = align_levels(schema, schema)
    found = compare_singles(levels, np.array([50, 50, 30, 0]), np.array([80, 20, 60, 0]))
    assert [change.variable for change in found] == ["a", "b"]
    assert found[0].total_variation == pytest.approx(0.3)
    # the mean absolute value of a normal variable, of the pooled share 0.65
    chance = np.sqrt(2 / np.pi * 0.65 * 0.35 * (1 / 100 + 1 / 100))
    assert found[0].by_chance == pytest.approx(chance)
    p, q = np.array([50.5, 50.5]) / 101, np.array([80.5, 20.5]) / 101
    assert found[0].psi == pytest.approx(np.sum((p - q) * np.log(p / q)))
    assert (found[0].n_first, found[0].n_second) == (100, 100)
    assert (found[1].total_variation, found[1].n_second) == (0.0, 60)


def test_compare_singles__leaves_out_what_one_side_never_saw():
    levels = align_levels(FIRST, FIRST)
    found = compare_singles(levels, np.array([1, 2, 0, 0, 0, 1]), np.array([1, 2, 3, 4, 5, 0]))
    assert [change.variable for change in found] == ["a"]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(1, 9))
def test_measure_distances__of_equal_shares_is_nearly_nothing_and_never_negative(counts, times):
    def measure(first, second):
        cells = np.stack([first, second]).astype(float)
        return measure_distances(cells, np.array([0, first.size])).stability_index[0]

    counts = np.array(counts)
    assert measure(counts, counts) == 0
    assert measure(counts, counts[::-1]) == pytest.approx(measure(counts[::-1], counts))
    assert measure(counts, counts * times) >= 0


def test_by_chance__is_what_two_samples_of_one_distribution_differ_by():
    schema = pmf.Schema((pmf.Variable("a", tuple("abcde")),))
    levels, rng = align_levels(schema, schema), np.random.default_rng(0)
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    found = [
        compare_singles(levels, rng.multinomial(300, shares), rng.multinomial(200, shares))[0]
        for _ in range(2000)
    ]
    variation = np.mean([change.total_variation for change in found])
    assert variation == pytest.approx(np.mean([change.by_chance for change in found]), rel=0.03)


@pytest.mark.parametrize("schemas", [(FIRST, FIRST), (FIRST, SECOND), (SECOND, FIRST)])
def test_compare_pairs__as_pair_by_pair(schemas):
    first, second = schemas
    levels = align_levels(first, second)
    codes = draw(first, 300), draw(second, 200, seed=1)
    n_pairs, found = compare_pairs(
        levels, count(first, codes[0]), count(second, codes[1]), most=100
    )
    expected = {}
    for j, k in combinations(levels.names, 2):
        shares = []
        for schema, values in zip(schemas, codes, strict=True):
            table = {}
            for a, b in values[:, [schema.position(j), schema.position(k)]].tolist():
                if a >= 0 and b >= 0:
                    key = schema[j].levels[a], schema[k].levels[b]
                    table[key] = table.get(key, 0) + 1
            shares.append(table)
        sizes = [sum(table.values()) for table in shares]
        keys = {*shares[0], *shares[1]}
        p, q = (
            np.array([table.get(key, 0) for key in keys]) / n
            for table, n in zip(shares, sizes, strict=True)
        )
        expected[j, k] = np.abs(p - q).sum() / 2, *sizes
    assert n_pairs == len(found) == len(expected)
    for change in found:
        variation, *sizes = expected[change.variables]
        assert change.total_variation == pytest.approx(variation)
        assert [change.n_first, change.n_second] == sizes
    beyond = [change.total_variation - change.by_chance for change in found]
    assert beyond == sorted(beyond, reverse=True)


def test_compare_pairs__only_the_largest():
    schema = pmf.Schema(tuple(pmf.Variable(name, ("0", "1")) for name in "abcd"))
    codes = draw(schema, 500)
    moved = codes.copy()
    # a and b hang together from now on, and their distributions are as they were
    moved[:, 1] = moved[:, 0]
    n_pairs, found = compare_pairs(
        align_levels(schema, schema), count(schema, codes), count(schema, moved), most=1
    )
    assert n_pairs == 6
    assert [change.variables for change in found] == [("a", "b")]
    assert found[0].total_variation > 0.4
