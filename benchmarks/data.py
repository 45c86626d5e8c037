"""Where the data sets are that programs read unless a path is given; README.md names the public source of each."""

from pathlib import Path

DATA = Path(__file__).parents[2] / "shared" / "data"
