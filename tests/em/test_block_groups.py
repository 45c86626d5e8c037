import numpy as np
import pytest

from pmflib.blocks import DenseBlock
from pmflib.em.block_groups import (
    count_group,
    iterate_blocks,
    load_group,
    merge_tables,
    run_e_step,
    score_group,
)
from pmflib.model import JointPMF
from pmflib.model.evaluation import HeldOutScores
from pmflib.schema import Schema
from pmflib.store.sample_blocks import SampleWriter, list_blocks
from tests.reference import e_step, make_codes, make_model, offsets_of, pair_table

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SCHEMA = Schema.from_cardinalities(CARDINALITIES)


@pytest.fixture(params=["dense", "sparse"])
def references(request, tmp_path):
    """Blocks of a partition in a folder that is named as published ones are."""
    path = tmp_path / "0123456789abcdef01234567" / "samples"
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    writer = SampleWriter(path, SCHEMA, sparse=request.param == "sparse", block_rows=7)
    writer.append(DenseBlock(codes), np.arange(50) % 3, np.arange(50))
    writer.close()
    return list_blocks(path)


@pytest.fixture
def codes(references):
    return np.concatenate([block.to_codes(OFFSETS) for block in iterate_blocks(references)])


def test_load_group__blocks_in_order(references, codes):
    blocks = load_group(references)
    assert len(blocks) == len(references)
    assert np.array_equal(np.concatenate([block.to_codes(OFFSETS) for block in blocks]), codes)


def test_count_group__references_and_loaded_blocks_alike(references, codes):
    expected = pair_table(codes, CARDINALITIES)
    assert np.array_equal(count_group(references, OFFSETS), expected)
    assert np.array_equal(count_group(load_group(references), OFFSETS), expected)


def test_merge_tables__parts_stay_as_they_are():
    parts = [np.ones((2, 2), np.int64), np.full((2, 2), 3)]
    assert merge_tables(parts).tolist() == [[4, 4], [4, 4]]
    assert parts[0].tolist() == [[1, 1], [1, 1]]


def test_run_e_step__references_and_loaded_blocks_to_the_same_bits(references, codes):
    model = make_model(np.random.default_rng(1), CARDINALITIES, 2)
    read, loaded = (
        run_e_step(group, OFFSETS, [model])[0] for group in (references, load_group(references))
    )
    assert read.level_mass.tobytes() == loaded.level_mass.tobytes()
    np.testing.assert_allclose(read.level_mass, e_step(codes, OFFSETS, *model)[0], rtol=1e-12)
    assert read.n_rows == 50


def test_run_e_step__several_models_are_each_on_their_own(references):
    models = [make_model(np.random.default_rng(seed), CARDINALITIES, 2) for seed in (1, 2)]
    together = run_e_step(references, OFFSETS, models)
    for model, found in zip(models, together, strict=True):
        (alone,) = run_e_step(references, OFFSETS, [model])
        assert found.level_mass.tobytes() == alone.level_mass.tobytes()
        assert found.log_likelihood == alone.log_likelihood


def test_score_group__hides_the_same_cells_however_blocks_are_grouped(references):
    model = JointPMF(*make_model(np.random.default_rng(1), CARDINALITIES, 2), SCHEMA)
    arguments = (model, np.full(9, 0.25), 0.5, 3)
    whole = score_group(references, *arguments)
    parts = [score_group([reference], *arguments) for reference in references]
    np.testing.assert_allclose(HeldOutScores.merge(parts).sums, whole.sums, rtol=1e-13)
    assert whole.n_rows == 50
    assert 0 < whole.sums[:, 0].sum() < 150
    other = score_group(references, *arguments[:3], 4)
    assert not np.array_equal(other.sums, whole.sums)
