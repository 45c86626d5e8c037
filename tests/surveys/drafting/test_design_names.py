"""Columns that are named like the strata and sampling units of surveys."""

import numpy as np
import pyarrow as pa
import pytest

from pmflib.schema import ValueCounts
from pmflib.surveys.drafting.column_meaning import note_design
from pmflib.surveys.drafting.inference import propose_variable

STRATA = "SDMVSTRA VSTRAT stratum strata STRATID VARSTR _STSTR pstrat strat_p SEST strata2".split()
UNITS = "SDMVPSU VPSU psu PSU_ID ppsu VARPSU SECU MVPSU psu1".split()


@pytest.mark.parametrize(("option", "names"), [("stratum", STRATA), ("psu", UNITS)])
def test_names_of_surveys_are_noted(option, names):
    for name in names:
        (note,) = note_design(["age", name])
        assert f"--{option} " in note
        assert name in note


def test_other_names_are_not_noted():
    assert (
        note_design("strategy stratus substrate capsule psurvey region rest best v1 id".split())
        == []
    )


def draft(name, numbers):
    counts = ValueCounts()
    counts.add(pa.array([f"{number:.6g}" for number in numbers]))
    return propose_variable(name, counts)


DRAWN = np.random.default_rng(0).uniform(0.3, 3, 400)


@pytest.mark.parametrize(
    "name",
    ["WTSSALL", "WTFINL", "anweight", "sampweight", "pspwght", "ASECWT", "wt_final", "dweight"],
)
def test_names_of_weights_are_left_out(name):
    found = draft(name, 1500 * DRAWN)
    assert found.variable is None
    assert "--weight" in found.note


@pytest.mark.parametrize("name", ["wt", "weight", "weight_2020", "Gewicht"])
@pytest.mark.parametrize("numbers", [3 * DRAWN, 3 * np.repeat(DRAWN[:20], 20)])
def test_numbers_that_may_be_weights_are_asked_about(name, numbers):
    found = draft(name, numbers)
    assert found.variable is not None
    assert found.note.startswith("a weight of samples?")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("wt", np.arange(400) % 90), ("wt", DRAWN - 1), ("height", DRAWN), ("wt", [1.5, 2.5] * 200)],
)
def test_other_numbers_are_not_asked_about(name, numbers):
    assert "a weight of samples" not in draft(name, numbers).note
