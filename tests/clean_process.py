"""A process of its own for functions that fork.

Where threads hold locks, as those of a cluster that was there before do, a child waits for ever.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def call_in_clean_process(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a function gives that is called in a process without threads."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **options).result()
