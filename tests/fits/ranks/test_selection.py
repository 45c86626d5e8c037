import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.fits import EMFit, Options, Passes, select, split_for_choice
from tests.reference import make_model
from tests.stored_samples import split_folds, write_partition

SIZES = [3, 2, 4, 3]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


@pytest.fixture(scope="module")
def codes():
    truth = pmf.JointPMF(*make_model(np.random.default_rng(0), SIZES, 2), SCHEMA)
    return truth.sample(2000, rng=1).astype(np.int8)


def make_fit(members=1, pseudo_count="auto"):
    options = Options.make("auto", pseudo_count, members, 2)
    return EMFit(SCHEMA, 2, options, 3, Passes())


def test_select__without_held_out_samples_it_is_select_rank(codes):
    counts = pmf.count_pairs(codes, SCHEMA, n_folds=6)
    heard = []
    found = select(make_fit(), [], lambda: counts, on_progress=heard.append)
    alone = pmf.fits.select_rank(counts, rng=3)
    assert (found.rank, found.choice) == (alone.rank, alone)
    assert not found.by_samples
    assert {each.criterion for each in heard} == {"pairs"}
    assert found.reasons == (alone.reason,)
    assert select(make_fit(), []).rank == 1


def test_select__stored_samples_as_those_in_memory(codes, tmp_path):
    blocks = write_partition(tmp_path, codes, SCHEMA, block_rows=300, n_folds=5)
    training, held_out = split_folds(blocks, SCHEMA)
    stored = split_for_choice(make_fit(), training, held_out)
    read = [DenseBlock(each.read_codes()) for each in (training, held_out)]
    loaded = split_for_choice(make_fit(), read[0], read[1].codes)
    # few rows are split in turns where they are read from a store, for all of them may be fitted there
    assert (len(stored), len(loaded)) == (5, 1)
    chosen = select(make_fit(), stored)
    assert chosen.rank == select(make_fit(), loaded).rank == 2
    assert chosen.by_samples
    assert split_for_choice(make_fit(), training, None) == []
