"""Damages to every kind of file of a store are named, but for those that no answer and no run depends on."""

from pathlib import Path

import pytest

from tests.clean_process import call_in_clean_process
from tests.faults.random_damages import damage_stores

pytestmark = pytest.mark.slow

WITHOUT_EFFECT = {"exports", "fingerprints", "histories", "lineage", "work"}
"""Folders of which something may be gone without a word: what is remembered of raw files is read again, numbers of
records follow from these, events and lists of files outside are no run's input, and checkpoints that do not read are
begun anew. `python -m tests.faults.random_damages` finds out, in minutes, that the next run comes to the same."""


def test_verify__names_every_damage_that_an_answer_or_a_later_run_depends_on(
    tmp_path: Path,
) -> None:
    outcomes = call_in_clean_process(damage_stores, tmp_path, 84, 1, follows=False)
    unnamed = [each for each in outcomes if not each.is_named]
    assert [each for each in unnamed if each.kind.split()[-1] not in WITHOUT_EFFECT] == []
    assert sum(each.is_named for each in outcomes) > 60
    assert len({each.kind for each in outcomes}) > 40
