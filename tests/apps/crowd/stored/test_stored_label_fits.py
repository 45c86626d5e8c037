"""Passes over a stored label log go on from the checkpoint of that log alone."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd import LabelsInMemory, choose_model, plan_passes
from pmflib.apps.crowd.stored.fitting import fit_stored_labels
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.cluster import ClusterMemory
from pmflib.store import Store, write_dataset
from tests.stored_samples import write_partition

SCHEMA = pmf.Schema.from_cardinalities([3] * 8)


def draw_codes(seed, n_tasks, n_copiers):
    """Labels by task and worker, -1 where there is none; the first workers repeat one."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, (n_tasks, 1))
    said = np.where(rng.random((n_tasks, 8)) < 0.6, truth, rng.integers(0, 3, (n_tasks, 8)))
    said[:, 1:n_copiers] = said[:, :1]
    said[rng.random(said.shape) < 0.4] = -1
    return said


@pytest.fixture
def open_labels(tmp_path):
    store = Store(tmp_path / "store")

    def make(seed, n_tasks=120, n_copiers=0):
        codes = draw_codes(seed, n_tasks, n_copiers)

        def write_samples(folder, _):
            blocks = write_partition(folder, codes.astype(np.int8), SCHEMA, sparse=True)
            (folder / "0123456789abcdef01234567" / "samples").rename(folder / "samples")
            return {"blocks": len(blocks)}

        options: dict[str, Any] = {"inputs": {}, "options": {"seed": seed}, "version": 1}
        part = store.build("samples", **options, write=write_samples).reference
        dataset = store.build(
            "dataset",
            **options,
            write=lambda folder, _: write_dataset(folder, store, [part], {}) or {},
        ).reference
        memory = ClusterMemory.here(1 << 34)
        return StoredLabels(None, store, dataset, SCHEMA, memory=memory)

    return make


def test_choose_model__of_a_stored_log_is_that_in_memory(open_labels):
    sample = 4, 900, 3
    stored, codes = open_labels(*sample), draw_codes(*sample)
    plan = plan_passes("auto", 50, 1e-3)
    found = choose_model(stored, plan.annotator_model, plan.limits).annotator_model
    task, worker = np.nonzero(codes >= 0)
    log = pmf.crowd.read_labels({"task": task, "worker": worker, "label": codes[task, worker]})
    choice = choose_model(LabelsInMemory.from_log(log), plan.annotator_model, plan.limits)
    assert found.copied_groups == choice.annotator_model.copied_groups == ((0, 1, 2),)
    ours, theirs = (each.weigh_workers(8) for each in (found, choice.annotator_model))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert found.n_subclasses == choice.annotator_model.n_subclasses
    assert found.pseudo_count == choice.annotator_model.pseudo_count


def fit(labels, work, *, method="auto", max_passes=4):
    plan = plan_passes(method, max_passes, 0.0)
    passes = []
    found = fit_stored_labels(
        labels,
        plan,
        work=work,
        on_pass=lambda state: passes.append(state.n_passes),
        on_first_pass=lambda _: None,
    )
    return found, passes


def test_fit_stored_labels__refuses_the_checkpoint_of_another_log_or_method(open_labels, tmp_path):
    work = tmp_path / "work"
    labels = open_labels(0)
    assert fit(labels, work)[1] == [1, 2, 3, 4]
    resumed, passes = fit(labels, work, max_passes=6)
    assert passes == [5, 6]
    whole, _ = fit(labels, tmp_path / "other", max_passes=6)
    assert resumed.parameters.mass.tobytes() == whole.parameters.mass.tobytes()
    for samples, method in ((open_labels(1), "auto"), (labels, "dawid_skene")):
        with pytest.raises(pmf.PmfError, match="holds states of another fit"):
            fit(samples, work, method=method)
