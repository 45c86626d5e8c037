from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import weigh_model
from pmflib.base import FLOOR, MemoryPlanError, Progress, RankError, SchemaError, listen
from pmflib.cluster import ClusterMemory
from pmflib.em import Checkpoint, StoredSamples
from pmflib.fits import WARM_PATIENCE
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.refine import refine
from tests.pipelines import (
    as_wide,
    change,
    draw_codes,
    load_model,
    make_schema,
    run_to_model,
    store_of,
    summary_of,
)


def run(pipeline, tmp_path, workers, schema, codes, **sections):
    config = pipeline(schema, {}, **sections)
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes))
    stages = run_to_model(config, workers)
    return config, stages, load_model(config, stages["model"])


def check_model(model, schema, rank):
    assert model.factors.shape == (schema.n_levels, rank)
    assert model.prior.sum() == pytest.approx(1)
    sums = np.add.reduceat(model.factors, schema.offsets[:-1], axis=0)
    np.testing.assert_allclose(sums, 1)


def test_refine__two_variables_and_one_state(pipeline, tmp_path, workers):
    """A model of rank 1 is the product of the marginals."""
    schema = make_schema(3, 2)
    codes = draw_codes(200, (3, 2), missing=0)
    no_folds = {"validation_folds": 0, "test_folds": 0}
    config, stages, model = run(
        pipeline, tmp_path, workers, schema, codes,
        model={"rank": 1}, em={"pseudo_count": 0.0}, evaluate=no_folds,
    )  # fmt: skip
    check_model(model, schema, 1)
    for j, size in enumerate((3, 2)):
        expected = np.bincount(codes[:, j], minlength=size) / 200
        np.testing.assert_allclose(model.factor(j)[:, 0], expected)
    assert summary_of(config, stages["model"])["held_out_per_row"] == []
    # nothing is held out that could say what the model is worth
    assert "equivalent_samples" not in model.origin


def test_refine__folds_that_are_held_out_say_what_the_model_is_worth(fitted):
    config, stages = fitted
    store, split = store_of(config), config.fold_split
    model = load_model(config, stages["model"])
    seen, unseen = (
        StoredSamples.open(store, stages["dataset"], model.schema, folds)
        for folds in (split.train, [*split.validation, *split.test])
    )
    learnt = model.origin["equivalent_samples"]
    assert learnt["n_unseen"] == unseen.n_rows > 0
    assert learnt["n_fitted"] == seen.n_rows
    assert weigh_model(model, seen.read_codes(), unseen.read_codes()).origin == model.origin


def test_refine__variable_never_observed_and_variable_of_one_level(pipeline, tmp_path, workers):
    schema = make_schema(3, 2, 1, 2)
    codes = draw_codes(120, (3, 2, 1, 2))
    codes[:, 1] = -1
    _, _, model = run(pipeline, tmp_path, workers, schema, codes)
    check_model(model, schema, 2)
    np.testing.assert_allclose(model.factor(1), 0.5)
    np.testing.assert_allclose(model.factor(2), 1)


def test_refine__level_that_nobody_gave_keeps_a_chance(pipeline, tmp_path, workers):
    codes = draw_codes(200, (3, 3), missing=0)
    codes[:, 0] = np.minimum(codes[:, 0], 1)
    _, _, model = run(pipeline, tmp_path, workers, make_schema(3, 3), codes)
    assert model.factor(0)[2].min() > 1e-6 > FLOOR


def test_refine__objective_rises_and_is_reported(fitted, workers):
    config, stages = fitted
    received = []
    other = change(config, model={"method": "random"}, em={"max_passes": 7, "pseudo_count": 1.0})
    with listen(received.append, Progress):
        model = refine.fn(other, stages["dataset"], stages["counts"], stages["start"], workers)
    summary = summary_of(config, model)
    # up to the model that held-out samples have chosen
    likelihoods = summary["log_likelihood_per_row"]
    assert (summary["passes"], len(likelihoods)) == (7, summary["best_pass"] + 1)
    assert summary["fit"]["per_row"] == likelihoods[-1]
    assert [(p.done, p.total) for p in received] == [(done, 7) for done in range(8)]
    assert max(likelihoods) > likelihoods[0]


def test_refine__continues_from_the_last_pass(fitted, workers, monkeypatch):
    config, stages = fitted
    arguments = (stages["dataset"], stages["counts"], stages["start"], workers)
    longer = config.model_copy(
        update={"em": config.em.model_copy(update={"max_passes": 9, "tol": 0})}
    )

    save = Checkpoint.save

    def save_four(self, state):
        save(self, state)
        if state.n_passes == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", save_four)
    with pytest.raises(KeyboardInterrupt):
        refine.fn(longer, *arguments)
    passes = []
    monkeypatch.setattr(Checkpoint, "save", lambda self, state: passes.append(state.n_passes))
    resumed = refine.fn(longer, *arguments)
    assert passes[0] == 5
    store = store_of(config)
    (store.root / "manifest" / f"{resumed.identity}.json").unlink()
    assert refine.fn(longer, *arguments).digest == resumed.digest


def test_refine__warm_ends_soon_and_inherits_the_weight_of_its_start(fitted, workers, monkeypatch):
    config, stages = fitted
    inputs = stages["dataset"], stages["counts"], stages["model"]
    monkeypatch.setattr("pmflib.answering.weighing.weigh_model", None)
    # few samples are refitted as patiently as they are fitted
    monkeypatch.setattr("pmflib.fits.fit_specifications.is_plenty", lambda *sizes: True)
    saved, save = [], Checkpoint.save
    monkeypatch.setattr(
        Checkpoint, "save", lambda self, state: (saved.append(state), save(self, state))
    )
    warm = refine.fn(config, *inputs, workers)
    before, after = (load_model(config, each) for each in (stages["model"], warm))
    assert after.origin["equivalent_samples"] == before.origin["equivalent_samples"]
    # as many passes as do not raise the score, and those before
    assert len(saved) <= saved[-1].best_pass + WARM_PATIENCE
    assert max(saved[-1].held_out) >= saved[-1].held_out[0]
    # without workers it is the same to the bit
    monkeypatch.setattr("pmflib_tasks.stages.refine.VERSION", 0)
    monkeypatch.setattr("pmflib_tasks.stages.refine.open_workers", open_nothing)
    assert refine.fn(config, *inputs, workers).digest == warm.digest


def test_stages__a_changed_option_redoes_what_depends_on_it(fitted, workers):
    config, before = fitted
    slower = config.model_copy(update={"em": config.em.model_copy(update={"max_passes": 3})})
    after = run_to_model(slower, workers)
    assert [stage for stage in before if before[stage] != after[stage]] == ["model"]
    higher = config.model_copy(update={"model": config.model.model_copy(update={"rank": 3})})
    after = run_to_model(higher, workers)
    assert [stage for stage in before if before[stage] != after[stage]] == ["start", "model"]
    assert run_to_model(config, workers) == before


def test_fit__rank_that_counts_cannot_carry(fitted):
    config, stages = fitted
    high = config.model_copy(
        update={"model": config.model.model_copy(update={"rank": 50, "method": "spa"})}
    )
    with pytest.raises(RankError, match="rank is 50"):
        fit.fn(high, stages["counts"])


def refine_again(config, stages, workers):
    """Refine the same start under other options."""
    return refine.fn(config, stages["dataset"], stages["counts"], stages["start"], workers)


def test_refine__start_and_pseudo_count_are_chosen(fitted, workers, monkeypatch):
    config, stages = fitted
    monkeypatch.setattr("pmflib.fits.em_fit.LOCAL_WORK", 0)
    long = change(config, em={"max_passes": 30})
    summary = summary_of(config, refine_again(long, stages, workers))
    notes = summary["notes"]
    names = [each["points"][0]["settings"].keys() for each in summary["comparisons"]]
    assert [*names[0], *names[1]] == ["start", "pseudo_count"]
    reasons = [each["reason"] for each in summary["comparisons"]]
    assert reasons == notes[: len(reasons)]
    # on workers and in this process alike
    monkeypatch.setattr("pmflib_tasks.stages.refine.VERSION", 0)
    monkeypatch.setattr("pmflib_tasks.stages.refine.open_workers", open_nothing)
    alone = refine_again(long, stages, workers)
    assert summary_of(config, alone)["notes"] == notes


def test_refine__target_is_what_passes_are_chosen_by(fitted, workers):
    config, stages = fitted
    name = load_model(config, stages["model"]).schema.names[0]
    fixed = {"pseudo_count": 1.0, "max_passes": 5, "members": 2}
    joint = summary_of(config, refine_again(change(config, em=fixed), stages, workers))
    aimed = summary_of(
        config, refine_again(change(config, em=fixed | {"target": name}), stages, workers)
    )
    assert repr(name) in aimed["notes"][0]
    # one variable is easier to predict than all
    assert min(aimed["held_out_per_row"]) > max(joint["held_out_per_row"])
    assert aimed["log_likelihood_per_row"] == joint["log_likelihood_per_row"]
    unknown = change(config, em=fixed | {"target": "nobody"})
    with pytest.raises(SchemaError, match="nobody"):
        refine_again(unknown, stages, workers)


def open_nothing(config, address):
    """No workers, and room for everything."""
    return nullcontext((None, ClusterMemory.here(1 << 40)))


def test_refine__average_of_members(fitted, workers, monkeypatch):
    config, stages = fitted
    several = change(config, em={"members": 3, "max_passes": 20})
    reference = refine_again(several, stages, workers)
    model = load_model(config, reference)
    check_model(model, model.schema, 3 * config.model.rank)
    assert (model.origin["average"], model.origin["final"]) == (3, True)
    monkeypatch.setattr("pmflib_tasks.stages.refine.VERSION", 0)
    monkeypatch.setattr("pmflib_tasks.stages.refine.open_workers", open_nothing)
    assert refine_again(several, stages, workers).digest == reference.digest


def test_refine__average_is_distilled(fitted, workers, monkeypatch):
    config, stages = fitted
    monkeypatch.setattr("pmflib.fits.from_samples.distil", partial(pmf.fits.distil, n_samples=500))
    small = change(config, em={"members": 2, "distil": 3, "max_passes": 15})
    reference = refine_again(small, stages, workers)
    model = load_model(config, reference)
    check_model(model, model.schema, 3)
    assert "final" not in model.origin
    assert "500 samples" in summary_of(config, reference)["notes"][0]


def test_refine__refuses_what_does_not_fit_in_memory(fitted, workers):
    config, stages = fitted
    small = config.model_copy(
        update={
            "em": config.em.model_copy(update={"max_passes": 4}),
            "cluster": config.cluster.model_copy(update={"memory_limit": 1000}),
        }
    )
    with pytest.raises(MemoryPlanError, match="1000 B"):
        refine.fn(small, stages["dataset"], stages["counts"], stages["start"], workers)


@pytest.mark.needs("inference.checks")
def test_fit__warns_of_states_that_pairs_cannot_tell_apart(fitted):
    config, stages = fitted
    diagnosis = summary_of(config, stages["start"])["diagnosis"]
    assert diagnosis["coverage"] == 1
    assert diagnosis["warnings"] == []
    many = summary_of(config, fit.fn(change(config, model={"rank": 5}), stages["counts"]))
    assert many["diagnosis"]["warnings"]
