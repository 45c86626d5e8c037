"""Names of the classes of a label log: sorting, and merging of spelling variants."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

from pmflib.base.constraints import Interval, check
from pmflib.base.errors import SchemaError, SchemaWarning
from pmflib.base.texts import fold_text, list_some, natural_key, unify_texts
from pmflib.schema.variable import DEFAULT_MISSING, Variable, read_number

MOST_CLASSES = 1000
"""Maximum number of distinct labels in a log; with more, the column is unlikely to contain labels."""
MANY_CLASSES = 100
"""Number of distinct labels above which a warning is given, since confusion matrices grow with its square."""
ABSTENTION = -1
"""Label by which many tools mark that a worker gave none."""


def sort_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Sort names so that embedded numbers are compared as numbers: "2" before "10"."""
    return tuple(sorted(texts, key=lambda text: (natural_key(text), text)))


def refuse_abstention(labels: Iterable[str]) -> None:
    """Ask what -1 means where it is the only negative number among labels.

    Raises
    ------
    SchemaError
        If it is, among at least three labels: of two, such as -1 and 1, both are classes, since one alone is no choice.
    """
    numbers = {text: read_number(text) for text in labels}
    others = [text for text, number in numbers.items() if number != ABSTENTION]
    if 1 < len(others) < len(numbers) and all((numbers[text] or 0) >= 0 for text in others):
        listed = ",".join(others)
        raise SchemaError(
            f"label -1 stands beside {listed}: is it no label, as many tools write it, or a class? Name the classes: "
            f"{listed} leaves -1 out, -1,{listed} makes it a class (classes=[...], pmf crowd --classes {listed})"
        )


def unify_classes(
    labels: Sequence[str], counts: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Merge labels that `pmflib.base.texts.fold_text` does not tell apart, under their most frequent spelling.

    Parameters
    ----------
    labels
        Distinct labels, in order, without surrounding blanks.
    counts
        How often each occurs; None takes the first of several spellings.

    Returns
    -------
    The classes, in order.

    Raises
    ------
    SchemaError
        If there are more than ``MOST_CLASSES`` of them.

    Warns
    -----
    SchemaWarning
        If labels are merged, or there are more than ``MANY_CLASSES`` classes.
    """
    unified = unify_texts(labels, counts)
    if merged := [f"{text!r} for {kept!r}" for text, kept in unified.items() if text != kept]:
        warnings.warn(
            f"labels that differ in case, blanks or Unicode composition alone are one: {list_some(merged)}; name the "
            "classes to keep them apart",
            SchemaWarning,
            stacklevel=3,
        )
    classes = tuple(text for text in labels if unified[text] == text)
    check_number(len(classes))
    return classes


def make_class_variable(
    name: str, classes: Sequence[str], missing: tuple[str, ...] = DEFAULT_MISSING
) -> Variable:
    """Make a variable whose levels are classes; case and Unicode composition matter only if classes differ in them.

    Parameters
    ----------
    name, classes, missing
        As for `pmflib.schema.variable.Variable`.
    """
    folded = len({fold_text(each) for each in classes}) == len(classes)
    return Variable(name, tuple(classes), missing=missing, folded=folded)


def check_number(n_classes: int) -> None:
    """Check the number of classes, since confusion matrices grow with its square; see `unify_classes`."""
    wanted = Interval(most=MOST_CLASSES, hint="or name the classes that count")
    check(wanted, SchemaError, **{"number of distinct labels": n_classes})
    if n_classes > MANY_CLASSES:
        warnings.warn(
            f"there are {n_classes} distinct labels, and every worker has a confusion matrix of their number squared: "
            f"above {MANY_CLASSES} that takes long, and needs many labels; is it the label column?",
            SchemaWarning,
            stacklevel=4,
        )
