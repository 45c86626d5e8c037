"""Which kernel counts a block."""

import sys

import numpy as np
import pytest

from pmflib.base import Block, DenseBlock, IntArray
from pmflib.counts import add_block, add_blocks, block_counting, choose_method, planes_work
from pmflib.counts.kernels import readiness
from pmflib.counts.kernels.scatter import add_dense


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing saved yet, and nothing compiled by others."""
    # what a process remembers of its own: the time that compiled code would have saved, and warnings given
    monkeypatch.setattr(block_counting, "_saved", {})
    monkeypatch.setattr(block_counting, "is_compiled", lambda method: False)
    monkeypatch.delenv(readiness.PLAIN_VARIABLE, raising=False)
    planes_work.cache_clear()
    monkeypatch.setattr(readiness, "_warned", set())


@pytest.fixture
def no_compile_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_counting, "COMPILE_NS", {"planes": 0.0, "tiles": 0.0})


def make_block(n_rows: int, n_variables: int, share: float) -> tuple[DenseBlock, IntArray]:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (n_rows, n_variables)).astype(np.int8)
    codes[rng.random(codes.shape) >= share] = -1
    return DenseBlock(codes), np.arange(n_variables + 1, dtype=np.int64) * 5


@pytest.mark.usefixtures("no_compile_time")
@pytest.mark.parametrize(
    ("n_variables", "share", "method"),
    [(30, 1.0, "planes"), (30, 0.5, "planes"), (100, 0.1, "tiles"), (500, 0.05, "tiles")],
)
def test_choose_method__dense(n_variables: int, share: float, method: str) -> None:
    assert choose_method(*make_block(20_000, n_variables, share)) == method


@pytest.mark.usefixtures("no_compile_time")
def test_add_blocks__few_rows_never_sweep_a_wide_table(monkeypatch: pytest.MonkeyPatch) -> None:
    block, offsets = make_block(200, 500, 0.05)
    monkeypatch.setattr("pmflib.counts.kernels.scatter.add_tiles", None)
    table, expected = np.zeros((2, offsets[-1], offsets[-1]), np.int64)
    add_blocks(
        [block.to_sparse(offsets).take(np.arange(k, k + 20)) for k in (0, 20)], offsets, table
    )
    add_dense(block.codes[:40], offsets, expected)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.usefixtures("no_compile_time")
@pytest.mark.parametrize("joined_bytes", [1, 1 << 30])
def test_add_blocks__mixed_blocks(monkeypatch: pytest.MonkeyPatch, joined_bytes: int) -> None:
    monkeypatch.setattr("pmflib.counts.block_counting.JOINED_BYTES", joined_bytes)
    full, offsets = make_block(4000, 60, 1.0)
    thin, _ = make_block(6000, 60, 0.05)
    blocks: list[Block] = [
        full,
        thin,
        thin.to_sparse(offsets),
        DenseBlock(full.codes[:1000]),
        full.take(np.arange(7)),
    ]
    table, expected = np.zeros((2, offsets[-1], offsets[-1]), np.int64)
    add_blocks(iter(blocks), offsets, table)
    for block in blocks:
        add_dense(block.to_codes(offsets), offsets, expected)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("method", ["planes", "fold planes", "tiles"])
def test_call_once__every_method(method: readiness.Compiled) -> None:
    # what the thread does, whose errors nobody would see
    readiness._call_once(method)


@pytest.mark.usefixtures("no_compile_time")
@pytest.mark.parametrize("broken", ["missing", "failing", "wrong"])
def test_add_block__vector_code_that_fails(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*arguments: object) -> None:
        if broken == "failing":
            raise RuntimeError("LLVM IR parsing error")

    if broken == "missing":
        monkeypatch.setitem(sys.modules, "pmflib.counts.kernels.planes", None)
    else:
        monkeypatch.setattr("pmflib.counts.kernels.planes.add_planes", fail)
    block, offsets = make_block(9000, 30, 1.0)
    table, expected = np.zeros((2, offsets[-1], offsets[-1]), np.int64)
    reason = {
        "missing": "ModuleNotFoundError",
        "failing": "RuntimeError: LLVM",
        "wrong": "wrong results",
    }
    with pytest.warns(RuntimeWarning, match=reason[broken]):
        add_block(block, offsets, table)
    # once is enough
    add_block(block, offsets, table)
    add_dense(block.codes, offsets, expected)
    np.testing.assert_array_equal(table, 2 * expected)


@pytest.mark.usefixtures("no_compile_time")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n_variables", "share"), [(30, 1.0), (100, 0.1), (5, 0.02)])
def test_add_block__same_counts_by_any_method(n_variables: int, share: float, sparse: bool) -> None:
    block, offsets = make_block(9000, n_variables, share)
    table, expected = np.zeros((2, offsets[-1], offsets[-1]), np.int64)
    add_block(block.to_sparse(offsets) if sparse else block, offsets, table)
    add_dense(block.codes, offsets, expected)
    np.testing.assert_array_equal(table, expected)
