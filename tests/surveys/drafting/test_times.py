from datetime import date, timedelta

import pyarrow as pa
import pytest

from pmflib.schema import ValueCounts
from pmflib.surveys.drafting import Wishes, find_times, propose_variable

DAYS = [date(2019, 1, 30) + timedelta(days=3 * n) for n in range(300)]


def propose(values, name="v", **options):
    counted = ValueCounts()
    counted.add(pa.array(values))
    return propose_variable(name, counted, **options)


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%dT%H:%M:%SZ", "%Y%m%d", "%Y-%m-%d 14:%M"],
)  # fmt: skip
def test_propose_variable__many_dates_are_left_out_with_what_may_be_made_of_them(form):
    proposal = propose([day.strftime(form) for day in DAYS])
    assert proposal.variable is None
    for shown in ("2019-01-30", "2021-07-15", "300"):
        assert shown in proposal.note


def test_propose_variable__dates_of_arrow_and_seconds_since_1970():
    assert "2019-01-30" in propose(DAYS).note
    seconds = [881_250_949 + 86_400 * n for n in range(100)]
    assert "1997-12-04" in propose(seconds, name="timestamp").note
    assert "1997" not in propose(seconds, name="income").note


def test_propose_variable__few_dates_are_levels_in_order():
    waves = ["01.10.2019", "15.02.2020", "02.06.2019"] * 20
    variable = propose(waves).variable
    assert variable.levels == ("02.06.2019", "01.10.2019", "15.02.2020")
    assert variable.values == (1.0, 2.0, 3.0)
    clock = propose(["8:30", "17:00", "12:15"] * 9)
    assert clock.variable.levels == ("8:30", "12:15", "17:00")


def test_propose_variable__a_wish_goes_before_dates():
    proposal = propose([str(day) for day in DAYS], wishes=Wishes(role="nominal", other=2))
    assert proposal.variable.cardinality == 3


@pytest.mark.parametrize(
    "texts",
    [["18-24", "25-34"], ["1.2.3", "10.0.0.1"], ["20191332", "20190101"], ["a"], [], ["2019", "2020"]],
)  # fmt: skip
def test_find_times__other_texts(texts):
    assert find_times("date", dict.fromkeys(texts, 1)) is None
