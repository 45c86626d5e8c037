import pytest

from pmflib.base import natural_key
from pmflib.surveys.drafting import find_level_order
from pmflib.surveys.drafting.level_order import suggest_order


@pytest.mark.parametrize(
    "levels",
    [
        ["[0-25)", "[25-50)", "[100-125)", ">=125"],
        ["<5", "5-9", "10+"],
        ["under 18", "18 to 64 years", "65 and over"],
        ["0", "1", "2", "3+"],
        ["2", "4", "more"],
        ["2", "3", "5more"],
        ["$5,000 - $9,999", "$10,000 - $19,999", "$20,000 or more"],
        ["2. maybe", "10. surely"],
        ["Not at all", "Not much", "Some", "A lot"],
        ["XS", "S", "M", "XXL"],
        ["Mar", "Jun", "Sep"],
        ["monday", "Tuesday", "Sunday"],
        ["strongly disagree", "Disagree", "Neither agree nor disagree", "Agree", "Strongly agree"],
        ["trifft gar nicht zu", "trifft eher nicht zu", "trifft eher zu", "trifft voll zu"],
        ["jamais", "parfois", "toujours"],
        ["Muy malo", "Regular", "Bueno"],
        ["per niente d'accordo", "abbastanza d'accordo", "molto d\u2019accordo"],
        ["zeer ontevreden", "neutraal", "tevreden"],
        ["HS-grad", "Some-college", "Bachelors", "Doctorate"],
        ["Never or hardly ever (less than once)", "Sometimes, in a week", "Always, every day"],
        ["Never or hardly ever", "Some lessons", "Most lessons", "All lessons"],
        ["(1) Not useful at all", "(2)", "(3)", "(6) Very useful"],
        ["Strongly disagree", "Disagree", "Agree", "Strong agree"],
        ["Not satisfied", "Satisfied", "Very satisfied"],
        ["low income", "middle income", "high income"],
        ["None of the time", "Some of the time", "All of the time"],
        [
            *("Less than high school degree", "High school degree"),
            *("Some college or Associate degree", "Bachelor degree", "Graduate degree"),
        ],
        [
            *("Did not finish high school", "High school diploma or equivalent (e.g. GED)"),
            *("Some college, but no degree", "Associate degree", "Bachelor's degree (BA)"),
            *("Master's degree", "Doctorate"),
        ],
        ["Not at all", "Only a little", "Some", "A lot"],
        ["None at all", "A little", "A moderate amount", "A lot", "A great deal"],
        ["Never", "Once in a while", "About half the time", "Usually", "Always"],
        ["Never", "A few times a year", "Once a month", "A few times a month", "Once a week"],
        ["Rare", "Medium rare", "Medium", "Medium Well", "Well"],
    ],
)
def test_find_level_order__levels_that_have_an_order(levels):
    for given in (levels[::-1], sorted(levels)):
        found = find_level_order(given)
        assert found.levels == tuple(levels)
        assert list(found.values) == sorted(set(found.values))


@pytest.mark.parametrize(
    "levels",
    [
        ["no", "yes"],
        ["a", "b"],
        ["female", "male"],
        ["none", ">7", ">8"],
        ["No", "Up", "Down"],
        ["not often", "often", "sometimes"],
        ["often sold", "never sold, not in stock"],
        ["Low Countries", "Highlands", "Upper Rhine"],
        ["1.", "2."],
        ["x"],
    ],
)
def test_find_level_order__names_without_one(levels):
    found = find_level_order(levels)
    assert found.levels == tuple(sorted(levels, key=natural_key))
    assert found.values is None


def test_find_level_order__refusals_stand_behind_the_scale():
    found = find_level_order(["don't know", "low", "high"])
    assert found.levels == ("low", "high", "don't know")
    assert found.values is None


@pytest.mark.parametrize(
    "word", ["Prefer not to answer", "I'd rather not say", "Not sure", "DK / Refused"]
)
def test_find_level_order__refusals_hide_no_intervals(word):
    levels = ["$0 to $9,999", "$10,000 to $24,999", "$25,000 and up"]
    found = find_level_order([word, *levels[::-1]])
    assert found.levels == (*levels, word)
    assert found.values is None
    assert found.aside == (word,)


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        (["Under 5 ft.", "5'0\"", "5'11\"", "6'6\" and above"], (59.5, 60, 71, 78.5)),
        (["5 ft", "5 ft. 4 in.", "6 feet"], (60, 64, 72)),
        (["5 kg", "7.5 kg", "12 kg"], (5, 7.5, 12)),
        (["Once", "Twice", "Three times", "More than five times"], (1, 2, 3, 4)),
    ],
)
def test_find_level_order__numbers_with_units_and_times(levels, values):
    found = find_level_order(levels[::-1])
    assert found.levels == tuple(levels)
    assert found.values == values


@pytest.mark.parametrize(
    "levels",
    [
        ["Never, and not open to it", "Never, but open to it", "Rarely", "Sometimes", "Often"],
        ["I would not get up", "Once", "Twice", "Three times", "Four times"],
        ["Very bad", "Bad", "Good", "Very good", "It depends on the day"],
    ],
)
def test_suggest_order__of_levels_that_are_nearly_a_scale(levels):
    assert suggest_order(sorted(levels)).levels == tuple(levels)


@pytest.mark.parametrize(
    "levels",
    [
        ["red", "green", "blue", "yellow"],
        ["Often", "Never"],
        ["Never married", "Married", "Divorced", "Widowed"],
        ["Employed full-time", "Employed part-time", "Not employed", "Retired"],
        [],
    ],
)
def test_suggest_order__of_names(levels):
    assert suggest_order(levels) is None


def test_find_level_order__numbers_inside_names():
    assert find_level_order(["item10", "item2"]).levels == ("item2", "item10")


def test_find_level_order__values_are_the_middles():
    assert find_level_order(["[0.25, 0.5)", "[0, 0.25)", "0.5+"]).values == (0.125, 0.375, 0.625)


@pytest.mark.parametrize("levels", [["<=50K", ">50K"], ["under 18", "18 and over"]])
def test_find_level_order__open_intervals_alone_have_an_order_and_no_values(levels):
    found = find_level_order(levels[::-1])
    assert found.levels == tuple(levels)
    assert found.values is None
