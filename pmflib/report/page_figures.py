"""Which figures the page of a run has, and what each says to who does not see it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pmflib.plots.data_plots import MOST_BARS, plot_missingness, plot_support
from pmflib.plots.drawing import Axes
from pmflib.plots.fit_plots import plot_passes, plot_ranks
from pmflib.plots.model_plots import plot_associations, plot_states
from pmflib.plots.score_plots import plot_calibration, plot_confusion_matrix, plot_gains
from pmflib.plots.worker_plots import plot_accuracies
from pmflib.report.data_facts import DataFacts
from pmflib.report.figures import draw_figure, size_bars
from pmflib.report.label_facts import LabelFacts
from pmflib.report.model_facts import ModelFacts, ScoreFacts, VariableScore
from pmflib.report.run_facts import RunReport
from pmflib.report.sentences import count, percent
from pmflib.selection.comparison import Comparison, format_setting

GAINS_SHOWN = 30
"""Variables up to which the gain of each is drawn; of more, the largest gains and the smallest."""
STATES_SHOWN = 24
"""States up to which the figure of states is drawn: a wider one could not be read."""
PAIRS_SHOWN = 15
"""Pairs that go together most that are drawn."""
CONFUSED = 15
"""Levels of a target up to which its confusion matrix is drawn."""


def draw_figures(report: RunReport) -> dict[str, str]:
    """Draw the figures of a page: SVG by name; those that there is nothing for are left out.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    figures = dict(_draw_data(report.data))
    if report.model is not None:
        figures |= _draw_model(report.model, report.data)
    if report.scores is not None:
        figures |= _draw_scores(report.scores)
    if report.labels is not None:
        figures |= _draw_labels(report.labels)
    return figures


def _draw_labels(found: LabelFacts) -> dict[str, str]:
    names = [name for name, _ in found.classes]
    figures = {
        "skills": draw_figure(
            "skills",
            "How good the workers are",
            f"Accuracy of {count(len(found.workers), 'worker')} by how many labels each gave; always giving the most "
            f"frequent class would be right {percent(found.chance)}.",
            lambda ax: plot_accuracies(found.n_labels, found.accuracy, found.chance, ax=ax),
            (6.6, 3.4),
        )
    }
    if len(names) <= CONFUSED:
        figures["worker-confusion"] = draw_figure(
            "worker-confusion",
            "Which labels workers give to tasks of each class",
            f"True class by row and label by column, mean over {count(len(found.workers), 'worker')}.",
            lambda ax: plot_confusion_matrix(
                found.confusion, names, rows="true class", columns="label given", ax=ax
            ),
            (3.0 + 0.7 * len(names), 1.4 + 0.42 * len(names)),
        )
    return figures


def _draw_data(data: DataFacts) -> Iterator[tuple[str, str]]:
    variables = data.variables
    if not variables:
        return
    shares = np.array([each.missing for each in variables])
    worst = variables[int(shares.argmax())]
    many = len(variables) > MOST_BARS
    yield (
        "missingness",
        draw_figure(
            "missingness",
            "Missing answers by variable",
            f"Share of the samples without an answer, {count(len(variables), 'variable')}. Most are missing of "
            f"{worst.name}, {percent(worst.missing)}; the median variable lacks {percent(float(np.median(shares)))}.",
            lambda ax: plot_missingness([each.name for each in variables], shares, ax=ax),
            (6.6, 2.6) if many else size_bars(len(variables)),
        ),
    )
    if data.n_pairs:
        supports = data.pair_supports
        yield (
            "support",
            draw_figure(
                "support",
                "Samples behind each pair of variables",
                f"Histogram of {count(data.n_pairs, 'pair')} by how many samples hold both variables: from "
                f"{supports.min():,} to {supports.max():,}, median {np.median(supports):,.0f}.",
                lambda ax: plot_support(data.support, ax=ax),
                (6.6, 2.6),
            ),
        )


def _draw_model(learnt: ModelFacts, data: DataFacts) -> dict[str, str]:
    figures = {}
    for place, comparison in enumerate(learnt.rank_comparisons):
        name = f"ranks-{place}"
        chosen = format_setting(comparison.chosen.settings["rank"])
        figures[name] = draw_figure(
            name,
            f"Ranks that were compared, by held-out {comparison.unit}s",
            f"How far below the best each rank is; {chosen} was chosen.",
            partial(_draw_ranks, comparison),
            (6.6, 2.9),
        )
    if passes := learnt.facts.get("log_likelihood_per_row"):
        held_out, best = learnt.facts.get("held_out_per_row", ()), learnt.facts.get("best_pass")
        figures["convergence"] = draw_figure(
            "convergence",
            "Log-likelihood by pass of EM",
            f"Over {count(len(passes), 'pass', 'passes')}, the log-likelihood of the training samples rose from "
            f"{passes[0]:.3f} to {passes[-1]:.3f} nats per sample.",
            lambda ax: plot_passes(passes, held_out, best, ax=ax),
            (6.6, 2.9),
        )
    if learnt.model.rank <= STATES_SHOWN:

        def draw_states(ax: Axes) -> None:
            plot_states(learnt.model, descriptions=learnt.states, ax=ax)
            n_rows = len(ax.get_yticklabels())
            ax.figure.set_size_inches(3.2 + 0.62 * learnt.model.rank, 1.1 + 0.26 * max(n_rows, 1))

        figures["states"] = draw_figure(
            "states",
            "What distinguishes the latent states",
            "A row per level and a column per state; the list of each state below says the same in words.",
            draw_states,
            (6.6, 4.0),
        )
    if learnt.pairs:
        first = learnt.pairs[0]
        n_pairs = min(PAIRS_SHOWN, len(learnt.pairs))
        figures["associations"] = draw_figure(
            "associations",
            "Variables that go together most",
            f"Mutual information of {count(n_pairs, 'pair')}; the most, {first.information:.3f} nats, "
            f"have {first.variables[0]} and {first.variables[1]}.",
            lambda ax: plot_associations(learnt.associations, most=n_pairs, ax=ax),
            size_bars(n_pairs),
        )
    return figures


def _draw_ranks(comparison: Comparison, ax: Axes) -> None:
    plot_ranks(comparison, ax=ax)


def choose_gains(scores: list[VariableScore]) -> list[VariableScore]:
    """Scores that are drawn: all of few variables; of many, the largest gains and the smallest."""
    if len(scores) <= GAINS_SHOWN:
        return scores
    return scores[: 2 * GAINS_SHOWN // 3] + scores[-(GAINS_SHOWN // 3) :]


def _draw_scores(scores: ScoreFacts) -> dict[str, str]:
    figures = {}
    if shown := choose_gains(scores.judged):
        figures["gains"] = draw_figure(
            "gains",
            "Gain over single variables, by variable",
            f"The most is gained for {shown[0].name}, {shown[0].gain:.3f} nats per hidden answer; the least for "
            f"{shown[-1].name}, {shown[-1].gain:.3f}.",
            lambda ax: plot_gains(
                [each.name for each in shown],
                [each.gain for each in shown],
                [each.error for each in shown],
                ax=ax,
            ),
            size_bars(len(shown)),
        )
    figures["calibration"] = draw_figure(
        "calibration",
        "Calibration over all hidden answers",
        "How often the most probable level was true, by how probable it was said to be: "
        f"{100 * scores.calibration_error:.1f} percentage points apart on average.",
        lambda ax: plot_calibration(scores.calibration, ax=ax),
        (4.6, 4.2),
    )
    if scores.target.get("rows"):
        figures |= _draw_target(scores.target)
    return figures


def _draw_target(target: dict[str, Any]) -> dict[str, str]:
    name, levels = target["target"], target["levels"]
    figures = {
        "target-calibration": draw_figure(
            "target-calibration",
            f"Calibration of the target {name}",
            "How often the most probable level was true, by how probable it was said to be.",
            lambda ax: plot_calibration(target["calibration"], ax=ax),
            (4.6, 4.2),
        )
    }
    if levels is not None and len(levels) <= CONFUSED:
        figures["target-confusion"] = draw_figure(
            "target-confusion",
            f"Confusion of the target {name}",
            f"True level by row and predicted level by column, of {count(target['rows'], 'sample')}.",
            lambda ax: plot_confusion_matrix(target["confusion"], levels, ax=ax),
            (2.6 + 0.6 * len(levels), 1.4 + 0.42 * len(levels)),
        )
    return figures
