"""A stack against the best single model: log-likelihood and P(a | b, c) of the other half of a table, and times.

    python -m benchmarks.models.stacks [TABLE ...] [--most-rows 12000] [--most-columns 30] [--auto] [--efforts]
    python -m benchmarks.models.stacks --density nltcs plants

Half of each table is fitted by `fit_em(rows)`, and the other half judges: mean log-likelihood per row, and the squared
error of P(a variable | two others) x 10^4, less the sampling error of the judge, over questions whose conditions at
least 40 of its rows meet; and that over questions about complete variables alone. Shares of the others are of rows that
have an answer, which a model follows only where answers are missing at random (in mushroom, stalk-root is not).
``--auto`` adds the single model of ``rank="auto"``, ``--efforts`` the other efforts; "counts" are the shares in the
fitted half. With ``--density``, validation rows give the weights and test rows judge. Seconds are of the processor,
all threads, after a fit that compiles. The constants of the ladder were chosen on halves of gss7402, adult and fars;
the options of forests were varied because of car, and seen on votes as well.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.models.density import read_split
from benchmarks.panels.tables import READING, make_schema, read_codes
from pmflib.base.arrays import FloatArray, IntArray

N_QUESTIONS, LEAST_ROWS, MOST_TRIES = 150, 40, 20_000
MOST_MISSING = 0.01
"""Share of rows without an answer up to which a variable is complete."""
EFFORTS = ("quick", "normal", "thorough")


class Question(NamedTuple):
    """A variable, and two others with their codes."""

    target: int
    first: tuple[int, int]
    second: tuple[int, int]

    def select(self, codes: IntArray) -> IntArray:
        """Codes of the target in the rows that meet the conditions."""
        (b, x), (c, y) = self.first, self.second
        found = codes[(codes[:, b] == x) & (codes[:, c] == y), self.target]
        return np.asarray(found[found >= 0])


def draw_questions(fitted: IntArray, judges: IntArray) -> Iterator[Question]:
    """Draw questions that enough of the judging rows can answer."""
    rng, n_found = np.random.default_rng(0), 0
    for _ in range(MOST_TRIES):
        a, b, c = rng.choice(fitted.shape[1], 3, replace=False).tolist()
        x, y = (int(rng.choice(fitted[fitted[:, each] >= 0, each])) for each in (b, c))
        question = Question(a, (b, x), (c, y))
        if question.select(judges).size >= LEAST_ROWS:
            yield question
            n_found += 1
        if n_found == N_QUESTIONS:
            return


def measure_error(answer: FloatArray, judged: IntArray) -> float:
    """Squared error of a PMF, less that of the judging shares."""
    truth = np.bincount(judged, minlength=answer.size) / judged.size
    return float(((answer - truth) ** 2).sum() - (truth * (1 - truth)).sum() / judged.size)


def ask(model: pmf.JointPMF, question: Question) -> FloatArray:
    """PMF of the target given the conditions, under the model alone."""
    row = np.full((1, model.schema.n_variables), -1, model.schema.code_dtype)
    for variable, code in question[1:]:
        row[0, variable] = code
    found: FloatArray = np.asarray(model.predict_proba(row, question.target))[0]
    return found


def fit_timed(codes: IntArray, schema: pmf.Schema, **options: Any) -> tuple[pmf.FitResult, str]:
    """Fit, and time it."""
    began = time.process_time()
    result = pmf.fit_em(codes, schema=schema, **options)
    return result, f"{time.process_time() - began:.1f}"


def list_fits(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Options of the fits by name."""
    fits: dict[str, dict[str, Any]] = {"auto": {"rank": "auto"}} if arguments.auto else {}
    efforts = EFFORTS if arguments.efforts else ("normal",)
    return fits | {f"stack, {each}": {"effort": each} for each in efforts}


def print_ladder(result: pmf.FitResult) -> None:
    """Weights of a stack, and its notes."""
    if result.ladder:
        print("   ", ", ".join(f"{each.name} {each.weight:.2f}" for each in result.ladder))


def compare_table(name: str, arguments: argparse.Namespace) -> None:
    """Print the line of a table for each fit."""
    codes = read_codes(DATA, name, arguments.most_rows)[:, : arguments.most_columns]
    schema = make_schema(codes)
    codes = schema.encode(codes)
    fitted, judges = np.array_split(codes, 2)
    questions = list(draw_questions(fitted, judges))
    judged = [each.select(judges) for each in questions]
    sizes = schema.cardinalities
    is_complete = (codes < 0).mean(axis=0) <= MOST_MISSING
    whole = [all(is_complete[[each.target, each.first[0], each.second[0]]]) for each in questions]

    def describe(answers: Sequence[FloatArray]) -> str:
        found = list(zip(answers, judged, whole, strict=True))
        complete = [each[:2] for each in found if each[2]]
        return f"error {average(each[:2] for each in found):6.1f} ({average(complete):.1f})"

    counted = []
    for each in questions:
        seen = each.select(fitted)
        share = np.bincount(
            seen if seen.size else fitted[:, each.target], minlength=sizes[each.target]
        )
        counted.append(share / share.sum())
    print(f"{name}, {len(fitted)} x {codes.shape[1]}")
    print(f"  {'counts':16s} {describe(counted)}")
    for title, options in list_fits(arguments).items():
        result, seconds = fit_timed(fitted, schema, **options)
        answers = [ask(result.model, each) for each in questions]
        score = float(result.model.log_prob(judges).mean())
        print(
            f"  {title:16s} {describe(answers)}, log-likelihood {score:.4f}, {seconds} s, "
            f"{result.model.rank} states",
            flush=True,
        )
        print_ladder(result)


def average(answered: Iterable[tuple[FloatArray, IntArray]]) -> float:
    """Mean error over questions, x 10^4; NaN without any."""
    errors = [measure_error(*each) for each in answered]
    return 1e4 * float(np.mean(errors)) if errors else float("nan")


def compare_density(name: str, arguments: argparse.Namespace) -> None:
    """Print the lines of a set with validation and test rows."""
    split = read_split([DATA / name])
    print(f"{name}, {split.train.shape[0]} x {split.train.shape[1]}")
    for title, options in list_fits(arguments).items():
        result, seconds = fit_timed(split.train, split.schema, validation=split.valid, **options)
        score = float(result.model.log_prob(split.test).mean())
        print(
            f"  {title:16s} test {score:.4f}, {seconds} s, {result.model.rank} states", flush=True
        )
        print_ladder(result)


def main() -> None:
    """Compare tables, or density sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(READING)}")
    parser.add_argument("--most-rows", type=int, default=12_000)
    parser.add_argument("--most-columns", type=int, default=30)
    parser.add_argument(
        "--auto", action="store_true", help='also fit the single model of rank="auto"'
    )
    parser.add_argument("--efforts", action="store_true", help="fit stacks of all efforts")
    parser.add_argument("--density", action="store_true", help="sets with validation and test rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # compiles
    fit_timed(np.random.default_rng(0).integers(0, 2, (400, 4)), make_schema(np.ones((1, 4), int)))
    for name in arguments.tables or (["nltcs", "plants"] if arguments.density else READING):
        (compare_density if arguments.density else compare_table)(name, arguments)


if __name__ == "__main__":
    main()
