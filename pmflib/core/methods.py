"""Methods by name: what each one is called, where it is, what it needs, and what it does.

Configuration, command line, docstrings and the argument ``method`` read these tables. A new method is one entry here
and one file with its function.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pmflib.core.errors import PmfError
from pmflib.core.texts import list_near

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Method:
    """One way to fit.

    Parameters
    ----------
    name
        As it is written in configurations and calls.
    family
        What the methods of a table have in common with some of the others: see the table.
    function
        ``"module:function"``. It is imported when the method is used, and called as its family says.
    description
        What it does, in one line.
    needs
        What it asks of data and memory, in one line; empty where that is nothing in particular.
    block_copies, matrix_copies
        For methods of pairs of workers: how often it has the blocks of all pairs, and one dense matrix of them, in
        memory at once, itself and the counts; measured. 0 where it has none.
    """

    name: str
    family: str
    function: str
    description: str
    needs: str = ""
    block_copies: int = 0
    matrix_copies: int = 0

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        loaded: Callable[..., Any] = load_name(self.function)
        return loaded


def load_name(name: str) -> Any:
    """Import what is written ``"module:name"``, such as a function or a class."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _tabulate(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


PAIR_METHODS = _tabulate(
    Method(
        "auto",
        "choice",
        "pmflib.fitting.auto_method:run_auto",
        "several starts and pseudo-counts, compared on held-out folds, then the pairwise composite likelihood; the "
        "notes say what was chosen and why",
        "several folds of counts for the comparison; without them the pseudo-count is the default",
    ),
    Method(
        "spa",
        "solver",
        "pmflib.fitting.pair_fits:run_spa",
        "CNMF-SPA, which finds anchor levels by successive projection and does not iterate",
        "two variables, and at most as many states as the smaller side of a split of the variables has levels",
    ),
    Method(
        "opt",
        "solver",
        "pmflib.fitting.pair_fits:run_opt",
        "CNMF-OPT from spa, by closed-form updates of the Kullback-Leibler divergence",
        "two variables; starts at random where spa cannot have the rank",
    ),
    Method(
        "mirror",
        "solver",
        "pmflib.fitting.pair_fits:run_mirror",
        "CNMF-OPT from spa as published, by mirror descent; slow",
        "two variables; starts at random where spa cannot have the rank",
    ),
    Method(
        "symnmf",
        "solver",
        "pmflib.fitting.pair_fits:run_symnmf",
        "symmetric nonnegative factorisation of the matrix of all pairs",
        "two variables, and at most as many states as there are levels; eigenvectors of an n_levels x n_levels matrix",
    ),
    Method(
        "pairs",
        "start",
        "pmflib.fitting.auto_method:run_pairs",
        "a start for EM, random and then a few of the updates of opt",
    ),
    Method(
        "random",
        "start",
        "pmflib.fitting.pair_fits:run_random",
        "a start for EM, the variables' own PMFs, perturbed",
    ),
)
"""Methods of `pmflib.fit`, from pairwise counts to a model.

Each is called with `PairCounts`, the rank and a random generator, and returns a `SolverResult`. A "choice" compares
others, and says what it chose. A "solver" fits pairs until it has converged, and `pmflib.fit` warns where it has not. A
"start" is a point for EM to go on from, another one for every seed.
"""

SAMPLE_METHODS = _tabulate(
    Method(
        "traits",
        "samples",
        "pmflib.fitting.traits:fit_traits",
        "continuous traits, on which people differ by degree, compiled into latent states",
        "the training samples in memory, 4 bytes an observed cell",
    ),
    Method(
        "compare",
        "choice",
        "pmflib_tasks.scoring.comparison:choose_model",
        "traits or latent classes (auto): what predicts hidden answers of the validation folds better",
        "the memory of traits; without it, latent classes are taken",
    ),
)
"""Methods of the pipeline alone.

"samples" fits samples without a start from pairwise counts: stages `select` and `fit` have no part in it. "choice" fits
both ways, and compares: called with a `PairedGain`, it returns a `ModelChoice`.
"""

CROWD_METHODS = _tabulate(
    Method(
        "auto",
        "passes",
        "pmflib.crowd.dawid_skene:plan_shrunk",
        "Dawid-Skene with confusion matrices shrunk toward those of all workers who are right as often, and two "
        "subclasses of tasks in every class",
        "workers who are right more often than not",
    ),
    Method(
        "balanced",
        "passes",
        "pmflib.crowd.dawid_skene:plan_balanced",
        "shrunk Dawid-Skene with one subclass and equally probable classes",
        "workers who are right more often than not",
    ),
    Method(
        "one_coin",
        "passes",
        "pmflib.crowd.dawid_skene:plan_one_coin",
        "shrunk Dawid-Skene with one subclass and one probability of being right per worker",
        "workers who are right more often than not",
    ),
    Method(
        "dawid_skene",
        "passes",
        "pmflib.crowd.dawid_skene:plan_dawid_skene",
        "Dawid-Skene by maximum likelihood, from the votes on",
    ),
    Method(
        "mv_em",
        "passes",
        "pmflib.crowd.dawid_skene:plan_mv_em",
        "Dawid-Skene by maximum likelihood with equally probable classes and ten passes, as published",
    ),
    Method(
        "majority",
        "votes",
        "pmflib.crowd.aggregation:take_majority",
        "shares of the votes",
    ),
    Method(
        "robust",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_robust",
        "symmetric factorisation, missing pairs by a factorisation that is robust to bad pairs",
        "pairs of workers, kept sparse",
        block_copies=9,
    ),
    Method(
        "equal_weights",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_equal_weights",
        "symmetric factorisation, missing pairs by a factorisation in least squares",
        "pairs of workers, kept sparse",
        block_copies=9,
    ),
    Method(
        "designated",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_designated",
        "symmetric factorisation, missing pairs by all designated workers",
        "pairs of workers, all in one dense matrix",
        block_copies=18,
        matrix_copies=23,
    ),
    Method(
        "one_pair",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_one_pair",
        "symmetric factorisation, missing pairs by one pair of designated workers",
        "pairs of workers, all in one dense matrix",
        block_copies=18,
        matrix_copies=9,
    ),
    Method(
        "symnmf",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_zero_filled",
        "symmetric factorisation, missing pairs left zero",
        "pairs of workers, kept sparse",
        block_copies=18,
    ),
    Method(
        "multispa",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_extreme_columns",
        "extreme columns of each worker's own pairs",
        "pairs of workers, kept sparse",
        block_copies=7,
    ),
    Method(
        "cnmf",
        "pairs",
        "pmflib.crowd.co_occurrence:fit_coupled",
        "coupled factorisation in Kullback-Leibler divergence, from multispa",
        "pairs of workers, all in one dense matrix",
        block_copies=18,
        matrix_copies=9,
    ),
)
"""Methods of `pmflib.crowd.aggregate`, from a label log to true labels.

"votes" takes shares of the votes: called with a `LabelLog`, it returns an `Aggregation`. "passes" goes over all tasks
from the votes on, until the labels settle: called with the limits that were given, it returns a `CrowdPassPlan`.
"pairs" begins with co-occurrences of the workers' labels, and is followed by passes unless they are switched off:
called with `CoOccurrences`, it returns a `CrowdModel`.
"""


def select_methods(table: Mapping[str, Method], family: str) -> tuple[str, ...]:
    """Names of the methods of a family, in the order of the table."""
    return tuple(name for name, method in table.items() if method.family == family)


MEMBER_START_METHODS = select_methods(PAIR_METHODS, "start")
"""Methods of `pmflib.fit` that give another start for every seed, as members of an average need it."""


def list_pipeline_methods() -> dict[str, Method]:
    """Crowd methods of the pipeline: all but the votes, which are no estimate of the workers."""
    return {name: method for name, method in CROWD_METHODS.items() if method.family != "votes"}


def find_method(table: Mapping[str, Method], name: str) -> Method:
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
        If there is none of this name; the message has the nearest name and all of them.
    """
    if name in table:
        return table[name]
    close = list_near(name, table, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise PmfError(f"method is {name!r}; {hint}give one of {', '.join(table)}")


def describe_methods(table: Mapping[str, Method]) -> str:
    """Describe the methods of a table, a line each: name, what it does, what it needs."""
    return "\n".join(
        f'"{name}": {method.description}' + (f" (needs {method.needs})." if method.needs else ".")
        for name, method in table.items()
    )


def document_methods(table: Mapping[str, Method]) -> Callable[[F], F]:
    """Decorate a function: ``{methods}``, alone on a line of its docstring, becomes the description of a table."""

    def decorate(function: F) -> F:
        lines = (function.__doc__ or "").split("\n")
        written: list[str] = []
        for line in lines:
            if line.strip() == "{methods}":
                margin = line[: line.index("{")]
                # a list, with the blank lines that reStructuredText wants around one
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


ORDINAL_METHODS = ("auto", "balanced")
"""Methods of label logs with a prior for mistakes, which may go by the order of classes."""
