"""Options shared by a function and a command, as frozen dataclasses.

The metadata of each field contains its help text, which the command line shows.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, text: str, **more: Any) -> Any:
    """Define a field of an options object with its default and help text.

    Parameters
    ----------
    default
        Default value.
    text
        Help text.
    more
        Further settings of the command line, as used by `pmflib_flows.option_objects.takes_options`.
    """
    return field(default=default, metadata={"help": text, **more})
