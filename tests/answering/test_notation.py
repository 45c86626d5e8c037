import pytest

from pmflib.answering import MEASURES, bind_question, parse_question, split_tokens
from pmflib.base import QuestionError, UnknownNameError
from tests.answering.question_models import SCHEMA, SURVEY, make_survey


def bind(text, schema=SURVEY):
    return bind_question(parse_question(text), schema)


def find_carets(error):
    """Part of the question that carets stand under."""
    *_, text, carets = str(error.value).split("\n")
    return text[carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize("text", ", ".join(MEASURES.values()).replace("), ", ")\n").split("\n"))
def test_parse_question__its_own_examples(text):
    assert parse_question(text).measure == text.split("(")[0]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("kind given stars=4 and income=low", "P(kind | stars=4, income=low)"),
        ("kind, income", "P(kind, income)"),
        ("p( kind |stars==4)", "P(kind | stars=4)"),
        ('P("kind" | \'free text\'="x=y")', "P(kind | “free text”='x=y')"),
        ("P(kind | free text = don't know)", "P(kind | 'free text' = \"don't know\")"),
        ("P(kind | stars ≥ 3)", "P(kind | stars in {3, 4})"),
        ("P(kind | stars != 3)", "P(kind | stars in {1, 2, 4})"),
        ("P(kind | stars not in {3, 1})", "P(kind | stars in {4, 2})"),
        ("P(kind | stars>1, stars<=3)", "P(kind | stars in {2, 3})"),
        ("P(kind | stars > 2.5)", "P(kind | stars in {3, 4})"),
        ("P(kind | income>=10)", "P(kind | income in {middle, high})"),
        ("P(kind | income < 20)", "P(kind | income in {low, middle})"),
        ("P(kind | income=15)", "P(kind | income=middle)"),
        ("P(kind | income > low)", "P(kind | income != low)"),
        ("median(stars)", "Median(stars)"),
    ],
)
def test_bind_question__says_the_same(text, same):
    one, other = bind(text), bind(same)
    for field in ("groups", "events", "given", "by"):
        assert getattr(one, field) == getattr(other, field)
    assert one.question.measure == other.question.measure


def test_bind_question__events_by_and_groups():
    bound = bind("P(stars=4, kind | income)")
    assert (bound.groups, bound.events, bound.by) == (((1,),), ({0: (3,)},), (3,))
    bound = bind("MI(stars, kind; income | 'free text')")
    assert (bound.groups, bound.by) == (((0, 1), (3,)), (2,))
    assert bound.involved == (0, 1, 3, 2)
    assert bind("quantile(stars, .9)").question.share == 0.9


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("", ""),
        ("P()", ")"),
        ("P(kind | stars=)", ")"),
        ("P(kind | stars=4", ""),
        ("P(kind | stars=4) more", "more"),
        ("P(kind | 'free text=4)", "'free text=4)"),
        ("Q(kind)", "Q"),
        ("medain(stars)", "medain"),
        ("MI(stars, kind)", None),
        ("P(stars; kind)", None),
        ("TV(stars)", None),
        ("TV(stars; kind | income=low; income=high)", None),
        ("OR(stars=4 | kind=drama)", None),
        ("E(stars=4)", "stars=4"),
        ("odds(stars)", "stars"),
        ("E(stars, kind)", "kind"),
        ("quantile(stars)", "stars"),
        ("quantile(stars, 2)", "2"),
        ("argmax(stars | kind)", "kind"),
    ],
)
def test_parse_question__errors_point_at_the_position(text, under):
    with pytest.raises(QuestionError) as error:
        parse_question(text)
    assert find_carets(error) == (text if under is None else under)


@pytest.mark.parametrize(
    ("text", "near", "under"),
    [
        ("P(knd | stars=4)", "'kind'", "knd"),
        ("P(kind | Stars=4)", "'stars'", "Stars"),
        ("P(kind | stars=5)", "'5'", "5"),
        ("P(kind | income=lo)", "'low'", "lo"),
    ],
)
def test_bind_question__unknown_names(text, near, under):
    with pytest.raises(UnknownNameError, match=near) as error:
        bind(text)
    assert find_carets(error) == under


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pet given age=young and age=old", "'age'"),
        ("P(pet | age=young, age!=young)", "'age'"),
        ("pet given pet=dog", "'pet'"),
        ("P(pet | pet)", "'pet'"),
        ("pet, pet given age=old", "'pet'"),
        ("P(pet, pet=cat)", "'pet'"),
        ("MI(pet; pet)", "'pet'"),
        ("P(pet | age, age=old)", "'age'"),
        ("P(pet | age>young)", "'age'"),
        ("P(pet | age not in {young, old})", "'age'"),
    ],
)
def test_bind_question__contradictions(text, name):
    with pytest.raises(QuestionError, match=name):
        bind(text, SCHEMA)


@pytest.mark.parametrize(
    ("condition", "codes", "answered"),
    [
        ("income>=10", (1, 2), None),
        ("income<10", (0,), None),
        ("income<20", (0, 1), None),
        ("income>=12", (1, 2), "income>=10, with the whole bin 'middle'"),
        ("income>12", (1, 2), "income>=10, with the whole bin 'middle'"),
        ("income<12", (0, 1), "income<20, with the whole bin 'middle'"),
        ("income<=12", (0, 1), "income<20, with the whole bin 'middle'"),
        ("income>10", (1, 2), "income>=10"),
        ("income<=10", (0,), "income<10"),
        ("income>=-3", (0, 1, 2), "every income, with the whole bin 'low'"),
        ("income<-3", (0,), "income<10, with the whole bin 'low'"),
        ("income>25", (2,), "income>=20, with the whole bin 'high'"),
        ("income<1e9", (0, 1, 2), "every income, with the whole bin 'high'"),
    ],
)
def test_bind_question__bins_that_a_number_cuts_count_as_a_whole(condition, codes, answered):
    bound = bind(f"P(kind | {condition})")
    assert bound.given == ({3: codes},)
    assert bound.moved_cuts == ({} if answered is None else {condition: answered})
    found = make_survey().ask(f"P(kind | {condition})")
    assert all(any(cut in each for each in found.warnings) for cut in bound.moved_cuts)
    assert found.to_json().get("moved_cuts", {}) == bound.moved_cuts


def test_bind_question__two_cuts_of_one_variable():
    bound = bind("P(kind | income>=12, income<15)")
    assert bound.given == ({3: (1,)},)
    assert list(bound.moved_cuts) == ["income>=12", "income<15"]


def test_bind_question__a_set_of_levels_may_be_given_of_what_is_asked_for():
    assert bind("E(stars | stars>=2)").given == ({0: (1, 2, 3)},)


def test_bind_question__the_same_condition_twice_is_one():
    assert bind("pet given age=old and age=old", SCHEMA).given == ({0: (1,)},)


def test_bind_question__a_level_that_counts_as_other_is_noted():
    assert bind("P(stars | kind=dramma)").as_other == {"kind": "dramma"}
    assert bind("P(stars | kind=other)").as_other == {}


def test_split_tokens__positions_and_signs_that_do_not_print():
    tokens = split_tokens("P(a\t| b)")
    assert [(token.text, token.start) for token in tokens][2:4] == [("a", 2), ("|", 4)]
    with pytest.raises(QuestionError) as error:
        parse_question("P(a\x1b[31m | b; c)")
    assert "\x1b" not in str(error.value)
