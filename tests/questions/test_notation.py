import pytest

from pmflib.errors import QuestionError, UnknownNameError
from pmflib.questions.binding import bind_question
from pmflib.questions.notation import MEASURES, parse_question
from pmflib.questions.tokens import split_tokens
from tests.questions.question_models import SCHEMA, SURVEY


def bind(text, schema=SURVEY):
    return bind_question(parse_question(text), schema)


def find_carets(error):
    """Message, and the part of the question that carets stand under."""
    *message, text, carets = str(error.value).split("\n")
    return " ".join(message), text[carets.index("^") : carets.rindex("^") + 1]


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
    ("text", "message", "under"),
    [
        ("", "names no variable", "^"),
        ("P()", "a variable is expected", ")"),
        ("P(kind | stars=)", "a level of 'stars' is expected", ")"),
        ("P(kind | stars=4", r"the question ends where '\)' is expected", "^"),
        ("P(kind | stars=4) more", "follows the question", "more"),
        ("P(kind | 'free text=4)", "the quote ' is not closed", "'free text=4)"),
        ("Q(kind)", "'Q' is nothing that can be asked for", "Q"),
        ("medain(stars)", "did you mean median", "medain"),
        ("MI(stars, kind)", "a semicolon is missing", None),
        ("P(stars; kind)", "P has no semicolon here", None),
        ("TV(stars)", "one semicolon", None),
        ("TV(stars; kind | income=low; income=high)", "one semicolon", None),
        ("OR(stars=4 | kind=drama)", "one semicolon", None),
        ("E(stars=4)", "is of whole variables", "stars=4"),
        ("odds(stars)", "is of an event", "stars"),
        ("E(stars, kind)", "is of one variable", "kind"),
        ("quantile(stars)", "a number between 0 and 1", "stars"),
        ("quantile(stars, 2)", "a number between 0 and 1", "2"),
        ("argmax(stars | kind)", "'kind' is no condition", "kind"),
        ("kind given stars", None, None),
    ],
)
def test_parse_question__errors_point_at_the_place(text, message, under):
    if message is None:
        assert parse_question(text).given
        return
    with pytest.raises(QuestionError, match=message) as error:
        parse_question(text)
    found = find_carets(error)[1]
    assert found == (text if under is None else "" if under == "^" else under)


@pytest.mark.parametrize(
    ("text", "message", "under"),
    [
        ("P(knd | stars=4)", r"'knd' is not in the schema; did you mean \['kind'\]", "knd"),
        ("P(kind | Stars=4)", r"did you mean \['stars'\]", "Stars"),
        ("P(kind | stars=5)", r"'stars' has no level '5'; levels are", "5"),
        ("P(kind | income=lo)", r"did you mean \['low'\]", "lo"),
    ],
)
def test_bind_question__unknown_names(text, message, under):
    with pytest.raises(UnknownNameError, match=message) as error:
        bind(text)
    assert find_carets(error)[1] == under


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pet given age=young and age=old", "'age' is given as 'young' and as 'old'"),
        ("P(pet | age=young, age!=young)", "'age' is given as 'young' and as != young"),
        ("pet given pet=dog", "'pet' is asked for and given as 'dog'"),
        ("P(pet | pet)", "'pet' is asked for and given; leave"),
        ("pet, pet given age=old", "asked for twice"),
        ("P(pet, pet=cat)", "asked for twice"),
        ("MI(pet; pet)", "asked for twice"),
        ("P(pet | age, age=old)", "given as a whole and by its levels"),
        ("P(pet | age>young)", r"have no order \(nominal"),
        ("P(pet | age not in {young, old})", "no level of 'age' is meant"),
    ],
)
def test_bind_question__contradictions(text, message):
    with pytest.raises(QuestionError, match=message):
        bind(text, SCHEMA)


def test_bind_question__bins_are_cut_at_their_edges_alone():
    with pytest.raises(QuestionError, match=r"compare by < or >= with one of \[10.0, 20.0\]"):
        bind("P(kind | income>=12)")


def test_bind_question__a_set_of_levels_may_be_given_of_what_is_asked_for():
    assert bind("E(stars | stars>=2)").given == ({0: (1, 2, 3)},)


def test_bind_question__the_same_condition_twice_is_one():
    assert bind("pet given age=old and age=old", SCHEMA).given == ({0: (1,)},)


def test_bind_question__a_level_that_counts_as_other_is_noted():
    assert bind("P(stars | kind=dramma)").as_other == {"kind": "dramma"}
    assert bind("P(stars | kind=other)").as_other == {}


def test_split_tokens__places_and_signs_that_do_not_print():
    tokens = split_tokens("P(a\t| b)")
    assert [(token.text, token.start) for token in tokens][2:4] == [("a", 2), ("|", 4)]
    with pytest.raises(QuestionError) as error:
        parse_question("P(a\x1b[31m | b; c)")
    assert "\x1b" not in str(error.value)
