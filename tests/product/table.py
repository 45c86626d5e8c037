"""Print the product of features: how many cells are right, refused and wrong, and each that is wrong."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from pathlib import Path

from pmflib.cluster import start_workers
from pmflib_tasks.config import ClusterConfig
from tests.product.cells import FAMILIES, IN_MEMORY, World, iterate_cells, judge, shorten_draws
from tests.product.requests import REQUESTS, offers

WORDS = ("right", "refused", "wrong")


def main() -> None:
    """Judge all cells, or those of some requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--request", nargs="*", default=list(REQUESTS))
    parser.add_argument("--family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--source", nargs="*", default=[*IN_MEMORY, "stored", "counts"])
    parser.add_argument("--refused", action="store_true", help="Print the refusals as well.")
    given = parser.parse_args()
    requests = {name: REQUESTS[name] for name in given.request}
    shorten_draws()
    counted: Counter[tuple[str, str, str]] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        start_workers(ClusterConfig(workers=1)) as address,
    ):
        world = World(Path(folder), address)
        for family, source, weights, name in iterate_cells(world, requests):
            is_asked = family in given.family and source in given.source
            if not is_asked or not offers(family, source, weights, name):
                continue
            verdict = judge(world, family, source, weights, name, requests[name])
            for one, other in itertools.combinations((family, source, weights, name), 2):
                counted[one, other, verdict.word] += 1
            if verdict.word == "wrong" or (given.refused and verdict.word == "refused"):
                print(
                    f"{verdict.word}: {family}, {source}, {weights}, {name}: {verdict.why}",
                    flush=True,
                )
    print(f"{'':34}", *(f"{word:>8}" for word in WORDS))
    for one, other in dict.fromkeys(key[:2] for key in counted):
        numbers = (counted[one, other, word] for word in WORDS)
        print(f"{one + ' x ' + other:34}", *(f"{number:8}" for number in numbers))


if __name__ == "__main__":
    main()
