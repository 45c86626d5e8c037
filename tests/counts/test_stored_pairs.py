import numpy as np
import pytest

import pmflib as pmf
from pmflib.counts import CountsWriter, count_stored_pairs, stored_pairs
from tests.reference import make_codes, pair_table
from tests.stored_samples import write_partition

CARDINALITIES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
CODES = make_codes(np.random.default_rng(0), 90, CARDINALITIES)
N_FOLDS = 7


@pytest.fixture(params=["dense", "sparse"])
def blocks(request, tmp_path):
    sparse = request.param == "sparse"
    return write_partition(tmp_path, CODES, SCHEMA, sparse=sparse, n_folds=N_FOLDS - 1)


def count(folder, blocks, client=None, on_fold=None):
    """Counts of all folds; the last one has no samples."""
    by_fold = {fold: [b for b in blocks if b.fold == fold] for fold in range(N_FOLDS)}
    path = folder / f"counts-{len(list(folder.glob('counts-*')))}"
    writer = CountsWriter(path, SCHEMA, N_FOLDS)
    n_samples = count_stored_pairs(client, by_fold, writer, folder / "work", on_fold)
    writer.close()
    assert n_samples == len(CODES)
    return pmf.PairCounts.load(path)


def check(counts):
    for fold in range(N_FOLDS):
        rows = np.arange(len(CODES)) % (N_FOLDS - 1) == fold
        expected = pair_table(CODES[rows], CARDINALITIES)
        np.testing.assert_array_equal(counts.tables[fold], expected)
        assert counts.n_rows[fold] == rows.sum()


def test_count_stored_pairs__every_fold_equals_a_loop_over_its_rows(
    tmp_path, blocks, thread_client
):
    done = []
    check(count(tmp_path, blocks, on_fold=lambda *progress: done.append(progress)))
    assert done == [(fold + 1, min(90, 15 * (fold + 1))) for fold in range(N_FOLDS)]
    (tmp_path / "other").mkdir()
    check(count(tmp_path / "other", blocks, thread_client))


def test_count_stored_pairs__goes_on_after_the_last_fold_that_was_counted(
    tmp_path, blocks, monkeypatch
):
    original_save = stored_pairs.save_table  # type: ignore[attr-defined]
    original_start = stored_pairs.start_maps  # type: ignore[attr-defined]
    started = []

    def save_three(path, table):
        if path.stem == "fold-3":
            raise KeyboardInterrupt
        original_save(path, table)

    def start(client, function, items, *arguments, **options):
        started.extend(items)
        return original_start(client, function, items, *arguments, **options)

    monkeypatch.setattr(stored_pairs, "save_table", save_three)
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path, blocks)
    monkeypatch.setattr(stored_pairs, "save_table", original_save)
    monkeypatch.setattr(stored_pairs, "start_maps", start)
    check(count(tmp_path, blocks))
    assert started == ["fold-03", "fold-04", "fold-05"]


def test_count_stored_pairs__a_damaged_checkpoint_is_counted_again(tmp_path, blocks):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "fold-2.npz").write_bytes(b"damaged")
    check(count(tmp_path, blocks))


@pytest.mark.parametrize(("n_small", "n_calls"), [(0, 3), (9, 1)])
def test_count_stored_pairs__few_large_tables_are_under_way_at_a_time(
    tmp_path, blocks, thread_client, monkeypatch, n_small, n_calls
):
    original = stored_pairs.start_maps  # type: ignore[attr-defined]
    under_way, most, calls = 0, 0, 0

    def start(client, function, items, *arguments, **options):
        nonlocal under_way, most, calls
        calls += 1
        under_way += len(items)
        most = max(most, under_way)
        return original(client, function, items, *arguments, **options)

    def on_fold(done, n_samples):
        nonlocal under_way
        under_way -= 1

    monkeypatch.setattr(stored_pairs, "start_maps", start)
    monkeypatch.setattr(stored_pairs, "count_small_tables", lambda n_levels: n_small)
    count(tmp_path, blocks, thread_client, on_fold)
    n_filled = N_FOLDS - 1
    assert most == min(n_filled, stored_pairs.FOLDS_AHEAD + n_small)
    assert calls == n_calls
