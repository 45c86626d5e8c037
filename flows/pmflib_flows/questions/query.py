"""Command that answers questions in words with a model."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.errors import ConfigError, PmfError, StoreError
from pmflib.base.hooks import find_offers
from pmflib_flows.commands.history import find_run
from pmflib_flows.console import AsJson, ConfigPath, err, load_pipeline, out, print_json

if TYPE_CHECKING:
    from pmflib.answering.answers import Answer
    from pmflib.answering.comparison import AnswerComparison
    from pmflib.answering.evidence import Evidence
    from pmflib.cluster.clients import Client
    from pmflib.model import JointPMF
    from pmflib.store.artefacts import Reference, Store


LONG = 2.0
"""Estimated processor time from which the duration of counting is announced, seconds."""
WIDE = 5
"""Number of label columns from which a table is printed with one row per label."""


def query(
    config: ConfigPath,
    question: Annotated[
        str | None,
        typer.Argument(help="For example 'P(B | A=5, C=yes)'; see docs/questions.md."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File with one question per line; # starts a comment.")
    ] = None,
    run: Annotated[
        str, typer.Option(help="Run whose model is used: its number, live or last.")
    ] = "live",
    against: Annotated[
        str | None, typer.Option(help="Second run, to show how the answers differ.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of combinations to show.")] = 10,
    source: Annotated[
        str, typer.Option("--from", help="Basis of the answer: both, counts or model.")
    ] = "both",
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    shift: Annotated[
        float | None,
        typer.Option(
            help="Show the range of each answer if gaps depend on the answer itself: largest change of a "
            "probability in the samples without it, for example .1. Only for P and E."
        ),
    ] = None,
    margins: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV file with the known number of each level of a variable. The model is raked to it, "
            "and answers alone; may be repeated. Margins of every run belong in section margins."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Processor time for counting three or more variables, for example 5s; if it is not "
            "enough for all samples, a random part is counted. Default: no limit."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer questions with a model: distributions, expected values, quantiles, odds, likely completions."""
    if (question is None) == (file is None):
        hint = (
            f"; {str(config)!r} is read as the pipeline, which comes first"
            if question is None
            else ""
        )
        raise ConfigError(f"pass a question, or --file with a question on each line{hint}")
    if source not in ("both", "counts", "model"):
        raise ConfigError(f"--from is {source!r}; give both, counts or model")
    if margins and source == "counts":
        raise ConfigError(
            "--from is counts, and --margins rakes the model; leave one of them out, or give section margins"
        )
    if margins and "rake" not in find_offers("model_methods"):
        raise ConfigError(
            f"--margins is {margins[0]}, and this installation of pmflib rakes no models; add the feature that does to "
            "pmflib.features.FEATURES, or leave --margins out"
        )
    seconds = _read_budget(budget)
    asked = [("", question)] if file is None else _read_questions(file)
    checked = load_pipeline(config)
    from pmflib.cluster.workers import find_scheduler
    from pmflib_tasks.stage import open_store, open_workers_late

    names = [run] if against is None else [run, against]
    with ExitStack() as stack:
        # existing workers count questions that take long; none are started for a single question
        client, address = None, find_scheduler(checked.cluster)
        if address:
            client = stack.enter_context(open_workers_late(checked, address))
        asker = _Asker(open_store(checked), checked.name, seconds, client)
        models = [asker.open(name) for name in names]
        if margins:
            # the samples are not raked, and cannot correct the model
            models, source = [(model.rake(margins), None) for model, _ in models], "model"
        _count_all(models, [text for _, text in asked], source)
        options = {"top": top, "source": source, "level": level, "shift": shift}
        found = [_answer(models, text, origin, options) for origin, text in asked]
    if as_json:
        content = [each.to_json() for each in found]
        print_json(content[0] if file is None else content)
        return
    for each in found:
        _show(each, names, top)


def _read_questions(path: Path) -> list[tuple[str, str]]:
    """Read the questions of a file, with the position of each."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--file {path} cannot be read ({error}); pass a text in UTF-8"
        ) from error
    found = [
        (f"{path.name}, line {number}: ", line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not found:
        raise ConfigError(f"--file {path} has no question; write one on each line")
    return found


def _read_budget(text: str | None) -> float | None:
    from pmflib_tasks.config.model_sections import read_budget

    if text is None:
        return None
    try:
        return read_budget(text)
    except ValueError as error:
        raise ConfigError(f"--budget: {error}") from None


class _Asker:
    """Models of a pipeline by run, with the data they were fitted to."""

    def __init__(self, store: Store, name: str, budget: float | None, client: Client) -> None:
        self.store = store
        self.name = name
        self.options: dict[str, Any] = {"budget": budget, "client": client}

    def open(self, run: str) -> tuple[JointPMF, Evidence | None]:
        from pmflib.answering.evidence import open_evidence
        from pmflib.model import JointPMF

        reference = self.find(run)
        if self.store.find(reference.identity) is None:
            raise StoreError(
                f"model {reference.digest[:12]} has no entry in the manifest of store {self.store.name!r}: what it was "
                "made from, and what its answers are worth, is not known; `pmf verify` names what is lost"
            )
        model = JointPMF.load(self.store.locate(reference) / "model")
        return model, open_evidence(self.store, self.name, reference, model.schema, **self.options)

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


def _count_all(
    models: list[tuple[JointPMF, Evidence | None]], asked: list[str | None], source: str
) -> None:
    """Count what all questions need in one pass over the samples; invalid questions are reported in their turn."""
    from pmflib.answering.answering import list_requests
    from pmflib.answering.question import bind_question, parse_question

    for model, evidence in models:
        if evidence is None:
            continue
        requests = []
        for text in asked:
            with suppress(PmfError):
                bound = bind_question(parse_question(text or ""), model.schema)
                requests += list_requests(bound, source)
        if source == "both":
            requests = evidence.expand(requests)
        if (seconds := evidence.plan(requests)) > LONG:
            from pmflib.base.display.summary import format_seconds

            err.print(
                f"counting in {evidence.n_rows:,} samples: about {format_seconds(seconds)} of one core, kept for the "
                "next time; --budget counts a part"
            )
        evidence.count(requests)


def _answer(
    models: list[tuple[JointPMF, Evidence | None]],
    question: str | None,
    origin: str,
    options: dict[str, Any],
) -> Answer | AnswerComparison:
    from pmflib.answering.answering import ask
    from pmflib.answering.comparison import compare_answers

    assert question is not None
    (model, evidence), *others = models
    try:
        if not others:
            return ask(model, question, evidence, **options)
        second, other_evidence = others[0]
        return compare_answers(model, second, question, (evidence, other_evidence), **options)
    except PmfError as error:
        if not origin:
            raise
        raise type(error)(f"{origin}{error}") from error


def _show(found: Any, names: list[str], top: int) -> None:
    from pmflib_flows.tables import make_table

    is_one = len(names) == 1
    title = found.question if is_one else f"{found.first.question}: {names[0]} and {names[1]}"
    header, rows = found.header, found.rows()
    if rows and len(found.labels[0]) > WIDE:
        # one row per variable, which is wider than long for a terminal
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
