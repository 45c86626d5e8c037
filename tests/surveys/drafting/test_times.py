from datetime import date, datetime, timedelta

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


@pytest.mark.parametrize(
    ("form", "offer"),
    [
        ("%m/%d/%y", "2019-01-30"),
        ("%d/%m/%y", "2019-01-30"),
        ("%d.%m.%y", "2019-01-30"),
        ("%m/%d/%y %H:%M", "hour"),
        ("%m/%d/%Y %I:%M:%S %p", "hour"),
        ("%d-%b-%y", "2019-01-30"),
        ("%d %B %Y", "2019-01-30"),
        ("%b %d, %Y", "2019-01-30"),
    ],
)
def test_propose_variable__dates_as_survey_tools_export_them(form, offer):
    moments = [datetime(2019, 1, 30) + timedelta(hours=79 * n) for n in range(200)]
    proposal = propose([moment.strftime(form) for moment in moments])
    assert proposal.variable is None
    assert offer in proposal.note
    texts = [moment.strftime(form) for moment in moments[:60]]
    assert list(find_times("v", dict.fromkeys(texts, 1)).ordered) == texts


def test_find_times__two_digits_of_a_year_and_halves_of_a_day():
    years = find_times("v", dict.fromkeys(["5/16/70", "5/17/68", "5/18/19"], 1))
    assert years.ordered == ("5/16/70", "5/18/19", "5/17/68")
    hours = find_times("v", dict.fromkeys(["12:05 pm", "1:00 PM", "12:30 AM", "11:00 a.m."], 1))
    assert hours.ordered == ("12:30 AM", "11:00 a.m.", "12:05 pm", "1:00 PM")


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
    [
        ["18-24", "25-34"],
        ["1.2.3", "10.0.0.1"],
        ["1.2.19", "3.4.20"],
        ["May", "June"],
        ["20191332", "20190101"],
        ["a"],
        [],
        ["2019", "2020"],
    ],
)
def test_find_times__other_texts(texts):
    assert find_times("date", dict.fromkeys(texts, 1)) is None
