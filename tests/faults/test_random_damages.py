"""Damages to every kind of file of a store are named, or have no effect."""

from pathlib import Path

import pytest

from tests.faults.random_damages import damage_stores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_verify__names_every_damage_that_changes_an_answer_or_a_later_run(tmp_path: Path) -> None:
    outcomes = damage_stores(tmp_path, 24, 1)
    # that a whole history was deleted is not seen: nothing else counts its runs
    unseen = [each for each in outcomes if each.verdict == "UNSEEN"]
    assert [each for each in unseen if each.kind != "folders of runs"] == []
    assert sum(each.is_named for each in outcomes) > 10
