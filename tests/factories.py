"""What many tests write again: codes, label logs, and commands called in the process of the test."""

import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import configure_method, describe_options


def draw_two_states(n_rows, n_variables):
    """Codes of two levels: a hidden coin decides which of them is likely."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 2, (n_rows, 1))
    codes = np.where(rng.random((n_rows, n_variables)) < 0.85, state, 1 - state).astype(np.int8)
    return pmf.Codes(codes)


def write_label_log(path, table, rows=slice(None)):
    """Write rows of a label log, columns by name, as CSV with names for its codes."""
    lines = ["task,worker,label"]
    columns = zip(*(table[name][rows] for name in ("task", "worker", "label")), strict=True)
    lines += [f"t{task:03},w{worker:02},c{label}" for task, worker, label in columns]
    path.write_text("\n".join(lines) + "\n")


def check_table(table):
    """Check a table of methods: names are keys, functions are there, and defaults of options within their limits."""
    for name, method in table.items():
        assert method.name == name
        assert callable(method.load())
        assert method.description
        described = describe_options(method)
        given = {option: default for option, (default, _) in described.items()}
        assert configure_method(table, {"name": name, **given}) == configure_method(table, name)
        assert all(text for _, text in described.values())


def call_command(patch, *words):
    """Call ``pmf`` with these words, in this process; its exit code."""
    # it loads all commands, which few tests need
    from pmflib_flows.cli import main

    patch.setattr(sys, "argv", ["pmf", *map(str, words)])
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0


def run_command(folder, *words, code=0):
    """Standard output of a command ``pmf`` that runs in a folder; of one that is to fail, its standard error."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        found = call_command(patch, *words)
    assert found == code, err.getvalue()
    return (err if code else out).getvalue()


def same_fit(one, other):
    """Whether two fits are equal to the last bit, and in what they say."""
    from pmflib.model import digest_model

    return digest_model(one.model) == digest_model(other.model) and all(
        getattr(one, name) == getattr(other, name)
        for name in ("loss_history", "held_out", "log_likelihoods", "comparisons", "notes")
    )
