"""A summary: a headline, facts, notes and tables; text in a terminal, HTML in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_ROWS = 10
"""Rows of a table that are shown at once."""

MOST_ROWS = 200
"""Rows of a table that a summary holds at most: a notebook keeps them all in its file."""


@dataclass(frozen=True)
class SummaryTable:
    """A table of texts.

    Parameters
    ----------
    title
        What it lists.
    columns
        Names of the columns; one that starts with ``>`` is aligned to the right, and is shown without it.
    rows
        Cells, a text per column; at most ``MOST_ROWS`` are kept.
    n_all
        Rows that there are, of which ``rows`` are the first.
    more
        Where the others are found, such as ``"result.workers"``.
    folded
        Whether a notebook shows the title alone until it is opened.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    n_all: int
    more: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows[:MOST_ROWS]))

    def name_rest(self, n_shown: int) -> str:
        """Sentence on the rows that are not shown; empty where all are."""
        n_more = self.n_all - n_shown
        if n_more <= 0:
            return ""
        return f"{n_more:,} more" + (f": {self.more}" if self.more else "")


@dataclass(frozen=True)
class Summary:
    """What a person wants to know first of an object.

    ``print`` and the prompt show the text, a notebook the HTML. Texts of the data are escaped in both; the size is
    bounded, whatever the object holds.

    Parameters
    ----------
    headline
        What it is.
    facts
        Names and values, in order.
    notes
        Sentences that a careful user should know.
    tables
        Tables, the most important first.
    """

    headline: str
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[SummaryTable, ...] = ()

    def to_text(self, width: int | None = None) -> str:
        """Text of lines of ``width`` characters at most; None is the width of the terminal."""
        from pmflib.displays.text_form import write_text

        return write_text(self, width)

    def to_html(self) -> str:
        """HTML element: no script, no colour of its own, nothing from elsewhere."""
        from pmflib.displays.html_form import write_html

        return write_html(self)

    def __repr__(self) -> str:
        """The text form."""
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


class Summarised:
    """An object that notebooks show by its summary."""

    def summary(self) -> Summary:
        """What a person wants to know first: text in a terminal, HTML in a notebook, of bounded size."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.summary().to_html()
