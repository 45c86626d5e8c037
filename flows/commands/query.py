"""Command that asks models questions in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.history import find_run
from flows.console import AsJson, ConfigPath, err, load_pipeline, out, print_json
from pmflib.errors import ConfigError, PmfError, StoreError

if TYPE_CHECKING:
    from pmflib.model import JointPMF
    from pmflib.questions.answer_comparison import AnswerComparison
    from pmflib.questions.answers import Answer
    from pmflib.questions.evidence import Evidence
    from pmflib.store.artefacts import Reference, Store


WIDE = 5
"""Columns of labels from which on a table is printed with a row for each of them."""


def query(
    config: ConfigPath,
    question: Annotated[
        str | None,
        typer.Argument(help="For example: 'P(B | A=5, C=yes)'; others: docs/questions.md."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File of questions, a line each; # starts a comment.")
    ] = None,
    run: Annotated[
        str, typer.Option(help="Number of the run whose model is asked; live; last.")
    ] = "live",
    against: Annotated[
        str | None, typer.Option(help="Run whose model is asked the same: what differs is shown.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Combinations to show.")] = 10,
    errors: Annotated[
        bool,
        typer.Option(help="Standard errors; the first question to a model waits for its fits."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Ask a model: distributions, expected values, quantiles, information, odds, most likely completions."""
    if (question is None) == (file is None):
        raise ConfigError("give a question, or --file with a question on each line")
    asked = [("", question)] if file is None else _read_questions(file)
    checked = load_pipeline(config)
    from tasks.stage import open_store

    store = open_store(checked)
    asker = _Asker(store, checked.name, errors)
    names = [run] if against is None else [run, against]
    models = [asker.open(name) for name in names]
    found = [_answer(models, text, place, top) for place, text in asked]
    if as_json:
        content = [each.to_json() for each in found]
        print_json(content[0] if file is None else content)
        return
    for each in found:
        _show(each, names, top)


def _read_questions(path: Path) -> list[tuple[str, str]]:
    """Questions of a file, and where each stands."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--file {path} cannot be read ({error}); give a text in UTF-8"
        ) from error
    found = [
        (f"{path.name}, line {number}: ", line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not found:
        raise ConfigError(f"--file {path} has no question; write one on each line")
    return found


class _Asker:
    """Models of a pipeline by the names of runs, with what they were fitted to."""

    def __init__(self, store: Store, name: str, with_errors: bool) -> None:
        self.store = store
        self.name = name
        self.with_errors = with_errors

    def open(self, run: str) -> tuple[JointPMF, Evidence | None]:
        from dataclasses import replace

        from pmflib.model import JointPMF
        from pmflib.questions.stored_evidence import open_evidence

        reference = self.find(run)
        model = JointPMF.load(self.store.locate(reference) / "model")
        evidence = open_evidence(self.store, self.name, reference, model, _report)
        if evidence is not None and not self.with_errors:
            evidence = replace(evidence, refit=lambda: ((), "--no-errors"))
        return model, evidence

    def find(self, run: str) -> Reference:
        from pmflib.store.run_records import find_live

        if run != "live":
            made = find_run(self.store, self.name, run)
            if (model := made.stages.get("model")) is None:
                raise StoreError(
                    f"run {made.number} made no model ({made.action}, {made.outcome}); `pmf models` lists "
                    "those that did"
                )
            return model
        if (live := find_live(self.store, self.name)) is None:
            raise StoreError(f"pipeline {self.name!r} has no live model yet; `pmf run` makes one")
        return live


def _report(n_folds: int) -> None:
    err.print(f"standard errors: {n_folds} fits, once for this model; --no-errors goes without")


def _answer(
    models: list[tuple[JointPMF, Evidence | None]], question: str | None, place: str, top: int
) -> Answer | AnswerComparison:
    from pmflib.questions.answer_comparison import compare_answers
    from pmflib.questions.answering import ask

    assert question is not None
    (model, evidence), *others = models
    try:
        if not others:
            return ask(model, question, evidence, top=top)
        second, other_evidence = others[0]
        return compare_answers(model, second, question, (evidence, other_evidence), top=top)
    except PmfError as error:
        if not place:
            raise
        raise type(error)(f"{place}{error}") from error


def _show(found: Any, names: list[str], top: int) -> None:
    from flows.tables import make_table

    is_one = len(names) == 1
    title = found.question if is_one else f"{found.first.question}: {names[0]} and {names[1]}"
    header, rows = found.header, found.rows()
    if rows and len(found.labels[0]) > WIDE:
        # a row for each variable, for a terminal is longer than it is wide
        top = min(top, WIDE)
        numbers = [str(n) for n in range(1, len(rows[:top]) + 1)]
        out.print(make_table(title, ("", *numbers), list(zip(header, *rows[:top], strict=True))))
    else:
        out.print(make_table(title, header, rows[:top]))
    if (left := len(rows) - top) > 0:
        out.print(f"{left:,} more; --top or --json shows them")
    for name, text in found.list_facts():
        out.print(f"{name}: {text}")
    for warning in found.warnings:
        err.print(f"warning: {warning}", style="yellow")
