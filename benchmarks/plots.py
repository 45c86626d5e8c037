"""Figures of what benchmarks print: panels of curves with error bars, by matplotlib."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".png", ".svg")
# panels in a row of the figure, and the size of one in inches
_ACROSS = 2
_WIDTH, _HEIGHT = 5.5, 3.8
_TICKS = 12


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; errors are half the length of a bar, None draws no bars."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    errors: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """Curves under one title; dotted lines at the true value of y and at the x that was chosen.

    Where x are few whole numbers, the axis names them and no others.
    """

    title: str
    x_name: str
    y_name: str
    curves: Sequence[Curve]
    truth: float | None = None
    chosen: float | None = None
    whole: bool = False


def add_plot_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --plot; what cannot be drawn is refused before anything runs."""
    parser.add_argument(
        "--plot", type=_check_target, metavar="FILE", help="draw the curves: .png or .svg"
    )


def draw_panels(panels: Sequence[Panel], target: Path) -> None:
    """Write a figure of the panels, x on a logarithmic scale; the same panels give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    across = min(_ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, panel in zip(grid, panels, strict=False):
        for curve in panel.curves:
            axes.errorbar(
                curve.x, curve.y, curve.errors, label=curve.label, marker="o", ms=4, capsize=3
            )
        if panel.truth is not None:
            axes.axhline(panel.truth, color="gray", ls=":", label=f"truth: {panel.truth:g}")
        if panel.chosen is not None:
            axes.axvline(panel.chosen, color="gray", ls=":", label=f"chosen: {panel.chosen:g}")
        axes.set(title=panel.title, xlabel=panel.x_name, ylabel=panel.y_name, xscale="log")
        if panel.whole:
            ticks = thin_ticks([x for curve in panel.curves for x in curve.x])
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
        axes.legend()
    # dates and random names of elements would differ from run to run
    with matplotlib.rc_context({"svg.hashsalt": "pmflib"}):
        figure.savefig(
            target, dpi=120, metadata={"Date": None} if target.suffix == ".svg" else None
        )
    print(f"drawn: {target}")


def thin_ticks(ticks: Sequence[float]) -> list[float]:
    """Those of the ticks, all positive, that have room for a number on a logarithmic axis."""
    kept = sorted(set(ticks))[:1]
    room = (max(ticks) / kept[0]) ** (1 / _TICKS)
    for tick in sorted(set(ticks)):
        if tick > kept[-1] and tick >= kept[-1] * room:
            kept.append(tick)
    return kept


def _check_target(text: str) -> Path:
    target = Path(text)
    if target.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text} ends in neither of {', '.join(SUFFIXES)}")
    if not target.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{target.parent} is no folder; make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise argparse.ArgumentTypeError(
            "drawing takes matplotlib, which is not installed; pip install 'pmflib[bench]'"
        ) from None
    return target
