"""Parts that commands share: the terminal, common options, progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pmflib.base.texts import show_text

if TYPE_CHECKING:
    from pmflib_tasks.config import PipelineConfig


class OutputClosedError(Exception):
    """Standard output was closed by its reader."""


class SafeConsole(Console):
    """Console that escapes all text, so that data cannot act as escape sequences, Rich markup or emoji codes.

    Texts and cells of tables are escaped by `show_text`, so that a string is one line. Other content is escaped again
    before it is written, except for line ends.
    """

    def __init__(self, **options: Any) -> None:
        # lines are wrapped by the terminal, if at all, so that output in a file can be searched and copied
        super().__init__(markup=False, emoji=False, highlight=False, soft_wrap=True, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return an escaped string as text."""
        return super().render_str(show_text(text), **(options | {"markup": False, "emoji": False}))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield escaped segments, except for Rich's own control segments."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                text = "\n".join(map(show_text, segment.text.split("\n")))
                yield Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """Continue silently if nobody reads the progress; stop if nobody reads the results."""
        if not self.stderr:
            raise OutputClosedError
        self.quiet = True


out = SafeConsole()
err = SafeConsole(stderr=True)

MESSAGE_BYTES = 2000
"""Maximum number of bytes shown of an error or a warning, however long the data in it."""
ENDING_BYTES = 600
"""Number of bytes kept at the end of a longer message, where the remedy is."""


def cut_message(lines: Sequence[str]) -> list[str]:
    """Return lines for the terminal, without their middle part if they are too long."""
    shown = "\n".join(map(show_text, lines))
    content = shown.encode("utf-8", "backslashreplace")
    if len(content) <= MESSAGE_BYTES:
        return shown.split("\n")
    gap = f" ... {len(content) - MESSAGE_BYTES:,} bytes more ... "
    start = content[: MESSAGE_BYTES - ENDING_BYTES - len(gap)].decode("utf-8", "ignore")
    return f"{start}{gap}{content[-ENDING_BYTES:].decode('utf-8', 'ignore')}".split("\n")


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ConfigPath = Annotated[Path, typer.Argument(help="Pipeline configuration, pipeline.toml.")]


def load_pipeline(path: Path) -> PipelineConfig:
    """Load a pipeline configuration; imports are delayed so that ``--help`` is fast."""
    from pmflib_tasks.config import load_config

    return load_config(path)


@contextmanager
def progress_shown(as_json: bool) -> Iterator[None]:
    """Show progress while a flow runs, unless the output is JSON."""
    from pmflib.base.display.progress_bars import draw_progress

    with draw_progress(SafeConsole(stderr=True, quiet=as_json)):
        yield


def print_json(value: Any) -> None:
    """Print JSON on standard output, with escapes for characters that its encoding cannot represent."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(value, indent=1)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise OutputClosedError from None
