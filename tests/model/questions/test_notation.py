import pytest

from pmflib.core.errors import QuestionError, UnknownNameError
from pmflib.model.questions.question import MEASURES, bind_question, parse_question, split_tokens
from tests.model.questions.question_models import SCHEMA, SURVEY, make_survey


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
def test_parse_question__errors_point_at_the_position(text, message, under):
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
    said = [each for each in found.warnings if "edges of its bins" in each]
    assert said == [
        f"{condition} does not go by the edges of its bins: this answer is for {each}"
        for each in bound.moved_cuts.values()
    ]
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
