"""Summary of a run in sentences: data, model, quality, changes, problems."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pmflib.base.texts import escape_markdown
from pmflib.fits.pair_agreement import MAX_COMPARED_LEVELS, PairAgreement
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model.rungs import RungFit
from pmflib.model.state_descriptions import StateDescription
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.report.model_report import ScoreReport
from pmflib_tasks.report.run_report import RunReport
from pmflib_tasks.wording import as_count, as_percent, as_sentence

STATES_LISTED = 8
"""Maximum number of states that a summary describes."""

_VERDICTS = {
    "better": "better than",
    "no worse": "no worse than",
    "worse": "worse than",
    "unsure": "not sure to be as good as",
}


def summarise_run(report: RunReport) -> list[str]:
    """Summarise a run in sentences, in reading order."""
    return [
        *_say_outcome(report),
        *_say_data(report),
        *_say_model(report),
        *(sentence for part in report.parts for sentence in part.sentences),
        *_say_changes(report),
    ]


def summarise_states(report: RunReport, most: int) -> list[str]:
    """Describe the largest states in a sentence each: size, values, and the two most distinctive levels."""
    if report.model is None:
        return []
    return [_describe_state(each) for each in report.model.states[:most]]


def write_summary(report: RunReport, page: str) -> str:
    """Write the summary of a run in Markdown, for servers that do not show its page.

    Parameters
    ----------
    report
        The report.
    page
        Location of its page.

    Returns
    -------
    Markdown in which texts of the data are escaped.
    """
    troubles, states = list_troubles(report), summarise_states(report, STATES_LISTED)
    parts = [" ".join(map(escape_markdown, summarise_run(report)))]
    if states[1:]:
        parts += ["**What distinguishes the states**", _list(states)]
    parts += ["**To look at**", _list(troubles)] if troubles else ["**Nothing stands out.**"]
    if report.data.rows:
        rows = "\n".join(
            f"| {escape_markdown(text)} | {n:,} |" for text, n in report.data.destinations
        )
        parts.append(f"| rows | {report.data.rows.rows_in:,} read |\n|---|---:|\n{rows}")
    return "\n\n".join([*parts, f"The whole page: {escape_markdown(page)}"])


def _list(texts: list[str]) -> str:
    return "\n".join(f"* {escape_markdown(text)}" for text in texts)


def _describe_state(state: StateDescription) -> str:
    said = []
    if state.n_higher + state.n_lower > 3:
        if state.n_higher > 2 * state.n_lower:
            said.append("values mostly higher than on average")
        elif state.n_lower > 2 * state.n_higher:
            said.append("values mostly lower than on average")
    for levels, word in ((state.frequent, "more often"), (state.rare, "less often")):
        if levels:
            named = " and ".join(f"{each.variable} = {each.level}" for each in levels[:2])
            said.append(f"{word} {named}")
            break
    text = "; ".join(said) or "much as all samples"
    return f"State {state.state}, {as_percent(state.prior)}: {text}."


def list_troubles(report: RunReport) -> list[str]:
    """List the problems that a person should look at, as sentences."""
    record = report.record
    found = []
    if not record.is_complete:
        found.append(f"The run was {record.outcome}: {as_sentence(record.reason)}")
    elif record.outcome == "kept":
        found.append(f"The new model is not live: {as_sentence(record.reason)}")
    if report.data.rows is not None and not report.data.adds_up:
        found.append("The rows do not add up; please report this as a defect.")
    found += [f"{each.sentence} ({each.action})" for each in report.crossed]
    if report.scores is not None and (
        worse := [each for each in report.scores.variables if each.is_worse]
    ):
        names = ", ".join(each.name for each in worse[:3])
        more = f" and {len(worse) - 3} more" if worse[3:] else ""
        found.append(
            f"{as_count(len(worse), 'variable')} predicted worse than by the variable alone: {names}{more}."
        )
    found += [text for part in report.parts for text in part.troubles]
    if report.model is not None:
        # early stopping by held-out samples is intended
        if report.model.summary.get("converged") is False and not report.model.summary.get(
            "stopped_early"
        ):
            found.append("The fit stopped before it had converged: raise em.max_passes.")
        found += [as_sentence(text) for text in report.model.warnings]
    ended_badly = [
        each for each in report.later if each.action in ("run", "labels") and not each.is_complete
    ]
    if ended_badly:
        last = ended_badly[-1]
        found.append(f"A later run, {last.number}, was {last.outcome}: {as_sentence(last.reason)}")
    return found


def _say_outcome(report: RunReport) -> Iterator[str]:
    record = report.record
    says = {
        "promoted": "its model went live",
        "done": "it reached its end",
        "kept": "its model did not replace the live one",
        "unchanged": "nothing was new, and the live model stays",
    }
    how = says.get(record.outcome, f"it was {record.outcome}")
    when = f"{record.started[:10]} at {record.started[11:16]} (UTC)"
    yield f"Run {record.number} of pipeline “{report.pipeline.removesuffix('@labels')}” started on {when}; {how}."


def _say_data(report: RunReport) -> Iterator[str]:
    rows, data = report.data.rows, report.data
    if rows is None:
        yield "It ended before any row was read."
        return
    n, used, rejected = rows.rows_in, rows.rows_encoded, rows.rows_quarantined
    said = f"It read {as_count(n, 'row')} from {as_count(len(data.files), 'file')} and used {used:,} of them"
    if used == n:
        said = f"It read {as_count(n, 'row')} from {as_count(len(data.files), 'file')} and used them all"
    if left_out := n - used - rejected:
        said += f"; {left_out:,} were left out on purpose"
    if rejected:
        said += f"; {rejected:,} did not fit ({as_percent(rejected / n, 1)})"
    yield said + "."
    if data.variables:
        n_samples, n_variables = rows.samples, len(data.variables)
        cells = n_samples * n_variables
        lacking = 1 - rows.observed / cells if cells else 0.0
        yield (
            f"They are the answers of {as_count(n_samples, 'sample')} to {as_count(n_variables, 'variable')}; "
            f"{as_percent(lacking)} of the answers are missing."
        )
    if rows.weights is not None:
        worth = rows.weights.n_effective
        yield (
            f"Their weights add up to {rows.weights.total:,.2f}; they are worth {worth:,.0f} samples of equal weights "
            f"(Kish), a design effect of {rows.samples / max(worth, 1.0):.3g}."
        )


def _say_model(report: RunReport) -> Iterator[str]:
    if report.model is None:
        return
    states = report.model.states
    agreement = report.model.agreement
    if agreement is None:
        yield (
            f"How much of the dependence between pairs the model explains is not measured: it has "
            f"{report.model.model.schema.n_levels:,} levels, and pairs are compared up to {MAX_COMPARED_LEVELS:,}."
        )
    else:
        yield agreement.sentence
    if report.model.disagreement:
        yield f"There are {report.model.disagreement}."
    elif states:
        sizes = (
            f", from {as_percent(states[-1].prior)} to {as_percent(states[0].prior)} of the samples"
        )
        yield f"The model has {as_count(len(states), 'latent state')}{sizes if states[1:] else ''}."
    else:
        rungs = [RungFit.from_json(each) for each in report.model.model.origin["stack"]]
        named = ", ".join(f"{each.name} {as_percent(each.weight)}" for each in rungs)
        yield (
            f"The model is a mixture of {as_count(len(rungs), 'model')} for answers ({named}); model.classes = 3 adds "
            "classes to read."
        )
    scores = report.scores
    if scores is not None:
        means = scores.means
        better = sum(each.is_better for each in scores.variables)
        yield (
            f"It was asked {as_count(int(means['hidden_cells']), 'answer')} that were hidden from it, and guessed "
            f"{as_percent(means['accuracy'], 1)} of them right; always guessing the most frequent level of each "
            f"variable gets {as_percent(means['baseline_accuracy'], 1)}."
        )
        if scores.assessed:
            few = (
                " with hidden answers enough to judge"
                if scores.assessed != scores.variables
                else ""
            )
            yield (
                f"It predicts {better} of {as_count(len(scores.assessed), 'variable')}{few} better than the variable "
                "alone, beyond chance."
            )
        else:
            yield "The hidden answers are too few to judge its variables one by one."
        yield _say_calibration(scores, agreement)
    if report.model.pairs:
        pair = report.model.pairs[0]
        yield f"The two variables that go together most are {pair.variables[0]} and {pair.variables[1]}."


def _say_calibration(scores: ScoreReport, agreement: PairAgreement | None) -> str:
    apart, by_chance = scores.calibration_error, scores.calibration_by_chance
    off = f"on average {100 * apart:.1f} percentage points off what came true"
    if apart < 0.02 and (agreement is None or not agreement.is_close):
        pairs = "were not compared" if agreement is None else "depart from the counts"
        return f"Given all other answers, its probabilities are {off}; those of pairs {pairs}."
    if apart < 0.02:
        return f"Its probabilities can be believed: {off}."
    if apart < 2 * by_chance:
        return f"Its probabilities are {off}, which of so few answers may be chance."
    return f"Its probabilities are {'roughly right' if apart < 0.05 else 'not to be relied on'}: {off}."


def _say_changes(report: RunReport) -> Iterator[str]:
    before, record = report.before, report.record
    if before is None:
        yield "There is no earlier run to compare it with."
        return
    then, now = (RunFacts(each.facts).account or DatasetAccount() for each in (before, record))
    step = now.rows_in - then.rows_in
    change = (
        "as many rows"
        if step == 0
        else f"{as_count(abs(step), 'row')} {'more' if step > 0 else 'fewer'}"
    )
    said = f"Against run {before.number} it had {change}"
    yield said + "."
    today = report.gate.assessed.get("today")
    if today is not None:
        yield (
            f"On the same hidden answers its model is {_VERDICTS[today.decision]} the model that "
            f"was live ({today.found.gain:+.3f} ± {today.found.standard_error:.3f} nats per answer)."
        )
    if report.changes is not None and report.changes.variables:
        moved = [
            each for each in report.changes.variables if each.total_variation > 2 * each.by_chance
        ]
        if moved:
            yield (
                f"{as_count(len(moved), 'variable')} moved beyond chance, {moved[0].variable} the most "
                f"(total variation {moved[0].total_variation:.2f})."
            )
        elif np.any([each.total_variation > 0 for each in report.changes.variables]):
            yield "No distribution moved beyond chance."
