"""Cells of the product of features are right or refused in words; those known to be wrong are so as is written."""

import pytest

from pmflib.answering import posterior
from pmflib.model import row_scores
from tests.product.cells import FAMILIES, WEIGHTS, World, judge
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


def check(world, family, source, weights):
    """Judge all requests of a fit."""
    wrong = []
    for name, request in REQUESTS.items():
        if not offers(family, source, weights, name):
            continue
        verdict = judge(world, family, source, weights, name, request)
        fault = find_fault(family, source, weights, name)
        if fault is None and verdict.word == "wrong":
            wrong.append(f"{name}: {verdict.why}")
        elif fault is not None and not (verdict.word == "wrong" and fault.says in verdict.why):
            wrong.append(f"{name}: no longer wrong as FAULTS says: {verdict}")
    assert not wrong, "\n".join(wrong)


JUDGED = {
    "classes": ("frame", "stored", "counts"),
    "average": ("frame", "stored", "counts"),
    "forests": ("frame", "counts"),
    "traits": ("frame", "counts"),
    "items": ("frame", "counts"),
    "groups": ("frame", "counts"),
}
"""Families and inputs whose cells are judged. `python -m tests.product.table` prints the others as well: fits of stored
samples that end elsewhere than those in memory, and transition models, which lack methods of a joint PMF."""


# families meet requests here, and inputs and weights requests below: the rest of the product is slow
@pytest.mark.parametrize("weights", ["none", "design"])
@pytest.mark.parametrize("family", JUDGED)
def test_cells_of_samples_in_memory(world, family, weights):
    check(world, family, "frame", weights)


@pytest.mark.parametrize("weights", ["none", "design"])
@pytest.mark.parametrize("source", ["stored", "counts"])
def test_cells_of_latent_classes(world, source, weights):
    check(world, "classes", source, weights)


@pytest.mark.slow
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    ("family", "source"), [(family, source) for family in JUDGED for source in JUDGED[family]]
)
def test_cells_of_all_others(world, family, source, weights):
    check(world, family, source, weights)


@pytest.mark.slow
@pytest.mark.parametrize("weights", WEIGHTS)
def test_cells_of_a_bucket(tmp_path, workers, bucket, weights):
    check(World(tmp_path, workers, bucket), "classes", "bucket", weights)


def test_every_fault_has_a_cell():
    for fault in FAULTS:
        assert {*fault.families} <= FAMILIES.keys(), fault
        assert {*fault.requests} <= REQUESTS.keys(), fault
        assert {*fault.weights} <= WEIGHTS.keys(), fault
