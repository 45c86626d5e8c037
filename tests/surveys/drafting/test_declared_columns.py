"""Labels and missing codes that files of SPSS and Stata declare."""

import pytest

from pmflib.schema import FileColumn, ValueCounts
from pmflib.surveys.drafting import propose_variable
from pmflib.surveys.drafting.declared_columns import follow_file, label_counts, list_declared


def draft(texts, counts, **options):
    column = FileColumn(texts=texts, **options)
    counted = ValueCounts()
    counted.counts.update(counts)
    named = label_counts(counted, column, 32)
    codes = list_declared(named, column)
    proposal = propose_variable("v", named, codes=codes)
    variable = follow_file(proposal.variable, column, by_label=bool(named.categories))
    return variable, {each.text for each in codes}


@pytest.mark.parametrize("refusals", [{}, {99: "Don't know"}, {-1: "Refused", 88: "No answer"}])
def test_label_counts__a_scale_of_which_the_ends_are_labelled(refusals):
    counts = {str(code): 10 + code for code in range(11)}
    counts |= dict.fromkeys(map(str, refusals), 7)
    variable, codes = draft({0: "not at all", 10: "completely"} | refusals, counts)
    assert variable.levels == ("not at all", *map(str, range(1, 10)), "completely")
    assert variable.values == tuple(range(11))
    assert codes == {*refusals.values()}


def test_label_counts__the_middle_has_a_label_and_one_end_is_nobodys():
    counts = {"1": 20, "2": 20, "3": 20, "4": 9, "5": 20, "6": 30}
    variable, _ = draft({1: "bad", 4: "neither", 7: "good"}, counts)
    assert variable.levels == ("bad", "2", "3", "neither", "5", "6", "good")
    assert variable.values == (1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("texts", "counts"),
    [
        # all have labels, or one has none, or codes are outside the labelled ones
        ({1: "red", 2: "blue", 3: "green"}, {"1": 9, "2": 9, "3": 9}),
        ({1: "red", 3: "green"}, {"1": 9, "2": 9, "3": 9}),
        ({1: "red", 2: "green"}, {"1": 9, "2": 9, "7": 9, "9": 9}),
        ({0: "none", 8: "Don't know"}, {"0": 9, "1": 5, "2": 4, "3": 3, "8": 2}),
    ],
)
def test_label_counts__names(texts, counts):
    variable, codes = draft(texts, counts)
    assert variable.values is None
    assert not codes
