import math

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PairedGain, estimate_gain_per_cell
from pmflib.store import read_block
from pmflib_tasks.gate import compare_hidden, compare_stored
from pmflib_tasks.gate.comparison import assign_rounds, compare_group, count_rounds
from tests.reference import conditional_pmf, joint_tensor, make_codes, make_model
from tests.stored_samples import write_partition

CARDINALITIES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
NEW, LIVE = (
    pmf.JointPMF(*make_model(np.random.default_rng(seed), CARDINALITIES, 2), SCHEMA)
    for seed in (1, 2)
)


@pytest.fixture
def blocks(tmp_path):
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    return write_partition(tmp_path, codes, SCHEMA)


def gain_by_loops(codes, rounds, n_rounds):
    """Gain and cells of each sample."""
    gains, cells = np.zeros(len(codes)), np.zeros(len(codes))
    tensors = [joint_tensor(m.prior, m.factors, CARDINALITIES) for m in (NEW, LIVE)]
    for sample, row in enumerate(codes):
        for index in range(n_rounds):
            hidden = rounds[sample] == index
            shown = np.where(hidden, -1, row)
            for j in np.flatnonzero(hidden):
                new, live = (conditional_pmf(tensor, shown, j)[row[j]] for tensor in tensors)
                gains[sample] += math.log(new) - math.log(live)
                cells[sample] += 1
    return gains, cells


def test_compare_hidden__equals_the_loop():
    codes = make_codes(np.random.default_rng(3), 40, CARDINALITIES)
    rounds = assign_rounds(codes, np.arange(40), 3, 7)
    sums = compare_hidden(codes, rounds, 3, NEW, LIVE)
    gains, cells = gain_by_loops(codes, rounds, 3)
    expected = [np.count_nonzero(cells), cells.sum(), gains.sum(), cells @ cells]
    expected += [gains @ cells, gains @ gains]
    np.testing.assert_allclose(sums, expected, rtol=1e-11)
    assert cells.sum() == np.count_nonzero(codes >= 0)
    other = compare_hidden(codes, rounds, 3, LIVE, NEW)
    np.testing.assert_allclose(other, sums * [1, 1, -1, 1, -1, 1], rtol=1e-13)
    assert not compare_hidden(codes, rounds, 3, NEW, NEW)[[2, 4, 5]].any()


def test_assign_rounds__every_observed_cell_once_and_however_rows_are_cut():
    codes = make_codes(np.random.default_rng(3), 4000, CARDINALITIES)
    rows = np.arange(100, 4100)
    rounds = assign_rounds(codes, rows, 5, 3)
    assert np.array_equal(rounds >= 0, codes >= 0)
    sizes = np.bincount(rounds[rounds >= 0], minlength=5)
    assert sizes.size == 5
    assert abs(sizes - sizes.mean()).max() < 6 * math.sqrt(sizes.mean())
    parts = [assign_rounds(codes[s], rows[s], 5, 3) for s in (slice(0, 7), slice(7, 4000))]
    assert np.array_equal(rounds, np.concatenate(parts))


def test_count_rounds__about_the_share_at_a_time():
    assert [count_rounds(share) for share in (0.2, 0.3, 0.5, 0.9, 0.001)] == [5, 3, 2, 2, 20]


def test_estimate_gain_per_cell__is_a_ratio_clustered_by_sample():
    """Of samples of one size it is the textbook error of a mean; cells that repeat add nothing to what is known."""
    rng = np.random.default_rng(0)
    gains, cells = rng.normal(0.1, 1, 50), np.full(50, 4.0)
    sums = np.array([50, 200, gains.sum(), (cells**2).sum(), gains @ cells, gains @ gains])
    found = estimate_gain_per_cell(sums)
    assert found.mean == pytest.approx(gains.sum() / 200)
    assert found.error == pytest.approx(gains.std(ddof=1) / math.sqrt(50) / 4)
    one = estimate_gain_per_cell(np.array([1.0, 4.0, 2.0, 16.0, 8.0, 4.0]))
    assert (one.mean, one.error) == (0.5, math.inf)
    assert estimate_gain_per_cell(np.zeros(6)).mean == 0.0


def test_estimate_gain_per_cell__covers_the_truth():
    """Samples of unequal size whose gain grows with it: two standard errors hold the ratio in 95 % of draws."""
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(2000):
        cells = rng.integers(1, 30, 80).astype(float)
        gains = 0.05 * cells + rng.normal(0, 1, 80) * cells
        sums = [80, cells.sum(), gains.sum(), cells @ cells, gains @ cells, gains @ gains]
        found = estimate_gain_per_cell(np.array(sums))
        covered.append(abs(found.mean - 0.05) < 2 * found.error)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_compare_stored__on_workers_or_alone_to_the_same_bits(blocks, thread_client):
    alone, together = (
        compare_stored(client, blocks, NEW, LIVE, 0.2, 3) for client in (None, thread_client)
    )
    assert alone == together
    sums = compare_group(blocks, NEW, LIVE, 5, 5, 3)
    assert alone.cells == sums[1] == sum(block.n_observed for block in blocks)
    assert alone.gain == sums[2] / sums[1]
    assert PairedGain.from_json(alone.to_json()) == alone


def test_compare_stored__of_very_many_cells_the_first_rounds_are_enough(blocks, monkeypatch):
    monkeypatch.setattr("pmflib_tasks.gate.comparison.ENOUGH_CELLS", 30)
    some = compare_stored(None, blocks, NEW, LIVE, 0.2, 3)
    sums = compare_group(blocks, NEW, LIVE, 5, 2, 3)
    assert (some.cells, some.gain) == (sums[1], sums[2] / sums[1])


def test_compare_stored__a_target_alone_is_hidden_and_predicted_from_all_others(blocks):
    found = compare_stored(None, blocks, NEW, LIVE, 0.2, 3, 1)
    offsets = NEW.schema.offsets
    codes = np.concatenate([read_block(block).to_codes(offsets) for block in blocks])
    codes = codes[codes[:, 1] >= 0]
    rows, truth = np.arange(len(codes)), codes[:, 1]
    gains = np.log(NEW.predict_proba(codes, 1)[rows, truth])
    gains -= np.log(LIVE.predict_proba(codes, 1)[rows, truth])
    assert found.cells == found.samples == len(codes)
    assert found.gain == pytest.approx(gains.mean())


def test_compare_stored__no_samples(blocks):
    found = compare_stored(None, [], NEW, LIVE, 0.2, 3)
    assert found == PairedGain(0.0, math.inf, 0, 0)
    assert PairedGain.from_json(found.to_json()) == found
