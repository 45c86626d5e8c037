"""Columns that are named like the strata and sampling units of surveys."""

import pytest

from pmflib.surveys.drafting.column_meaning import note_design

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
