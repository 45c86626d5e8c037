import numpy as np
import pytest

import pmflib as pmf
from pmflib.fitting.ranks import by_pairs, stored_selection
from pmflib.fitting.ranks.stored_selection import select_stored_rank
from tests.reference import make_model


@pytest.fixture
def counts():
    sizes = [3, 2, 4, 3]
    schema = pmf.Schema.from_cardinalities(sizes)
    truth = pmf.JointPMF(*make_model(np.random.default_rng(0), sizes, 2), schema)
    return pmf.count_pairs(truth.sample(2000, rng=1), schema, n_folds=6)


def test_select_stored_rank__without_samples_it_is_select_rank_on_the_training_folds(
    counts, tmp_path
):
    counts.save(tmp_path / "pairs")
    heard = []
    found = select_stored_rank(
        tmp_path / "pairs", (0, 1, 2, 4), [], [], seed=3, on_progress=heard.append
    )
    assert found.by_samples is None
    assert found.by_pairs == pmf.select_rank(counts.select_folds([0, 1, 2, 4]), rng=3)
    assert heard[-1].done == heard[-1].total > 8
    assert {each.criterion for each in heard} == {"pairs"}
    assert found.rank == found.by_pairs.rank
    assert found.comparisons == found.by_pairs.comparisons
    assert found.reasons == (f"by pairs: {found.by_pairs.reason}",)


def test_select_stored_rank__wide_counts_are_narrowed_as_in_memory(counts, tmp_path, monkeypatch):
    for module in (stored_selection, by_pairs):
        monkeypatch.setattr(module, "MAX_LEVELS", 9)
    counts.save(tmp_path / "pairs")
    found = select_stored_rank(tmp_path / "pairs", range(6), [], [], seed=3).by_pairs
    alone = pmf.select_rank(counts, rng=3)
    assert found.ranks == alone.ranks
    assert found.notes[0].startswith("pairs of the ")
    assert alone.notes[0].startswith("judged on the ")


def test_select_stored_rank__refuses_a_single_fold(counts, tmp_path):
    counts.save(tmp_path / "pairs")
    with pytest.raises(
        pmf.PmfError, match="a choice takes 2: count with n_folds=16, or give a rank"
    ):
        select_stored_rank(tmp_path / "pairs", (0,), [], [])
