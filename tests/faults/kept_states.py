"""The command ``pmf`` in a process that keeps a copy of each state of its passes that it writes.

Its first argument is the folder for the copies, which are numbered in the order in which they were written.
"""

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Keep the states of the command that the other arguments are."""
    from pmflib_flows.__main__ import main as run

    folder = Path(sys.argv.pop(1))
    folder.mkdir()
    numbers = itertools.count()

    def keep(event: str, words: tuple[Any, ...]) -> None:
        # a state is complete before it takes the place of the one before
        if event == "os.rename" and Path(os.fsdecode(words[1])).name.startswith("state"):
            shutil.copyfile(words[0], folder / f"{next(numbers):03}.npz")

    sys.addaudithook(keep)
    run()


if __name__ == "__main__":
    main()
