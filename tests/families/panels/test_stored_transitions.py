"""Latent transition models of stored samples: equal bits on workers, and checkpoints."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.families.panels import fit as transitions
from pmflib.store import sample_blocks
from tests.panels import draw_panel, make_model
from tests.stored_samples import split_folds, write_partition

TRUTH = make_model(n_states=3, n_waves=3, sizes=(3, 3, 2), seed=5)
CODES = draw_panel(TRUTH, 700)
OPTIONS: dict[str, Any] = {"waves": 3, "n_starts": 2, "max_passes": 12}


@pytest.fixture(autouse=True)
def _many_groups(monkeypatch):
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)


@pytest.fixture
def stored(tmp_path):
    return pmf.em.StoredSamples(
        write_partition(tmp_path, CODES, TRUTH.schema, block_rows=60), TRUTH.schema
    )


def are_equal(one, other):
    return one.loss_history == other.loss_history and all(
        getattr(one.model, name).tobytes() == getattr(other.model, name).tobytes()
        for name in ("initial", "transitions", "emissions")
    )


def test_stored_samples__same_bits_on_workers_and_nearly_those_in_memory(stored, thread_client):
    alone = pmf.families.fit_transitions(stored, 3, **OPTIONS)
    for spare_bytes in (0, 1 << 30):
        mapped = stored.with_client(thread_client).with_spare(spare_bytes)
        assert are_equal(pmf.families.fit_transitions(mapped, 3, **OPTIONS), alone)
    loaded = pmf.families.fit_transitions(CODES, 3, schema=TRUTH.schema, **OPTIONS)
    assert alone.training.log_likelihood == pytest.approx(loaded.training.log_likelihood, rel=1e-6)
    assert alone.training.entropy == pytest.approx(loaded.training.entropy, rel=1e-4)


def test_validation__of_another_fold_chooses_the_number_of_states(tmp_path):
    blocks = write_partition(tmp_path, CODES, TRUTH.schema, block_rows=60)
    training, held_out = split_folds(blocks, TRUTH.schema)
    result = pmf.families.fit_transitions(training, "auto", validation=held_out, **OPTIONS)
    assert result.held_out_score.n_rows == held_out.n_rows
    expected = result.model.log_prob(held_out.read_codes()).mean()
    assert result.held_out_score.per_row == pytest.approx(expected, rel=1e-12)
    assert result.comparison.chosen.settings["n_states"] == result.model.n_states
    with pytest.raises(pmf.PmfError, match="pass validation"):
        pmf.families.fit_transitions(training, "auto", **OPTIONS)


def test_checkpoint__resumes_to_the_same_bits_and_refuses_another_fit(
    stored, tmp_path, monkeypatch
):
    class Stop(Exception):
        pass

    passes = []

    def stop(done, total, text):
        passes.append(text)
        if len(passes) == 15:
            raise Stop

    folder = tmp_path / "work"
    whole = pmf.families.fit_transitions(stored, 3, **OPTIONS)
    monkeypatch.setattr(transitions, "report_step", stop)
    with pytest.raises(Stop):
        pmf.families.fit_transitions(stored, 3, checkpoint=folder, **OPTIONS)
    n_before = len(passes)
    resumed = pmf.families.fit_transitions(stored, 3, checkpoint=folder, **OPTIONS)
    assert are_equal(resumed, whole)
    assert resumed.starts == whole.starts
    # the first start is not made again
    assert "start 2" in passes[n_before]
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        pmf.families.fit_transitions(stored, 3, checkpoint=folder, homogeneous=False, **OPTIONS)


def test_validation__of_another_schema_is_refused(stored, tmp_path):
    other = pmf.Schema.from_cardinalities([3, 3, 3] * 3)
    blocks = write_partition(tmp_path / "other", CODES, other, block_rows=60)
    with pytest.raises(SchemaError, match="different schemas"):
        pmf.families.fit_transitions(
            stored, 2, validation=pmf.em.StoredSamples(blocks, other), **OPTIONS
        )


def test_weights_in_memory__are_refused_for_stored_samples(stored):
    with pytest.raises(pmf.PmfError, match="samples are stored"):
        pmf.families.fit_transitions(stored, 2, weight=np.ones(700), **OPTIONS)
