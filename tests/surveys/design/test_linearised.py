from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, MemoryPlanError, ReplicateWeights
from pmflib.em import BlocksInMemory
from pmflib.information import ClassInformation
from pmflib.model import ModelOrigin
from pmflib.surveys.design import DrawnRows, linearise
from tests.stored_samples import write_partition

SIZES = [2, 3, 2, 2, 3, 2]


def draw(n_units=60, n_each=30, seed=0, missing=0.05, purity=0.8):
    """Units differ in the share of the first state; weights in what people answer."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(n_units), n_each)
    state = rng.random(unit.size) < rng.uniform(0.2, 0.8, n_units)[unit]
    columns = []
    for size in SIZES:
        answer = np.where(state, 0, size - 1)
        other = rng.integers(size, size=unit.size)
        columns.append(np.where(rng.random(unit.size) < purity, answer, other))
    codes = np.stack(columns, axis=1).astype(np.int8)
    weight = np.round(rng.gamma(4, 0.25, unit.size) + np.where(state, 1.0, 0.2), 3)
    codes[rng.random(codes.shape) < missing] = -1
    return codes, weight, unit // 15, unit


def list_parameters(model):
    return np.concatenate([model.prior, model.factors.ravel()])


@pytest.fixture(scope="module")
def survey():
    codes, weight, stratum, unit = draw()
    schema = pmf.Schema.from_cardinalities(SIZES)
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=unit)
    options: dict[str, Any] = {"pseudo_count": 0.5, "tol": 1e-13, "max_passes": 3000}
    model = pmf.fit_em(codes, plant_start(schema), weight=design, **options).model
    return codes, design, model


def plant_start(schema, rank=2):
    """States that say the first level, the last, and whatever more often than others do."""
    pmfs = []
    for size in SIZES[: schema.n_variables]:
        tables = np.ones((size, rank))
        tables[0, 0] = tables[-1, 1] = 6
        pmfs.append(tables / tables.sum(axis=0))
    return pmf.JointPMF(np.full(rank, 1 / rank), np.concatenate(pmfs), schema)


def test_linearise__moves_the_model_as_a_refit_to_slightly_other_weights_does(survey):
    codes, design, model = survey
    rng = np.random.default_rng(1)
    weights = design.weights.units
    unit = design.units
    factor = 1 + 0.02 * rng.standard_normal((design.n_units, 3))
    replicates = (weights[:, None] * factor[unit]) / 10.0**design.weights.decimals
    near = pmf.surveys.SurveyDesign(
        weights / 10.0**design.weights.decimals, replicates=replicates, method="BRR"
    )
    linear = pmf.surveys.fit_replicates(model, codes, near, method="linear")
    refits = pmf.surveys.fit_replicates(model, codes, near, method="refit")
    for number, (small, whole) in enumerate(zip(linear.models, refits.models, strict=True)):
        share = np.sqrt(refits.factors[number] / linear.factors[number])
        step = (list_parameters(small) - list_parameters(linear.model)) / share
        moved = list_parameters(whole) - list_parameters(refits.model)
        np.testing.assert_allclose(step, moved, atol=0.03 * np.abs(moved).max())


def test_standard_errors__to_first_order_are_those_of_refits(survey):
    codes, design, model = survey
    linear = pmf.inference.standard_errors(model, codes, design)
    refits = pmf.inference.standard_errors(model, codes, design, method="refit")
    for name in ("prior", "factors"):
        np.testing.assert_allclose(linear[name].errors, refits[name].errors, rtol=0.04)
        np.testing.assert_allclose(linear[name].lower, refits[name].lower, atol=0.004)

    def find_gap(model):
        return model.condition({"v1": 0, "v2": 1}).marginal(["v0"]) - model.marginal(["v0"])

    small = pmf.surveys.fit_replicates(model, codes, design, method="linear").find_errors(find_gap)[
        1
    ]
    whole = pmf.surveys.fit_replicates(model, codes, design, method="refit").find_errors(find_gap)[
        1
    ]
    np.testing.assert_allclose(small, whole, rtol=0.04)


def test_linearise__units_give_the_errors_of_their_replicate_weights_written_out(survey):
    codes, design, model = survey
    unit, replicates = 10.0**design.weights.decimals, list(design.iterate_replicates())
    written = pmf.surveys.SurveyDesign(
        design.weights.units / unit,
        replicates=np.stack([each.weights for each in replicates], axis=1) / unit,
        method="JKn",
        factors=[each.factor for each in replicates],
    )
    first, second = (
        pmf.inference.standard_errors(model, codes, each, method="linear")
        for each in (design, written)
    )
    for name in ("prior", "factors"):
        np.testing.assert_allclose(first[name].errors, second[name].errors, rtol=1e-8)


def test_linearise__units_above_the_number_of_parameters_are_combined_without_loss(survey):
    codes, design, model = survey
    codes, weights = codes[:600], design.weights.units[:600] / 10.0**design.weights.decimals
    block = DenseBlock(codes, weights)
    source = BlocksInMemory([block], model.schema.offsets)
    rows = np.arange(600)
    one = ReplicateWeights.of_units(np.zeros(600, np.int64))
    assert one.degrees == 599
    units = linearise(model, source, DrawnRows(rows), one)
    assert len(units.steps) == 1 + 2 * (sum(SIZES) - len(SIZES))
    # as many replicates, each of which has one row more, move by what that row does
    replicates = weights[:, None] * (1 + np.eye(600))
    fifteen = ReplicateWeights(np.ones(15), 15, "BRR")
    parts = (replicates[:, first : first + 15] for first in range(0, 600, 15))
    steps = np.concatenate(
        [linearise(model, source, DrawnRows(part), fifteen).steps for part in parts]
    )
    errors = np.sqrt(600 / 599 * ((steps - steps.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(units.errors, errors, rtol=1e-6)


def test_fit_replicates__more_units_than_fit_are_put_into_groups(survey, monkeypatch):
    codes, design, model = survey
    each = pmf.surveys.SurveyDesign(design.weights.units)
    whole = pmf.inference.standard_errors(model, codes, each)
    n_entries = ClassInformation(model).n_entries
    monkeypatch.setattr("pmflib.surveys.design.replicates.MOST_TOTALS", 300 * n_entries)
    grouped = pmf.inference.standard_errors(model, codes, each)
    assert grouped.method.startswith("300 units")
    ratio = grouped["factors"].errors / whole["factors"].errors
    np.testing.assert_allclose(ratio, 1.0, atol=0.2)
    assert ratio.mean() == pytest.approx(1.0, abs=0.03)


def test_linearise__the_same_in_blocks_of_a_store(survey, tmp_path, thread_client):
    codes, design, model = survey
    blocks = write_partition(tmp_path, codes, model.schema, block_rows=100)
    stored = pmf.em.StoredSamples(blocks, model.schema)
    rows = np.arange(len(codes))
    order = np.concatenate([rows[rows % 3 == fold] for fold in range(3)])
    np.testing.assert_array_equal(stored.read_codes(), codes[order])
    whole = BlocksInMemory([DenseBlock(codes[order])], model.schema.offsets)
    record, units = design.reduce(1000)
    kept = np.random.default_rng(2).random((design.n_units, 20)) < 0.5
    replicates = np.where(kept, 1.5, 0.5)[design.units[order]]
    fay = ReplicateWeights.of_replicates("Fay", 20, 0.5)
    for drawn, how in ((units[order], record), (replicates, fay)):
        first, second = (
            linearise(model, source, DrawnRows(drawn), how) for source in (whole, stored)
        )
        np.testing.assert_allclose(first.errors, second.errors, rtol=1e-5)
        by_workers = stored.with_client(thread_client)
        third = linearise(model, by_workers, DrawnRows(drawn), how)
        np.testing.assert_array_equal(third.steps, second.steps)


def test_fit_replicates__what_is_at_an_edge_stays_and_what_is_open_has_no_error():
    codes, weight, stratum, unit = draw(purity=0.9, missing=0.0)
    codes[:, 0] = np.where(codes[:, 5] == 1, 1, 0)
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=unit)
    schema = pmf.Schema.from_cardinalities(SIZES)
    options: dict[str, Any] = {"pseudo_count": 0.0, "tol": 1e-12, "max_passes": 3000}
    three = pmf.fit_em(codes, plant_start(schema, 3), weight=design, **options).model
    found = pmf.surveys.fit_replicates(three, codes, design)
    edges = np.concatenate([each.ravel() for each in found.is_edge])
    values, errors = found.find_errors(list_parameters)
    assert not errors[edges].any()
    assert (errors[~edges & (values < 1)] > 0).all()
    # of two variables two classes are not determined
    start = pmf.JointPMF(
        np.full(2, 0.5), three.factors[2:7, :2], pmf.Schema.from_cardinalities(SIZES[1:3])
    )
    two = pmf.fit_em(codes[:, 1:3], start, **options).model
    with pytest.warns(pmf.errors.IdentificationWarning):
        open_errors = pmf.inference.standard_errors(two, codes[:, 1:3], design)
    assert np.isnan(open_errors["prior"].errors).all()
    # but the table is
    pairs = pmf.surveys.fit_replicates(two, codes[:, 1:3], design).find_errors(
        lambda model: model.marginal([0, 1])
    )[1]
    assert (pairs > 0.002).all()


def test_standard_errors__of_one_state_are_those_of_weighted_shares(survey):
    codes, design, _ = survey
    codes = np.abs(codes)
    schema = pmf.Schema.from_cardinalities(SIZES)
    model = pmf.fit_em(codes, rank=1, schema=schema, weight=design, pseudo_count=0.0).model
    found = pmf.inference.standard_errors(model, codes, design)
    weights, held = design.weights.units.astype(float), (codes[:, 0] == 1).astype(float)
    share = weights @ held / weights.sum()
    totals = np.bincount(design.units, weights * (held - share)) / weights.sum()
    groups = totals.reshape(4, 15)
    variance = 15 / 14 * ((groups - groups.mean(axis=1, keepdims=True)) ** 2).sum()
    assert found["factors"].errors[1, 0] == pytest.approx(np.sqrt(variance), rel=1e-6)
    assert found["prior"].errors.tolist() == [0.0]


def test_standard_errors__where_all_answer_alike_nothing_moves(survey):
    codes, design, model = survey
    alike = np.zeros_like(codes)
    one = pmf.fit_em(alike, rank=1, schema=model.schema, weight=design, pseudo_count=0.0).model
    found = pmf.inference.standard_errors(one, alike, design)
    assert not found["factors"].errors.any()


def test_fit_replicates__a_model_that_is_not_at_the_maximum_is_taken_there(survey):
    codes, design, model = survey
    start = plant_start(model.schema)
    early = pmf.JointPMF(start.prior, start.factors, model.schema, ModelOrigin(pseudo_count=0.5))
    found = pmf.surveys.fit_replicates(early, codes, design)
    assert found.distance > 0.2
    np.testing.assert_allclose(found.model.factors, model.factors, atol=1e-3)


def test_fit_replicates__refuses_a_method_and_too_many_parameters(survey, monkeypatch):
    codes, design, model = survey
    with pytest.raises(pmf.PmfError, match="method"):
        pmf.surveys.fit_replicates(model, codes, design, method="newton")  # type: ignore[arg-type]
    n_entries = ClassInformation(model).n_entries
    for module in ("linearised", "replicates"):
        monkeypatch.setattr(f"pmflib.surveys.design.{module}.MAX_ENTRIES", n_entries - 1)
    with pytest.raises(MemoryPlanError, match="method='refit'"):
        pmf.surveys.fit_replicates(model, codes, design, method="linear")
    found = pmf.surveys.fit_replicates(model, codes, design)
    assert found.method.startswith("60 replicates")
