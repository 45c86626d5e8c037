import itertools
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import pmflib as pmf
from pmflib.answering import TableRequest, conditional_tables, count_stored_tables, weighted_tables
from pmflib.answering.conditional_tables import count_tables
from pmflib.answering.weighted_tables import plan_stored_tables
from pmflib.base import ConfigError, DenseBlock, MemoryPlanError
from tests.stored_samples import write_partition

CARDINALITIES = [3, 1, 4, 20, 5]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
POSITIONS = range(len(CARDINALITIES))
LARGE = TableRequest((3, 2), ())
MANY = [
    TableRequest(()),
    TableRequest((), ((1, (0,)),)),
    TableRequest((0,)),
    TableRequest((2, 0), ((4, (1, 3)),)),
    TableRequest((2, 0), ((2, (0, 1)), (3, tuple(range(11))))),
    LARGE,
    TableRequest((4, 3, 0), ((1, (0,)),)),
    TableRequest((3,), ((3, (19,)), (0, (2,)))),
]


def draw_codes(n_rows, cardinalities=CARDINALITIES, seed=0, missing=0.2):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, size, n_rows) for size in cardinalities])
    return np.where(rng.random(codes.shape) < missing, -1, codes).astype(np.int8)


def count_slowly(codes, schema, request):
    """A row at a time."""
    table = np.zeros([schema.cardinalities[position] for position in request.targets], np.int64)
    for row in codes.tolist():
        cell = tuple(row[position] for position in request.targets)
        if min(cell, default=0) >= 0 and all(row[j] in allowed for j, allowed in request.given):
            table[cell] += 1
    return table


def check(tables, codes, requests, schema=SCHEMA):
    assert len(tables) == len(requests)
    for table, request in zip(tables, requests, strict=True):
        assert table.dtype == np.int64
        np.testing.assert_array_equal(table, count_slowly(codes, schema, request))


def split(codes, ends, sparse=False):
    bounds = [0, *sorted(ends), len(codes)]
    parts = [DenseBlock(codes[start:stop]) for start, stop in itertools.pairwise(bounds)]
    return [part.to_sparse(SCHEMA.offsets) if sparse else part for part in parts]


@st.composite
def draw_requests(draw):
    targets = draw(st.lists(st.sampled_from(POSITIONS), unique=True, max_size=3))
    conditioned = draw(st.lists(st.sampled_from(POSITIONS), unique=True, max_size=3))
    conditions = tuple(
        (position, tuple(draw(st.sets(st.integers(0, CARDINALITIES[position] - 1), min_size=1))))
        for position in conditioned
    )
    return TableRequest(tuple(targets), conditions)


@given(
    requests=st.lists(draw_requests(), max_size=6),
    n_rows=st.integers(0, 200),
    missing=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
    cuts=st.lists(st.floats(0, 1), max_size=4),
    sparse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_count_tables__every_table_equals_a_loop_over_the_rows(
    requests, n_rows, missing, cuts, sparse, seed
):
    codes = draw_codes(n_rows, seed=seed, missing=missing)
    blocks = split(codes, [int(cut * n_rows) for cut in cuts], sparse)
    check(count_tables(blocks, SCHEMA, requests), codes, requests)


@pytest.mark.parametrize("sparse", [False, True])
def test_count_tables__large_blocks_are_counted_in_parts(monkeypatch, sparse):
    monkeypatch.setattr(conditional_tables, "MAX_BLOCK_ROWS", 128)
    codes = draw_codes(1000)
    for ends in ([], [127, 128, 129], [500, 500, 640]):
        check(count_tables(split(codes, ends, sparse), SCHEMA, MANY), codes, MANY)


def test_count_tables__codes_of_16_bits():
    schema = pmf.Schema.from_cardinalities([300, 2])
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(-1, 300, 500), rng.integers(-1, 2, 500)]).astype(np.int16)
    requests = [
        TableRequest((0,), ((1, (1,)),)),
        TableRequest((1,), ((0, tuple(range(100, 290))),)),
    ]
    check(count_tables([DenseBlock(codes)], schema, requests), codes, requests, schema)


def test_count_tables__no_requests_and_no_blocks():
    assert count_tables([DenseBlock(draw_codes(5))], SCHEMA, []) == []
    check(count_tables([], SCHEMA, MANY), np.empty((0, 5), np.int8), MANY)


def test_count_tables__equal_requests_have_arrays_of_their_own():
    codes = draw_codes(50)
    first = TableRequest((0,), ((4, (3, 1)), (2, (0,))))
    second = TableRequest((0,), ((2, (0,)), (4, (1, 3, 3))))
    assert first == second
    assert first.digest == second.digest
    assert first.to_json() == {
        "targets": [0],
        "given": [[2, [0]], [4, [1, 3]]],
        "n_given": 0,
    }
    assert first.digest != TableRequest((0,), ((2, (0,)), (4, (1,)))).digest
    tables = count_tables([DenseBlock(codes)], SCHEMA, [first, second])
    check(tables, codes, [first, second])
    tables[0][:] = -1
    check(tables[1:], codes, [second])


def test_count_tables__tables_that_do_not_fit_in_memory_are_refused():
    schema = pmf.Schema.from_cardinalities([1000] * 6)
    with pytest.raises(MemoryPlanError):
        count_tables([], schema, [TableRequest((0, 1, 2, 3, 4, 5))])


CODES = draw_codes(400, seed=1)


@pytest.fixture(params=["dense", "sparse"])
def blocks(request, tmp_path):
    return write_partition(
        tmp_path, CODES, SCHEMA, sparse=request.param == "sparse", block_rows=30, n_folds=3
    )


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_count_stored_tables__the_same_for_any_number_of_threads(blocks, monkeypatch, n_threads):
    monkeypatch.setattr(weighted_tables, "count_processors", lambda: n_threads)
    counted = count_stored_tables(blocks, SCHEMA, MANY)
    check(counted.tables, CODES, MANY)
    assert counted.n_rows == counted.n_rows_of_all == len(CODES)
    assert counted.n_blocks == len(blocks)


def test_count_stored_tables__the_same_on_workers(blocks, thread_client):
    counted = count_stored_tables(blocks, SCHEMA, MANY, client=thread_client)
    check(counted.tables, CODES, MANY)
    alone = count_stored_tables(blocks, SCHEMA, MANY)
    assert (counted.n_rows, counted.seconds) == (alone.n_rows, alone.seconds)
    assert plan_stored_tables(blocks, SCHEMA, MANY) == alone.seconds


def test_count_stored_tables__joins_small_blocks_up_to_the_size_of_one(blocks, monkeypatch):
    monkeypatch.setattr(weighted_tables, "count_processors", lambda: 1)
    sizes: list[int] = []

    def add(block, *others):
        sizes.append(block.nbytes)
        conditional_tables.add_cells(block, *others)

    monkeypatch.setattr(weighted_tables, "add_cells", add)
    check(count_stored_tables(blocks, SCHEMA, MANY).tables, CODES, MANY)
    assert len(sizes) == 1
    limit = sizes[0] // 3
    sizes.clear()
    monkeypatch.setattr(weighted_tables, "BLOCK_BYTES", limit)
    check(count_stored_tables(blocks, SCHEMA, MANY).tables, CODES, MANY)
    assert 3 <= len(sizes) < len(blocks)
    assert max(sizes) <= limit
    sizes.clear()
    monkeypatch.setattr(weighted_tables, "BLOCK_BYTES", 1)
    check(count_stored_tables(blocks, SCHEMA, MANY).tables, CODES, MANY)
    assert len(sizes) == len(blocks)


def test_count_stored_tables__superseded_rows_are_not_counted(blocks):
    parts = [
        replace(block, superseded=np.arange(block.start, stop))
        for block, stop in [
            (blocks[0], blocks[0].start + 7),
            (blocks[1], blocks[1].stop),
            (blocks[2], blocks[2].start),
        ]
    ]
    kept = [*parts, *blocks[3:]]
    left = [count_stored_tables([block], SCHEMA, [TableRequest(())]).tables[0] for block in kept]
    assert [int(n) for n in left] == [block.n_rows for block in kept]
    counted = count_stored_tables(kept, SCHEMA, MANY)
    lost = count_stored_tables(
        [replace(blocks[0], stop=blocks[0].start + 7), blocks[1]], SCHEMA, MANY
    )
    assert counted.n_rows == len(CODES) - 7 - blocks[1].n_rows
    assert counted.n_blocks == len(blocks) - 1
    summed = [a + b for a, b in zip(counted.tables, lost.tables, strict=True)]
    check(summed, CODES, MANY)


def test_count_stored_tables__without_samples_all_cells_are_0(blocks):
    empty = replace(blocks[0], superseded=np.arange(blocks[0].start, blocks[0].stop))
    for references in ([], [empty]):
        counted = count_stored_tables(references, SCHEMA, MANY, budget=1e-9)
        check(counted.tables, np.empty((0, 5), np.int8), MANY)
        assert (counted.n_rows, counted.n_rows_of_all, counted.n_blocks) == (0, 0, 0)
        assert counted.seconds == 0


def test_count_stored_tables__a_budget_draws_the_same_blocks_again(blocks, thread_client):
    everything = count_stored_tables(blocks, SCHEMA, MANY)
    budget = everything.seconds / 2
    half = count_stored_tables(blocks, SCHEMA, MANY, budget=budget, digest="a dataset")
    assert 0 < half.seconds <= budget
    assert 0 < half.n_rows < half.n_rows_of_all == len(CODES)
    assert 0 < half.n_blocks < len(blocks)
    again = count_stored_tables(
        blocks, SCHEMA, MANY, client=thread_client, budget=budget, digest="a dataset"
    )
    for table, other in zip(half.tables, again.tables, strict=True):
        np.testing.assert_array_equal(table, other)
    assert int(half.tables[0]) == half.n_rows == again.n_rows


def test_count_stored_tables__another_dataset_draws_others_and_a_larger_budget_more(blocks):
    budget = count_stored_tables(blocks, SCHEMA, MANY).seconds / 2
    tables = [
        count_stored_tables(blocks, SCHEMA, MANY, budget=budget, digest=f"{n}").tables[5]
        for n in range(6)
    ]
    assert len({table.tobytes() for table in tables}) > 1
    smaller = count_stored_tables(blocks, SCHEMA, MANY, budget=budget / 2, digest="0").tables[5]
    assert np.all(smaller <= tables[0])
    assert smaller.sum() < tables[0].sum()


def test_count_stored_tables__the_smallest_budget_counts_one_block_and_the_largest_all(blocks):
    least = count_stored_tables(blocks, SCHEMA, MANY, budget=1e-12)
    assert least.n_blocks == 1
    check(count_stored_tables(blocks, SCHEMA, MANY, budget=float("inf")).tables, CODES, MANY)


@pytest.mark.parametrize("budget", [0, -1.0, float("nan")])
def test_count_stored_tables__a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ConfigError, match="budget"):
        count_stored_tables([], SCHEMA, MANY, budget=budget)
