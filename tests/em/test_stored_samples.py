import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import pmflib as pmf
from pmflib.base import DenseBlock, MemoryPlanError
from pmflib.cluster import open_client, run_blocks, start_workers
from pmflib.em import BlocksInMemory, evaluate_group, evaluate_models
from pmflib.em.block_source import score_block_group
from pmflib.em.stored_blocks import load_group
from pmflib.model import merge_each
from pmflib.store import BlockReference, Store, iterate_blocks, sample_blocks, write_dataset
from pmflib_tasks.config import ClusterConfig
from tests.reference import e_step, make_codes, make_model, offsets_of, same_bits
from tests.stored_samples import write_partition

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)
MODELS = [make_model(np.random.default_rng(seed), CARDINALITIES, 2) for seed in (1, 2, 3)]


@pytest.fixture(params=["dense", "sparse"])
def blocks(request, tmp_path):
    codes = make_codes(np.random.default_rng(0), 50, CARDINALITIES)
    return write_partition(tmp_path, codes, SCHEMA, sparse=request.param == "sparse")


@pytest.fixture
def codes(blocks):
    return np.concatenate([block.to_codes(OFFSETS) for block in iterate_blocks(blocks)])


@pytest.fixture
def _a_group_per_block(monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)


def test_stored_samples__agree_with_samples_in_memory(blocks, codes):
    stored, loaded = pmf.em.StoredSamples(blocks, SCHEMA), BlocksInMemory.cut(codes, OFFSETS, 2)
    assert (stored.n_rows, stored.n_observed) == (50, loaded.n_observed)
    for found, expected in zip(
        evaluate_models(stored, MODELS), evaluate_models(loaded, MODELS), strict=True
    ):
        np.testing.assert_allclose(found.level_mass, expected.level_mass, rtol=1e-12)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-13)
        assert found.n_rows == expected.n_rows == 50
    assert stored.score(MODELS) == pytest.approx(loaded.score(MODELS), rel=1e-13)
    difference = loaded.compare(MODELS[:1], MODELS[1:2])
    assert stored.compare(MODELS[:1], MODELS[1:2]) == pytest.approx(difference, rel=1e-12)
    aimed = BlocksInMemory.cut(codes, OFFSETS, 2, 1).score(MODELS)
    assert stored.with_target(1).score(MODELS) == pytest.approx(aimed, rel=1e-12)


@pytest.mark.usefixtures("_a_group_per_block")
@pytest.mark.parametrize("spare_bytes", [0, 1 << 30])
def test_stored_samples__same_bits_on_threads_kept_or_read_again(
    thread_client, blocks, spare_bytes
):
    alone = pmf.em.StoredSamples(blocks, SCHEMA)
    mapped = pmf.em.StoredSamples(blocks, SCHEMA, thread_client, spare_bytes)
    for _ in range(2):
        for found, expected in zip(
            evaluate_models(mapped, MODELS), evaluate_models(alone, MODELS), strict=True
        ):
            assert same_bits(found, expected)
    assert mapped.score(MODELS) == alone.score(MODELS)
    assert mapped.compare(MODELS[:1], MODELS[1:2]) == alone.compare(MODELS[:1], MODELS[1:2])
    # what workers hold shows nowhere else: the results are the same
    (kept,) = mapped._kept
    assert len(kept) == len(blocks) > 2
    assert len(kept.runs) == 2
    kinds = {type(block) for run in thread_client.gather(list(kept.runs)) for (block,) in run}
    assert (BlockReference in kinds) == (spare_bytes == 0)
    here = mapped.with_client(None)
    assert same_bits(evaluate_models(here, MODELS)[2], evaluate_models(alone, MODELS)[2])


def test_stored_samples__of_no_blocks_add_nothing(thread_client):
    nothing = pmf.em.StoredSamples([], SCHEMA, thread_client)
    (found,) = evaluate_models(nothing, MODELS[:1])
    assert (found.log_likelihood, found.n_rows, found.level_mass.sum()) == (0, 0, 0)
    assert found.level_mass.shape == (9, 2)
    assert nothing.score(MODELS) == 0
    assert nothing.compare(MODELS[:1], MODELS[1:2]) == (0.0, np.inf)
    assert nothing.count_pairs().tables.sum() == 0


def test_open__finds_the_folds_of_a_dataset(tmp_path, thread_client):
    codes = make_codes(np.random.default_rng(0), 60, CARDINALITIES)
    store = Store(tmp_path / "store")
    partition = store.build(
        "samples",
        inputs={},
        options={},
        version=1,
        write=lambda folder, work: {"blocks": len(write_samples(folder, codes))},
    ).reference
    dataset = store.build(
        "dataset",
        inputs={},
        options={},
        version=1,
        write=lambda folder, work: write_dataset(folder, store, [partition], {}) or {},
    ).reference
    training = pmf.em.StoredSamples.open(store, dataset, SCHEMA, [0, 1], thread_client)
    assert training.n_rows == 40
    assert training.spare_bytes > 0
    (found,) = evaluate_models(training, MODELS[:1])
    mine = codes[np.arange(60) % 3 < 2]
    np.testing.assert_allclose(found.level_mass, e_step(mine, OFFSETS, *MODELS[0])[0], rtol=1e-12)


def write_samples(folder, codes):
    blocks = write_partition(folder, codes, SCHEMA)
    (folder / "0123456789abcdef01234567" / "samples").rename(folder / "samples")
    return blocks


@pytest.mark.parametrize("on_workers", [False, True])
def test_count_pairs__by_fold(blocks, codes, thread_client, on_workers):
    client = thread_client if on_workers else None
    counts = pmf.em.StoredSamples(blocks, SCHEMA, client).count_pairs()
    assert counts.n_rows.tolist() == [17, 17, 16]
    whole = pmf.count_pairs(codes, SCHEMA, n_folds=1)
    np.testing.assert_array_equal(counts.to_dense(), whole.to_dense())


def test_count_pairs__refuses_tables_that_do_not_fit(blocks, monkeypatch):
    monkeypatch.setattr("pmflib.cluster.memory.find_memory_limit", lambda: 1000)
    with pytest.raises(MemoryPlanError):
        pmf.em.StoredSamples(blocks, SCHEMA).count_pairs()


def test_load_group__blocks_in_order(blocks, codes):
    loaded = load_group(blocks)
    assert len(loaded) == len(blocks)
    assert np.array_equal(np.concatenate([block.to_codes(OFFSETS) for block in loaded]), codes)


def test_evaluate_group__references_and_loaded_blocks_to_the_same_bits(blocks, codes):
    read, loaded = (
        evaluate_group(group, OFFSETS, MODELS[:1])[0] for group in (blocks, load_group(blocks))
    )
    assert same_bits(read, loaded)
    np.testing.assert_allclose(read.level_mass, e_step(codes, OFFSETS, *MODELS[0])[0], rtol=1e-12)


def test_evaluate_group__several_models_are_each_on_their_own(blocks):
    together = evaluate_group(blocks, OFFSETS, MODELS)
    for model, found in zip(MODELS, together, strict=True):
        assert same_bits(found, evaluate_group(blocks, OFFSETS, [model])[0])


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(9)
    sizes = rng.integers(1, 40, 19)
    return [[DenseBlock(make_codes(rng, int(n), CARDINALITIES))] for n in sizes]


@pytest.fixture(scope="module")
def alone(groups):
    return run_blocks(None, evaluate_group, groups, merge_each, OFFSETS, MODELS[:1])[0]


@pytest.mark.parametrize(("workers", "processes"), [(1, False), (5, False), (2, True)])
def test_evaluate_group__same_bits_on_any_workers(groups, alone, workers, processes):
    cluster = ClusterConfig(workers=workers, processes=processes)
    with start_workers(cluster) as address, open_client(address) as client:
        found = run_blocks(client, evaluate_group, groups, merge_each, OFFSETS, MODELS[:1])[0]
    assert same_bits(found, alone)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.usefixtures("_a_group_per_block")
def test_fit__each_worker_keeps_a_part_of_the_training_samples(tmp_path, monkeypatch):
    def score_slowly(*given):
        time.sleep(0.3)
        return score_block_group(*given)

    # a worker that scores the start takes longer than one that reads: it would get none of the groups
    monkeypatch.setattr("pmflib.em.block_source.score_block_group", score_slowly)
    monkeypatch.setattr("pmflib.fits.em_fit.LOCAL_WORK", 0)
    codes = make_codes(np.random.default_rng(0), 40, CARDINALITIES)
    parts = [write_partition(tmp_path / name, codes, SCHEMA) for name in ("fit", "held")]
    parts[1] = parts[1][:1]
    # groups must stay where they were assigned: stolen tasks and dropped copies of results would move them
    settings = {
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.active-memory-manager.start": False,
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        training, held_out = (
            pmf.em.StoredSamples(part, SCHEMA, client, spare_bytes=1 << 30) for part in parts
        )
        held_out.score(MODELS[:1])
        pmf.fit_em(
            training, rank=2, validation=held_out, start="random", pseudo_count=1.0, max_passes=3
        )
        holders = client.who_has(training.hold().runs).values()
    assert len(holders) == len({each for part in holders for each in part}) == 2
