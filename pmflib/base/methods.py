"""Tables of methods: the name, location, requirements and description of each.

Configuration, command line, docstrings and the argument ``method`` use these tables. A new method is one entry here and
one file with its function.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pmflib.base.errors import PmfError
from pmflib.base.texts import list_near

F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M", bound="Method")


@dataclass(frozen=True)
class Facts:
    """What decides between methods, for the table of the documentation.

    Parameters
    ----------
    source
        Paper and equation, as in docs/notation.md.
    cost
        Operations, for L levels, rank F and T iterations.
    identifiable
        When exact pairs determine the model.
    unobserved
        What happens to pairs of variables without common samples.
    take
        When to use the method.
    """

    source: str
    cost: str
    identifiable: str
    unobserved: str
    take: str


@dataclass(frozen=True)
class Method:
    """A fitting method.

    Parameters
    ----------
    name
        Name used in configurations and calls.
    family
        Family within the table, which determines the calling convention; see the table.
    function
        ``"module:function"``. Imported on first use, and called as its family requires.
    description
        One-line description.
    needs
        One-line requirements on data and memory; empty if there are none in particular.
    options
        ``"module:class"`` of the options, a frozen dataclass; empty if there are none. See
        `pmflib.base.method_options`.
    facts
        What the table of the documentation says of it.
    """

    name: str
    family: str
    function: str
    description: str
    needs: str = ""
    options: str = ""
    facts: Facts | None = None

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        loaded: Callable[..., Any] = load_name(self.function)
        return loaded


def load_name(name: str) -> Any:
    """Import an object given as ``"module:name"``."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def tabulate(*methods: M) -> dict[str, M]:
    """Return methods by name."""
    return {method.name: method for method in methods}


PAIR_METHODS = tabulate(
    Method(
        "auto",
        "choice",
        "pmflib.fits.auto_method:run_auto",
        "several starts and pseudo-counts, compared on held-out folds, then the pairwise composite likelihood; the "
        "notes give the choice and the reason",
        "several folds of counts for the comparison; without them the pseudo-count is the default",
        facts=Facts(
            "this package; the parts as below",
            "several fits of opt",
            "as opt",
            "left out; filled for the start alone",
            "unless there is a reason for another",
        ),
    ),
    Method(
        "spa",
        "solver",
        "pmflib.fits.pair_fits:run_spa",
        "CNMF-SPA, which selects anchor levels by successive projection, without iterating",
        "two variables; at most as many states as levels on the smaller side of a split of the variables",
        options="pmflib.fits.pair_fits:SpaOptions",
        facts=Facts(
            "JP, (3) and Algorithm 2",
            "L² F, once",
            "each state has a level of the second side that occurs in it alone, and the first side has rank F",
            "as if independent; or zero, as published",
            "thousands of levels in seconds, or a start; least exact",
        ),
    ),
    Method(
        "opt",
        "solver",
        "pmflib.fits.pair_fits:run_opt",
        "CNMF-OPT from spa, by closed-form updates of the Kullback-Leibler divergence",
        "two variables; random start if spa cannot fit the rank",
        options="pmflib.fits.pair_fits:OptOptions",
        facts=Facts(
            "JP, (5) and (6)",
            "L² F T",
            "two groups of variables whose factors are both sufficiently scattered, with all pairs between them "
            "observed (JP, Theorem 2)",
            "left out",
            "a fit of pairs without pseudo-counts, or by least squares",
        ),
    ),
    Method(
        "mirror",
        "solver",
        "pmflib.fits.pair_fits:run_mirror",
        "CNMF-OPT from spa as published, by mirror descent; slow",
        "two variables; random start if spa cannot fit the rank",
        options="pmflib.fits.pair_fits:IteratedOptions",
        facts=Facts(
            "JP, (6) and Algorithm 1",
            "L² F T, T about a thousand",
            "as opt",
            "left out",
            "to reproduce the paper",
        ),
    ),
    Method(
        "symnmf",
        "solver",
        "pmflib.fits.pair_fits:run_symnmf",
        "symmetric nonnegative factorisation of the matrix of all pairs",
        "two variables; at most as many states as levels; computes eigenvectors of an n_levels x n_levels matrix",
        options="pmflib.fits.pair_fits:SymnmfOptions",
        facts=Facts(
            "CS, (6), (12) and (13)",
            "L³ and L F² T",
            "the factors of all variables together are sufficiently scattered, with rank F (CS, Proposition 1)",
            "low-rank approximation; independent; or zero",
            "many variables with few levels each; a good start",
        ),
    ),
    Method(
        "pairs",
        "start",
        "pmflib.fits.auto_method:run_pairs",
        "a start for EM: random, followed by a few updates of opt",
        facts=Facts(
            "this package",
            "L² F",
            "does not converge",
            "left out",
            "starts of members of an average",
        ),
    ),
    Method(
        "random",
        "start",
        "pmflib.fits.pair_fits:run_random",
        "a start for EM: the variables' own PMFs with random perturbations",
        facts=Facts(
            "RAND-EM of JP, section V",
            "L F",
            "fits nothing",
            "not used",
            "starts of members of an average",
        ),
    ),
)
"""Methods of `pmflib.fit`, which fit a model to pairwise counts.

Each is called with `PairCounts`, the rank and a random generator, and returns a `SolverResult`. A "choice" compares
other methods and reports its choice. A "solver" fits pairs until convergence; `pmflib.fit` warns if it did not
converge. A "start" gives starting values for EM that depend on the seed.
"""


def select_methods(table: Mapping[str, Method], family: str) -> tuple[str, ...]:
    """Return the names of the methods of a family, in the order of the table."""
    return tuple(name for name, method in table.items() if method.family == family)


MEMBER_START_METHODS = select_methods(PAIR_METHODS, "start")
"""Methods of `pmflib.fit` whose starting values depend on the seed, as required for members of an average."""


def find_method(table: Mapping[str, M], name: str) -> M:
    """Look up a method.

    Parameters
    ----------
    table
        Methods by name.
    name
        Name of the method.

    Raises
    ------
    PmfError
        If there is no method of this name; the message lists the closest name and all names.
    """
    if name in table:
        return table[name]
    close = list_near(name, table, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise PmfError(f"method is {name!r}; {hint}give one of {', '.join(table)}")


def describe_methods(table: Mapping[str, Method]) -> str:
    """Describe the methods of a table, one line each: name, description and requirements."""
    return "\n".join(
        f'"{name}": {method.description}' + (f" (needs {method.needs})." if method.needs else ".")
        for name, method in table.items()
    )


def document_methods(table: Mapping[str, Method]) -> Callable[[F], F]:
    """Decorate a function: replace ``{methods}`` on its own line of the docstring by the description of a table."""

    def decorate(function: F) -> F:
        lines = (function.__doc__ or "").split("\n")
        written: list[str] = []
        for line in lines:
            if line.strip() == "{methods}":
                margin = line[: line.index("{")]
                # a list, with the surrounding blank lines that reStructuredText requires
                written.append("")
                for text in describe_methods(table).split("\n"):
                    written += textwrap.wrap(
                        text, 120, initial_indent=margin + "* ", subsequent_indent=margin + "  "
                    )
                written.append("")
            else:
                written.append(line)
        function.__doc__ = "\n".join(written)
        return function

    return decorate
