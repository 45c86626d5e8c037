"""Odd inputs that are generated end with a documented exit code and a sentence; many more are tried by the program."""

from pathlib import Path

import pytest

from tests.clean_process import call_in_clean_process
from tests.fuzz.odd_inputs import try_inputs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_odd_inputs__have_a_code_and_a_sentence(tmp_path: Path) -> None:
    kinds = ("schema", "CSV", "Parquet", "lines of JSON", "label log")
    counted, wrong = call_in_clean_process(try_inputs, tmp_path, 15, 3, kinds)
    assert wrong == []
    codes = {code for each in counted.values() for code in each}
    # some are taken, and some are refused
    assert {"0", "3"} <= codes
