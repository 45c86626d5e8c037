"""The page of a run: an HTML file without external resources."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmflib.base.display.drawing import write_text
from pmflib.base.display.summary import format_seconds
from pmflib.base.errors import PmfError
from pmflib.base.texts import mask_secrets, show_text
from pmflib.cluster.memory import format_bytes
from pmflib.fits.pair_agreement import MAX_COMPARED_LEVELS
from pmflib.store.objects.local_folder import replace_file
from pmflib_tasks.gate.run_differences import flatten
from pmflib_tasks.report.data_report import REASONS
from pmflib_tasks.report.figures import (
    DARK,
    STATES_SHOWN,
    choose_gains,
    draw_figures,
    name_variable,
)
from pmflib_tasks.report.model_report import LEAST_CELLS
from pmflib_tasks.report.run_report import RunReport
from pmflib_tasks.report.sentences import (
    list_troubles,
    summarise_run,
    summarise_states,
)
from pmflib_tasks.wording import as_count, as_percent, as_sentence

if TYPE_CHECKING:
    from jinja2 import Environment

CARDS = 12
"""Number of states listed at first; the rest can be unfolded."""
ROWS_SHOWN = 10
"""Number of rows of a long table shown at first; the rest can be unfolded."""
PARTS = ("data", "model", "scores", "quality")
"""Parts of every page; the sections of features stand at their ends, or in parts of their own."""
NOTHING = "\N{EN DASH}"
"""Text of an absent value in tables."""


def render_page(report: RunReport) -> str:
    """Write the page of a run.

    Parameters
    ----------
    report
        Report from `pmflib_tasks.report.run_report.gather_report`.

    Returns
    -------
    HTML, the same for the same report. It loads no external resources, and escapes texts of the data.

    Raises
    ------
    PmfError
        If jinja2 or matplotlib is not installed.
    """
    environment = _open_environment()
    figures = draw_figures(report)
    style, script = (_read(name) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    palettes = [_list_colours({each: each for each in DARK}), _list_colours(DARK)]
    return environment.get_template("page.html.jinja").render(
        report=report,
        data=report.data,
        learnt=report.model,
        scores=report.scores,
        parts=report.parts,
        sections=report.sections,
        own_parts=[
            name
            for name in dict.fromkeys(each.part for each in report.sections)
            if name not in PARTS
        ],
        title=report.pipeline.removesuffix("@labels"),
        figures=figures,
        sentences=summarise_run(report),
        states=summarise_states(report, CARDS),
        troubles=list_troubles(report),
        gains=[] if report.scores is None else choose_gains(report.scores.assessed),
        reasons=REASONS,
        cards=CARDS,
        rows_shown=ROWS_SHOWN,
        states_shown=STATES_SHOWN,
        least_cells=LEAST_CELLS,
        most_compared=MAX_COMPARED_LEVELS,
        options=flatten(report.record.options),
        style=style,
        script=script,
        script_digest=digest,
        palettes=palettes,
    )


def write_page(report: RunReport, path: Path) -> int:
    """Write the page of a run to a file, which is replaced; return its size in bytes.

    Raises
    ------
    PmfError
        If the file cannot be written, or jinja2 or matplotlib is not installed.
    """
    content = render_page(report).encode("utf-8", "backslashreplace")
    try:
        replace_file(path, content)
    except OSError as error:
        raise PmfError(f"the report cannot be written to {str(path)!r} ({error})") from error
    return len(content)


def _open_environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise PmfError(
            "the report takes jinja2, which is not installed; pip install 'pmflib[pipeline]'"
        ) from error
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # texts may come from data: control characters are escaped, line ends included
        finalize=_finalize,
    )
    environment.filters |= {
        "percent": as_percent,
        "number": _write_number,
        "seconds": format_seconds,
        "size": lambda size: NOTHING if size is None else format_bytes(size),
        "short": write_text,
        "sentence": as_sentence,
        "masked": mask_secrets,
        "count": as_count,
    }
    return environment


def _finalize(value: object) -> object:
    return show_text(value) if type(value) is str else value


def _read(name: str) -> str:
    return files("pmflib_tasks.report").joinpath(name).read_text("utf-8")


def _list_colours(palette: dict[str, str]) -> str:
    return " ".join(f"{name_variable(name)}: {colour};" for name, colour in palette.items())


def _write_number(value: Any, digits: int = 3, signed: bool = False) -> str:
    """Format a number: integers with grouped thousands, others with some digits, None as a dash."""
    if value is None:
        return NOTHING
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{value:+,.0f}" if signed else f"{value:,.0f}"
    return f"{value:+,.{digits}f}" if signed else f"{value:,.{digits}f}"
