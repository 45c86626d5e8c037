import numpy as np
import pytest
from reference import e_step, make_codes, make_model, offsets_of
from stored_samples import write_partition

from pmflib.em.block_groups import load_group, run_e_step
from pmflib.schema import Schema
from pmflib.store.sample_blocks import iterate_blocks

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SCHEMA = Schema.from_cardinalities(CARDINALITIES)


@pytest.fixture(params=["dense", "sparse"])
def references(request, tmp_path):
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    return write_partition(tmp_path, codes, SCHEMA, sparse=request.param == "sparse")


@pytest.fixture
def codes(references):
    return np.concatenate([block.to_codes(OFFSETS) for block in iterate_blocks(references)])


def test_load_group__blocks_in_order(references, codes):
    blocks = load_group(references)
    assert len(blocks) == len(references)
    assert np.array_equal(np.concatenate([block.to_codes(OFFSETS) for block in blocks]), codes)


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
