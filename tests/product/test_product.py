"""Cells of the product of features are right or refused in words; those known to be wrong are so as is written."""

import pytest

from pmflib.answering import equivalent_samples, posterior
from pmflib.model import row_scores
from tests.product.cells import FAMILIES, IN_MEMORY, WEIGHTS, World, fit_classes, judge
from tests.product.faults import FAULTS, find_fault
from tests.product.requests import REQUESTS, offers


@pytest.fixture(scope="module")
def world(tmp_path_factory, workers):
    return World(tmp_path_factory.mktemp("product"), workers)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Draw fewer numbers for intervals and percentiles, which no cell compares."""
    monkeypatch.setattr(posterior, "N_DRAWS", 20)
    monkeypatch.setattr(posterior, "LEAST_DRAWS", 20)
    monkeypatch.setattr(row_scores, "DRAWN_ROWS", 500)
    monkeypatch.setattr(equivalent_samples, "N_QUESTIONS", 40)


def check(world, family, source, weights, names=tuple(REQUESTS)):
    """Judge requests of a fit."""
    wrong = []
    for name in names:
        request = REQUESTS[name]
        if not offers(family, source, weights, name):
            continue
        verdict = judge(world, family, source, weights, name, request)
        fault = find_fault(family, source, weights, name)
        if fault is None and verdict.word == "wrong":
            wrong.append(f"{name}: {verdict.why}")
        elif fault is not None and not (verdict.word == "wrong" and fault.says in verdict.why):
            wrong.append(f"{name}: no longer wrong as FAULTS says: {verdict}")
    assert not wrong, "\n".join(wrong)


# families meet requests, and inputs and weights do, in latent classes: the rest of the product is slow
QUICK = [
    *((family, "frame", "none") for family in FAMILIES),
    *(("classes", source, "none") for source in ("codes", "stored", "counts")),
    *(("classes", source, "design") for source in ("frame", "stored", "counts")),
]
OF_A_BUCKET = ("fit", "P(v0=1 | v1)", "standard errors", "criteria", "weigh")
"""What is asked of samples in a bucket, at each change."""
OTHERS = [
    (family, source, weights)
    for row, family in enumerate(FAMILIES)
    for column, source in enumerate([*IN_MEMORY, "stored", "counts"])
    for layer, weights in enumerate(WEIGHTS)
    if (row + column + layer) % 2 == 0 and (family, source, weights) not in QUICK
]
"""Half of the other cells, as on the black squares of a board: any two of family, source and weights meet."""


@pytest.mark.parametrize(("family", "source", "weights"), QUICK)
def test_cells_near_latent_classes(world, family, source, weights):
    check(world, family, source, weights)


def test_cells_of_a_bucket(tmp_path, workers, bucket):
    check(World(tmp_path, workers, bucket), "classes", "bucket", "none", OF_A_BUCKET)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "source", "weights"), OTHERS)
def test_cells_of_others(world, family, source, weights):
    check(world, family, source, weights)


@pytest.mark.slow
def test_all_cells_of_a_bucket(tmp_path, workers, bucket):
    in_bucket = World(tmp_path, workers, bucket)
    for family in FAMILIES:
        check(in_bucket, family, "bucket", "design")


def test_an_average_of_one_member_is_the_single_fit(world):
    for source in ("frame", "stored"):
        samples, weight = world.find_samples(source, "design")
        one = fit_classes(samples, weight, members=1).model
        single = world.fit("classes", source, "design").model
        assert (one.factors == single.factors).all(), source
        assert one.origin == single.origin, source


def test_every_fault_has_a_cell():
    for fault in FAULTS:
        assert {*fault.families} <= FAMILIES.keys(), fault
        assert {*fault.requests} <= REQUESTS.keys(), fault
        assert {*fault.weights} <= WEIGHTS.keys(), fault
