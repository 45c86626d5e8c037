"""A small pipeline whose data are hostile to a page, run twice."""

import numpy as np

import pmflib as pmf
from pmflib_flows.etl import etl
from tests.pipelines import draw_codes

EVIL = "<script>alert('v')</script>"
LEVEL = "<img src=x onerror=alert(1)>$x$"
SCHEMA = pmf.Schema(
    (
        pmf.Variable(EVIL, (LEVEL, "no", "\u202eperhaps"), None),
        pmf.Variable("mood", ("1", "2", "3", "4"), (1.0, 2.0, 3.0, 4.0)),
        pmf.Variable("$cost & time$", ("low", "high")),
        *(pmf.Variable(f"q{j}", ("1", "2", "3"), (1.0, 2.0, 3.0)) for j in range(6)),
    )
)
RAGGED = "u1;</code><script>alert(2)</script>"


def write_night(folder, name, seed, n_rows=700):
    """Write a file of rows, two of which do not fit."""
    codes = draw_codes(n_rows, SCHEMA.cardinalities, seed=seed, missing=0.1)
    lines = [";".join(SCHEMA.names)]
    for row in codes.tolist():
        cells = [
            "" if code < 0 else variable.levels[code]
            for code, variable in zip(row, SCHEMA.variables, strict=True)
        ]
        lines.append(";".join(cells))
    lines += [RAGGED, ";".join(["never heard of", *["1"] * (len(SCHEMA.names) - 1)])]
    (folder / "log" / name).write_text("\n".join(lines) + "\n", "utf-8")


def run_two_nights(folder):
    """Run a pipeline twice; gives its configuration file."""
    (folder / "log").mkdir()
    SCHEMA.save(folder / "schema.json")
    config = folder / "pipeline.toml"
    config.write_text(
        'name = "hostile"\n[source]\npath = "log"\nlayout = "wide"\ndelimiter = ";"\n'
        "[model]\nrank = 3\n[em]\nmax_passes = 30\n[gate]\nleast_cells = 20\n"
    )
    for night in range(2):
        write_night(folder, f"{night}.csv", night)
        etl.fn(str(config))
    return config


def count_levels():
    return int(np.sum(SCHEMA.cardinalities))
