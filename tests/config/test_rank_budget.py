import pytest

from pmflib_tasks.config import read_budget
from pmflib_tasks.config.model_sections import QUICK, check_budget


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10min", 600), ("2h", 7200), (QUICK, 60)]
)
def test_read_budget__units(text, seconds):
    assert read_budget(text) == seconds
    assert check_budget(text) == text


@pytest.mark.parametrize("text", ["", "0s", "10", "10 min", "1.5h", "-1s", "200h", "ten", "10m"])
def test_read_budget__refuses(text):
    with pytest.raises(ValueError, match=repr(text)):
        read_budget(text)
