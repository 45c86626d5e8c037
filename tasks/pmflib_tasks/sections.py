"""What a run has to say, as one list of sections, which terminal, log and page show alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pmflib.base.comparison import Comparison
from pmflib.base.display.summary import DIGITS, SummaryTable, format_value, tabulate_comparison
from pmflib.fits.fit_statistics import HeldOutScore, describe_likelihood, tabulate_statistics
from pmflib.fits.stack.readings import Disagreement
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model.rungs import RungFit, tabulate_ladder
from pmflib.store.run_records import RunRecord
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import FEATURES
from pmflib_tasks.gate.gate_decision import OF_WEIGHTED
from pmflib_tasks.gate.value_errors import list_error_rows
from pmflib_tasks.stages.stack import CLASSES
from pmflib_tasks.wording import as_sentence

if TYPE_CHECKING:
    from pmflib.base.display.drawing import Axes

VARIABLES_SHOWN = 8
"""Maximum number of variables with unknown levels, and of scales with errors, listed."""
CONFUSED = 15
"""Maximum number of levels for which a confusion matrix is drawn."""

ROWS = {
    "samples": "samples",
    "observed": "observed answers",
    "rows_in": "rows read",
    "rows_encoded": "rows used",
    "rows_left_out": "rows of variables left out",
    "rows_outside": "rows outside the window",
    "rows_erased": "rows of erased samples",
    "rows_quarantined": "rows in quarantine",
}
"""Names of the keys of an account of rows, in the order shown."""

DESTINATIONS = {
    key: text for key, text in ROWS.items() if key.startswith("rows_") and key != "rows_in"
}
"""Those that add up to the rows read."""


@dataclass(frozen=True)
class Section:
    """A part of what a run has to say: a table under its title, sentences, or both.

    Parameters
    ----------
    part
        Part of the page that it stands in: "data", "quality", "model", "scores", or a part of a feature.
    table
        The table; None for sentences alone.
    sentences
        Sentences after the table.
    figures
        Names of figures of the page below it, with their captions.
    """

    part: str
    table: SummaryTable | None = None
    sentences: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_values(
        cls, part: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> Section:
        """Build a section with a table of values."""
        return cls(part, SummaryTable.of_values(title, columns, rows))

    @classmethod
    def of_texts(
        cls,
        part: str,
        title: str,
        columns: tuple[str, ...],
        rows: Sequence[tuple[str, ...]],
        *sentences: str,
        folded: bool = False,
    ) -> Section:
        """Build a section with a table of texts; a leading ``>`` aligns a column to the right."""
        table = SummaryTable(title, columns, rows, len(rows), folded=folded)
        return cls(part, table, sentences)


class Drawing(NamedTuple):
    """A planned figure.

    Parameters
    ----------
    name
        Prefix of the ids in the figure, unique within a page: letters and dashes.
    title, description
        Title, and a description of the content for screen readers.
    draw
        Function that draws on given Axes.
    size
        Width and height, inches.
    """

    name: str
    title: str
    description: str
    draw: Callable[[Axes], object]
    size: tuple[float, float]


@dataclass(frozen=True)
class ReportPart:
    """What a feature adds to the report of a run, from the artefacts of the store.

    Parameters
    ----------
    sections
        Sections of the page, in addition to those of the record.
    figures
        Figures that the sections name.
    sentences, troubles
        Sentences of the summary, and on what a person should look at.
    cards
        What, number, and a remark to it, at the end of the summary.
    """

    sections: tuple[Section, ...] = ()
    figures: tuple[Drawing, ...] = ()
    sentences: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    cards: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class StatusPart:
    """What a feature adds to the status of a pipeline.

    Parameters
    ----------
    content
        Keys of the status as JSON.
    sections
        Sections for people.
    record
        Last run of the feature, for a pipeline that has had no other.
    """

    content: Mapping[str, object]
    sections: Sequence[Section] = ()
    record: RunRecord | None = None


def list_sections(facts: Mapping[str, Any]) -> Iterator[Section]:
    """List what a run has to say, from the facts of its record, in reading order; absent facts are left out."""
    facts = RunFacts(facts)
    for describe in (describe_rows, describe_quality, describe_model, describe_scores):
        yield from describe(facts)
    for feature in FEATURES:
        for key, place in feature.sections.items():
            if facts.get(key):
                yield from place.load()(facts)


def describe_rows(facts: RunFacts) -> Iterator[Section]:
    """Say what became of the rows, and of which variables pairs are counted if not of all."""
    rows = facts.account
    if rows is None:
        return
    counted: list[tuple[str, object]]
    counted = [(label, getattr(rows, key)) for key, label in ROWS.items()]
    counted += [(f"  {reason}", n) for reason, n in rows.reasons.items()]
    if rows.weights is not None:
        worth = rows.weights.n_effective
        counted += [
            ("sum of the weights", rows.weights.total),
            ("effective samples (Kish)", worth),
            ("design effect of the weights", rows.samples / max(worth, 1.0)),
        ]
    if rows.files_skipped:
        counted.append(("files passed over", ", ".join(rows.files_skipped)))
    if rows.cells_made_missing:
        most = dict(list(rows.cells_made_missing.items())[:VARIABLES_SHOWN])
        counted.append(("unknown levels taken as missing", most))
    yield Section.of_values("data", "Rows", ("what", "how many"), counted)
    if pairs := facts.get("pairs"):
        yield Section("data", sentences=(as_sentence(pairs["sentence"]),))


def describe_quality(facts: RunFacts) -> Iterator[Section]:
    """List the findings beyond a limit, and count the guards that passed."""
    if "quality" not in facts:
        return
    findings = facts.findings
    crossed = [each for each in findings if not each.passed]
    passed = {each.guard for each in findings} - {each.guard for each in crossed}
    if crossed:
        columns = ("guard", "measured", "limit", "action", "what was found")
        rows = [
            (each.guard, each.measured, each.limit, each.action, each.sentence) for each in crossed
        ]
        yield Section.of_values("quality", "Guards of quality", columns, rows)
    yield Section("quality", sentences=(f"{len(passed)} guards of quality passed",))


def describe_model(facts: RunFacts) -> Iterator[Section]:
    """Say how the new model was fitted and chosen."""
    if "model" not in facts:
        return
    model, rank = facts.model, facts.rank
    known = ("method", "rank", "passes", "best_pass", "converged", "stopped_early")
    agreement = facts.agreement
    described = [] if agreement is None else [("pairs", agreement.sentence)]
    described += [(k, model[k]) for k in known if k in model]
    if (refit := facts.refit) is not None:
        described.append(("fit", refit.reason))
    if rank:
        described.append(("is the rank fine", rank["verdict"]))
        described += [("why this rank", reason) for reason in rank["reasons"]]
    if found := model.get(CLASSES):
        described.append(("classes to read", Disagreement.from_json(found).sentence))
    if fit := model.get("fit"):
        described.append(("log-likelihood", describe_likelihood(fit)))
    if held_out := model.get("held_out"):
        described.append(("held out", HeldOutScore.from_json(held_out).describe()))
    if residuals := model.get("residuals"):
        described.append(("within states", residuals["sentence"]))
    if errors := model.get("errors"):
        described.append(("parameters", errors["sentence"]))
    described += [("note", note) for note in model.get("notes", ())]
    described += [("warning", text) for text in facts.warnings]
    rows = facts.account
    if rows is not None and rows.weights is not None and facts.gate.assessed:
        described.append(("note", OF_WEIGHTED))
    title = name_model("New model", facts.name_model("new"))
    yield Section.of_values("model", title, ("what", "value"), described)
    if ladder := model.get("ladder"):
        yield Section("model", tabulate_ladder([RungFit.from_json(each) for each in ladder]))
    if fit:
        yield Section("model", tabulate_statistics(fit))
    for chosen in (rank, model):
        for content in chosen.get("comparisons", ()):
            yield Section("model", tabulate_comparison(Comparison.from_json(content)))


def describe_scores(facts: RunFacts) -> Iterator[Section]:
    """Compare the new model, the live model and single variables on the same cells.

    Columns name their models, because either may be live after the run.
    """
    scores, new, live = facts.scores, facts.name_model("new"), facts.name_model("live")
    if not scores.get("hidden_cells"):
        return
    ending = {"promoted": ", promoted", "kept": ", rejected"}.get(facts.get("outcome", ""), "")
    models = [(name_model("new model", new) + ending, scores)]
    if new == live is not None:
        models = [(name_model("live model", live), scores)]
    elif "live_scores" in facts:
        title = "live model before" if ending == ", promoted" else "live model"
        models.append((name_model(title, live), facts["live_scores"]))
    measures = [key for key in scores if f"baseline_{key}" in scores]
    rows = [
        (key, *(each[key] for _, each in models), scores[f"baseline_{key}"]) for key in measures
    ]
    errors, n_more = list_error_rows([each for _, each in models], VARIABLES_SHOWN)
    rows += [(f"{measure} of {name}", *values) for measure, name, *values in errors]
    title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
    if n_more:
        title += f"; errors of {n_more:,} more scales are in --json"
    columns = ("measure", *(title for title, _ in models), "single variables")
    yield Section.of_values("scores", title, columns, rows)


def name_model(title: str, digest: str | None) -> str:
    """Add the short digest of a model to a title."""
    return f"{title} {digest[:DIGITS]}" if digest else title


def describe_account(account: DatasetAccount) -> str:
    """Describe the numbers of rows: read, used, and in quarantine by reason.

    Examples
    --------
    >>> from collections import Counter
    >>> describe_account(DatasetAccount(rows_in=9, rows_encoded=7, reasons=Counter(ragged=2)))
    '9 rows read, 7 rows used, 0 rows of variables left out, 0 rows outside the window, 0 rows of erased samples, \
2 rows in quarantine (ragged 2)'
    """
    counted = {key: text for key, text in ROWS.items() if key.startswith("rows_")}
    said = [f"{format_value(getattr(account, key))} {text}" for key, text in counted.items()]
    if account.reasons:
        said[-1] += f" ({format_value(account.reasons)})"
    return ", ".join(said)
