"""Figures of the page: those of `pmflib.plots`, as SVG that stands in a page and follows its colours."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import TYPE_CHECKING

from pmflib.errors import PmfError
from pmflib.plots import drawing
from pmflib.plots.drawing import Axes
from pmflib.safe_text import show_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK = {
    drawing.PAPER: "#12171d",
    drawing.INK: "#e3e8ee",
    drawing.FAINT: "#8794a3",
    drawing.MAIN: "#5aa5e0",
    drawing.SECOND: "#e08a45",
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
"""What each colour of a figure becomes on a dark screen."""
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
    # not what a user has set for plots of their own
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
}


def draw_figure(
    name: str,
    title: str,
    description: str,
    draw: Callable[[Axes], object],
    size: tuple[float, float],
) -> str:
    """Draw a figure as SVG for a page; the same figure gives the same text.

    Parameters
    ----------
    name
        Starts the ids in the figure, so that no two figures of a page share one: letters and dashes.
    title, description
        What the figure is, and what it shows, for who does not see it.
    draw
        Draws on the Axes that it is given.
    size
        Width and the other side, inches.

    Returns
    -------
    An element ``svg`` with the role of an image; its texts are text, and its colours variables of the style sheet.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PmfError(
            "the report takes matplotlib, which is not installed; pip install 'pmflib[plot]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE | {"svg.hashsalt": name})
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        return _write_svg(figure, name, title, description)


def _write_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """Text of a figure, without what only a file of its own needs."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(written.getvalue())
    _drop_namespaces(root)
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


def _drop_namespaces(root: ET.Element) -> None:
    """Name elements and attributes as a page does."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}


def _rename_ids(root: ET.Element, name: str) -> None:
    """Drop ids that nothing refers to, and start the others with the name of the figure."""
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
    """Take fonts and colours from the page."""
    style = re.sub(r"font: (?:[\w ]* )?([\d.]+)px [^;]+", r"font-size: \1px", style)
    return re.sub(r"#[0-9a-f]{6}", lambda found: _name_colour(found[0]), style)


def _name_colour(colour: str) -> str:
    return f"var({name_variable(colour)})" if colour in DARK else colour


def name_variable(colour: str) -> str:
    """Variable of the style sheet that holds a colour of figures."""
    return f"--plot-{colour[1:]}"


def size_bars(n_bars: int) -> tuple[float, float]:
    """Size of a chart with so many bars, one below the other."""
    return _WIDTH, 0.8 + 0.25 * max(n_bars, 1)
