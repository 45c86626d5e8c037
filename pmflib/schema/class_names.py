"""Names of the classes of a label log: their order, and which are one though they are not spelled the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from pmflib.core.defaults import MANY_CLASSES, MOST_CLASSES
from pmflib.core.errors import SchemaError, SchemaWarning
from pmflib.core.texts import fold_text, list_some, unify_texts
from pmflib.schema.drafting.level_order import natural_key
from pmflib.schema.variable import DEFAULT_MISSING, Variable


def sort_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Sort names so that numbers inside them count as numbers: "2" before "10"."""
    return tuple(sorted(texts, key=lambda text: (natural_key(text), text)))


def unify_classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Take labels that differ in case or Unicode composition alone for the first of them.

    Parameters
    ----------
    labels
        Distinct labels, in their order, without blanks around them.

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
        If some labels are taken for others, or there are more than ``MANY_CLASSES`` classes.
    """
    unified = unify_texts(labels)
    if merged := [f"{text!r} for {kept!r}" for text, kept in unified.items() if text != kept]:
        warnings.warn(
            f"labels that differ in case or Unicode composition alone are one: {list_some(merged)}; name the classes "
            "to keep them apart",
            SchemaWarning,
            stacklevel=3,
        )
    classes = tuple(dict.fromkeys(unified.values()))
    check_number(len(classes))
    return classes


def make_class_variable(
    name: str, classes: Sequence[str], missing: tuple[str, ...] = DEFAULT_MISSING
) -> Variable:
    """Variable whose levels are classes: case and Unicode composition count where classes differ in nothing else.

    Parameters
    ----------
    name, classes, missing
        As for `pmflib.schema.variable.Variable`.
    """
    folded = len({fold_text(each) for each in classes}) == len(classes)
    return Variable(name, tuple(classes), missing=missing, folded=folded)


def check_number(n_classes: int) -> None:
    """Refuse or warn of more classes than confusion matrices are made for: see `unify_classes`."""
    if n_classes > MOST_CLASSES:
        raise SchemaError(
            f"there are {n_classes} distinct labels, above {MOST_CLASSES}; check which column holds the label, or name "
            "the classes that count"
        )
    if n_classes > MANY_CLASSES:
        warnings.warn(
            f"there are {n_classes} distinct labels, and every worker has a confusion matrix of their number squared: "
            f"above {MANY_CLASSES} that takes long, and needs many labels; is it the label column?",
            SchemaWarning,
            stacklevel=4,
        )
