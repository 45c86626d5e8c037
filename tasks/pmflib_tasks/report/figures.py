"""Figures of the page of a run, as SVG with the colours of the page, with descriptions in words."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pmflib.base.comparison import Comparison, format_setting
from pmflib.base.display import drawing
from pmflib.base.display.drawing import Axes, plot_calibration, plot_gains
from pmflib.base.errors import PmfError
from pmflib.base.texts import show_text
from pmflib.base.wald import LEVEL
from pmflib.counts.figures import MOST_BARS, plot_missingness, plot_support
from pmflib.fits.figures import plot_passes, plot_ranks, plot_residual_pairs
from pmflib.model.figures import plot_associations, plot_profiles, plot_states
from pmflib_tasks.report.data_report import DataReport
from pmflib_tasks.report.model_report import ModelReport, ScoreReport, VariableScore
from pmflib_tasks.report.run_report import RunReport
from pmflib_tasks.sections import Drawing
from pmflib_tasks.wording import as_count, as_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DARK = {
    drawing.PAPER: "#12171d",
    drawing.INK: "#e3e8ee",
    drawing.FAINT: "#8794a3",
    drawing.MAIN: "#5aa5e0",
    drawing.SECOND: "#e08a45",
    **dict(
        zip(
            drawing.GROUPS[2:],
            ("#62b384", "#b48acf", "#dd6f78", "#72bfc4", "#c4ad4a", "#9aa0a8"),
            strict=True,
        )
    ),
    "#a6501a": "#d9874b",
    "#cf8a55": "#99582a",
    "#ebc8a8": "#563a26",
    "#f1f0ec": "#232b34",
    "#d5e3ef": "#243747",
    "#b5d2ea": "#23435d",
    "#8fbde0": "#26547a",
    "#6ea8d6": "#2b6799",
    "#4a8ec6": "#4385bb",
    "#2a74b4": "#62a9e0",
}
"""Colours of figures on a dark screen, by their colour on a light one."""
_WIDTH = 6.6

_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": drawing.INK,
    "axes.edgecolor": drawing.FAINT,
    "axes.labelcolor": drawing.INK,
    "xtick.color": drawing.INK,
    "ytick.color": drawing.INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.facecolor": "none",
    "font.size": 10,
    # overrides the settings of a user
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
}


def draw_figure(planned: Drawing) -> str:
    """Draw a figure as SVG for a page, deterministically.

    Returns
    -------
    An element ``svg`` with the role of an image, with selectable text and colours from variables of the style sheet.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    with _open_figure(planned) as figure:
        return _write_svg(figure, planned.name, planned.title, planned.description)


@contextmanager
def _open_figure(planned: Drawing) -> Iterator[Figure]:
    """Draw a figure in the style of the page, regardless of a user's settings."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PmfError(
            "the report takes matplotlib, which is not installed; pip install 'pmflib[plot]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE | {"svg.hashsalt": planned.name})
        figure = Figure(figsize=planned.size, layout="constrained")
        planned.draw(figure.subplots())
        yield figure


def _write_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Write a figure as an inline SVG element."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(written.getvalue())
    # HTML uses no namespace prefixes
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for child in [each for each in root if each.tag == "metadata"]:
        root.remove(child)
    _rename_ids(root, name)
    for element in root.iter():
        if style := element.get("style"):
            element.set("style", _follow_page(style))
    width = root.get("viewBox", "0 0 1 1").split()[2]
    root.attrib = {
        "viewBox": root.get("viewBox", ""),
        "style": f"max-width: {float(width) / 72:.2f}in",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
    }
    for tag, text in (("desc", description), ("title", title)):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = show_text(text)
        root.insert(0, element)
    return ET.tostring(root, encoding="unicode")


def _rename_ids(root: ET.Element, name: str) -> None:
    """Drop unreferenced ids, and prefix the others with the name of the figure."""
    text = ET.tostring(root, encoding="unicode")
    used = {*re.findall(r'href="#([^"]+)"', text), *re.findall(r"url\(#([^)]+)\)", text)}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                if value in used:
                    element.set(key, f"{name}-{value}")
                else:
                    del element.attrib[key]
            elif key == "href":
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))


def _follow_page(style: str) -> str:
    """Replace fonts and colours by those of the page."""
    style = re.sub(r"font: (?:[\w ]* )?([\d.]+)px [^;]+", r"font-size: \1px", style)
    return re.sub(r"#[0-9a-f]{6}", lambda found: _name_colour(found[0]), style)


def _name_colour(colour: str) -> str:
    return f"var({name_variable(colour)})" if colour in DARK else colour


def name_variable(colour: str) -> str:
    """Name the variable of the style sheet for a colour of figures."""
    return f"--plot-{colour[1:]}"


def size_bars(n_bars: int) -> tuple[float, float]:
    """Compute the size of a chart of horizontal bars."""
    return _WIDTH, 0.8 + 0.25 * max(n_bars, 1)


GAINS_SHOWN = 30
"""Maximum number of gains drawn; of more variables, the largest and the smallest gains are."""
STATES_SHOWN = 24
"""Maximum number of states for which their figure is drawn; a wider one would be illegible."""
PAIRS_SHOWN = 15
"""Maximum number of associated pairs drawn."""


def draw_figures(report: RunReport) -> dict[str, str]:
    """Draw the figures of a page as SVG, by name; figures without data are left out.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    return {name: draw_figure(each) for name, each in plan_figures(report).items()}


def save_figures(report: RunReport, folder: Path, kind: str = "png") -> list[Path]:
    """Save the figures of a page as files, each by its name.

    Parameters
    ----------
    report
        As for `draw_figures`.
    folder
        Created if absent; existing files are replaced.
    kind
        Format of matplotlib: "png", "svg", "pdf".

    Returns
    -------
    Their paths. The same report gives the same images.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or a file cannot be written.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, each in plan_figures(report).items():
            paths.append(folder / f"{name}.{kind}")
            with _open_figure(each) as figure:
                figure.savefig(paths[-1], format=kind, dpi=150, facecolor=drawing.PAPER)
    except OSError as error:
        raise PmfError(f"figures cannot be written to {str(folder)!r} ({error})") from error
    return paths


def plan_figures(report: RunReport) -> dict[str, Drawing]:
    """Plan the figures that have data, by name."""
    figures = dict(_draw_data(report.data))
    if report.model is not None:
        figures |= _draw_model(report.model, report.data)
    if report.scores is not None:
        figures |= _draw_scores(report.scores)
    return figures | {each.name: each for part in report.parts for each in part.figures}


def _draw_data(data: DataReport) -> Iterator[tuple[str, Drawing]]:
    variables = data.variables
    if not variables:
        return
    shares = np.array([each.missing for each in variables])
    worst = variables[int(shares.argmax())]
    many = len(variables) > MOST_BARS
    yield (
        "missingness",
        Drawing(
            "missingness",
            "Missing answers by variable",
            f"Share of the samples without an answer, {as_count(len(variables), 'variable')}. Most are missing of "
            f"{worst.name}, {as_percent(worst.missing)}; the median variable lacks "
            f"{as_percent(float(np.median(shares)))}.",
            lambda ax: plot_missingness([each.name for each in variables], shares, ax=ax),
            (6.6, 2.6) if many else size_bars(len(variables)),
        ),
    )
    if data.n_pairs:
        supports = data.pair_supports
        yield (
            "support",
            Drawing(
                "support",
                "Samples behind each pair of variables",
                f"Histogram of {as_count(data.n_pairs, 'pair')} by how many samples hold both variables: from "
                f"{supports.min():,} to {supports.max():,}, median {np.median(supports):,.0f}.",
                lambda ax: plot_support(data.support, ax=ax),
                (6.6, 2.6),
            ),
        )


def _draw_model(learnt: ModelReport, data: DataReport) -> dict[str, Drawing]:
    figures = {}
    for index, comparison in enumerate(learnt.rank_comparisons):
        name = f"ranks-{index}"
        chosen = format_setting(comparison.chosen.settings["rank"])
        figures[name] = Drawing(
            name,
            f"Ranks that were compared, by held-out {comparison.unit}s",
            f"How far below the best each rank is; {chosen} was chosen.",
            partial(_draw_ranks, comparison),
            (6.6, 2.9),
        )
    if passes := learnt.summary.get("log_likelihood_per_row"):
        held_out, best = learnt.summary.get("held_out_per_row", ()), learnt.summary.get("best_pass")
        figures["convergence"] = Drawing(
            "convergence",
            "Log-likelihood by pass of EM",
            f"Over {as_count(len(passes) - 1, 'pass', 'passes')}, the log-likelihood of the training samples rose from "
            f"{passes[0]:.3f} to {passes[-1]:.3f} nats per sample.",
            lambda ax: plot_passes(passes, held_out, best, ax=ax),
            (6.6, 2.9),
        )
    read = learnt.read
    if read is not None and len(learnt.states) <= STATES_SHOWN:

        def draw_states(ax: Axes) -> None:
            plot_states(read, descriptions=learnt.states, ax=ax)
            n_rows = len(ax.get_yticklabels())
            ax.figure.set_size_inches(3.2 + 0.62 * read.rank, 1.1 + 0.26 * max(n_rows, 1))

        figures["states"] = Drawing(
            "states",
            "What distinguishes the latent states",
            "A row per level and a column per state; the list of each state below says the same in words.",
            draw_states,
            (6.6, 4.0),
        )
    if read is not None and 2 <= len(learnt.states) <= len(drawing.GROUPS):

        def draw_profiles(ax: Axes) -> None:
            plot_profiles(read, ax=ax)
            ax.figure.set_size_inches(6.8, 1.2 + 0.3 * len(ax.get_yticklabels()))

        figures["profiles"] = Drawing(
            "profiles",
            "Profiles of the latent states",
            "How probable each level is in each state: a row per level and a mark per state; of two levels the second.",
            draw_profiles,
            (6.8, 4.0),
        )
    if listed := [each for each in learnt.residual_pairs if each["degrees"]]:
        first_pair = " and ".join(listed[0]["variables"])
        figures["residuals"] = Drawing(
            "residuals",
            "Pairs that depend on each other within states",
            f"Statistic per degree of freedom of {as_count(len(listed), 'pair')}, the most surely dependent first: "
            f"{first_pair}. Chance leaves 1.",
            lambda ax: plot_residual_pairs(
                [tuple(each["variables"]) for each in listed],
                [each["statistic"] / each["degrees"] for each in listed],
                [each["adjusted"] < LEVEL for each in listed],
                ax=ax,
            ),
            size_bars(len(listed)),
        )
    if learnt.pairs:
        first = learnt.pairs[0]
        n_pairs = min(PAIRS_SHOWN, len(learnt.pairs))
        figures["associations"] = Drawing(
            "associations",
            "Variables that go together most",
            f"Mutual information of {as_count(n_pairs, 'pair')}; the most, {first.information:.3f} nats, "
            f"have {first.variables[0]} and {first.variables[1]}.",
            lambda ax: plot_associations(learnt.associations, most=n_pairs, ax=ax),
            size_bars(n_pairs),
        )
    return figures


def _draw_ranks(comparison: Comparison, ax: Axes) -> None:
    plot_ranks(comparison, ax=ax)


def choose_gains(scores: list[VariableScore]) -> list[VariableScore]:
    """Choose the scores to draw: all of few variables; of many, the largest and the smallest gains."""
    if len(scores) <= GAINS_SHOWN:
        return scores
    return scores[: 2 * GAINS_SHOWN // 3] + scores[-(GAINS_SHOWN // 3) :]


def _draw_scores(scores: ScoreReport) -> dict[str, Drawing]:
    figures = {}
    if shown := choose_gains(scores.assessed):
        figures["gains"] = Drawing(
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
    figures["calibration"] = Drawing(
        "calibration",
        "Calibration over all hidden answers",
        "How often the most probable level was true, by how probable it was said to be: "
        f"{100 * scores.calibration_error:.1f} percentage points apart on average.",
        lambda ax: plot_calibration(scores.calibration, ax=ax),
        (4.6, 4.2),
    )
    return figures
