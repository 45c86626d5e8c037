from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib_tasks.stages import HeldOutScores, evaluate_stored, score_group
from tests.reference import make_codes, make_model
from tests.stored_samples import write_partition

CARDINALITIES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
MODEL = pmf.JointPMF(*make_model(np.random.default_rng(1), CARDINALITIES, 2), SCHEMA)
BASELINE = np.full(9, 0.25)


@pytest.fixture(params=["dense", "sparse"])
def blocks(request, tmp_path):
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    return write_partition(tmp_path, codes, SCHEMA, sparse=request.param == "sparse")


def test_score_group__hides_the_same_cells_however_blocks_are_grouped(blocks):
    arguments = (MODEL, BASELINE, 0.5, 3)
    whole = score_group(blocks, *arguments)
    parts = [score_group([block], *arguments) for block in blocks]
    np.testing.assert_allclose(HeldOutScores.merge(parts).sums, whole.sums, rtol=1e-13)
    assert whole.n_rows == 50
    assert 0 < whole.sums[:, 0].sum() < 150
    other = score_group(blocks, *arguments[:3], 4)
    assert not np.array_equal(other.sums, whole.sums)


def test_evaluate_stored__on_workers_or_alone_to_the_same_bits(blocks, thread_client):
    alone, together = (
        evaluate_stored(client, blocks, MODEL, BASELINE, 0.5, 3) for client in (None, thread_client)
    )
    assert alone.sums.tobytes() == together.sums.tobytes()
    assert alone.sums.tobytes() == score_group(blocks, MODEL, BASELINE, 0.5, 3).sums.tobytes()


def test_evaluate_stored__no_samples_are_no_scores():
    scores = evaluate_stored(None, [], MODEL, BASELINE, 0.5, 3)
    assert scores.n_rows == 0
    content: Any = scores.to_json(SCHEMA)
    assert set(content["variables"]) == {"v0", "v1", "v2"}
