"""Bars for everything that takes long, where a person asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pmflib.errors import PmfError
from pmflib.reporting.work_progress import Listener, listen_here

Shown = Literal["auto", "lines"]


@contextmanager
def progress(to: Shown | Listener = "auto") -> Iterator[None]:
    """Show how far functions of the library are, while the context lasts; without it they say nothing.

    Covers `count_pairs` of batches, `fit`, `fit_em`, `fit_triples`, `distil`, `select_rank` and `crowd.aggregate`.

    Parameters
    ----------
    to
        "auto" draws bars where a person looks, in a notebook or a terminal, and takes them away at the end; in a batch
        job it prints nothing. "lines" prints a line every few seconds on standard error, for logs of batch jobs. Or a
        function, called with a `Progress` (its ``stage``, ``done``, ``total`` and ``text``) at every report, also from
        another thread.

    Raises
    ------
    PmfError
        If ``to`` is none of these.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> counts = pmf.count_pairs(np.array([[0, 1], [1, 0]] * 20), [2, 2])
    >>> with pmf.progress(lambda each: print(each.stage, each.done, "of", each.total)):
    ...     result = pmf.fit(counts, rank=2, method="spa")
    fit 0 of 1
    fit 1 of 1
    """
    if callable(to):
        with listen_here(to):
            yield
        return
    if to not in ("auto", "lines"):
        raise PmfError(f"to is {to!r}; give 'auto', 'lines', or a function")
    from rich.console import Console

    from pmflib.reporting.progress_bars import draw_progress

    options: dict[str, Any] = {"stderr": True, "markup": False, "emoji": False, "highlight": False}
    if to == "lines":
        options |= {"force_terminal": False, "force_jupyter": False, "soft_wrap": True}
    console = Console(**options)
    if console.is_jupyter:
        from pmflib.reporting.notebook_bars import draw_in_notebook

        with draw_in_notebook() as drawer, listen_here(drawer):
            yield
    elif to == "lines" or console.is_terminal:
        with draw_progress(console, transient=True) as drawer, listen_here(drawer):
            yield
    else:
        yield
