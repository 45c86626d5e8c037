"""Whether answers are believable: against counts, the model and the margin alone, and the other half of a table.

    python -m benchmarks.models.answers [TABLE ...] [--sizes 300 2000] [--questions 40]
    python -m benchmarks.models.answers --law

A stack is fitted to some rows of a table (in a notebook: to all of them; in a pipeline: to four fifths, and the rest
say what the model is worth), and they are counted; other rows hold the truth. Questions are drawn from these: P(a
variable | 0 to 3 others), its mean E, the odds ratio OR of a level between two levels of a condition, and the total
variation TV of these. A line for each table, kind and range of support has the squared error of counts, model, margin
(the answer without any condition) and default answer (P by cells, OR by its logarithm), in units of what the two
samples alone would give, what the answer gains over counts and over the model with its standard error, and the share
of truths within the intervals of 95 %, which allow for the sampling error of the truth.

The law of the equivalent samples that an answer begins with is fitted to the other tables only. ``--law`` fits it to
all of them and prints the constants of `pmflib.answering.equivalent_samples`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.panels.models import draw_kind
from benchmarks.panels.tables import READING, make_schema, read_codes
from pmflib.answering import weigh_model, weighing
from pmflib.answering.conditional_tables import TableRequest
from pmflib.answering.equivalent_samples import (
    PRIOR_SPREADS,
    EquivalentSamples,
    QuestionLikelihoods,
    ask_unseen,
    learn_equivalent_samples,
    maximise,
)
from pmflib.answering.evidence import Evidence, count_codes

MOST_ROWS = 40_000
SUPPORT = ((0, 30), (30, 300), (300, 10**9))
LEAST_TRUTH = 20
"""Rows that hold the truth of a question, at least."""
DRAWN = {
    "classes": ("classes", 5),
    "independent": ("classes", 1),
    "forests": ("forests", 3),
    "traits": ("traits", 2),
}
KINDS = ("P", "E", "OR", "TV")
LAW_ROWS, LAW_QUESTIONS = (100, 400, 2000), 100
"""Rows that are fitted, and questions of each number of variables to each model, from which the law is learnt."""


def read(name: str) -> np.ndarray:
    """Codes of a public or drawn table, in an order by chance."""
    if name in DRAWN:
        return draw_kind(*DRAWN[name], MOST_ROWS, 0)
    return read_codes(DATA, name, MOST_ROWS)


@cache
def hear_table(name: str) -> tuple[QuestionLikelihoods, ...]:
    """Questions to stacks fitted to several numbers of rows of a table, for the law."""
    codes = read(name)
    schema, found = make_schema(codes), []
    for n in LAW_ROWS:
        rows = codes[: min(n, len(codes) // 2)]
        fitted, unseen = np.split(rows, [len(rows) * 4 // 5])
        model = pmf.fit_em(fitted, schema=schema).model
        likelihoods = ask_rows(model, fitted, unseen)
        if likelihoods is not None:
            found.append(likelihoods)
    return tuple(found)


def ask_rows(
    model: pmf.JointPMF, fitted: np.ndarray, unseen: np.ndarray
) -> QuestionLikelihoods | None:
    """Put questions to unseen rows in memory."""
    count_seen, count_unseen = (partial(count_codes, x, model.schema) for x in (fitted, unseen))
    return ask_unseen(model, unseen, count_seen, count_unseen, len(fitted), 0, LAW_QUESTIONS)


def find_law(names: Sequence[str]) -> EquivalentSamples:
    """Fit the law of log m to the questions to some tables."""
    flat = EquivalentSamples((4.5,) * 4 + (0.0,) * 4, (1.5, 1.5), (0.7, 0.7))
    asked = [each for name in names for each in hear_table(name)]
    return maximise(asked, flat, np.full(len(PRIOR_SPREADS), 2.0))


def fit_models(
    rows: np.ndarray, schema: pmf.Schema, law: EquivalentSamples, rank: int | None = None
) -> Iterator[tuple[str, pmf.JointPMF]]:
    """Stacks, or models of a rank, of a notebook and of a pipeline, with a law that has not seen the table."""
    learn = partial(learn_equivalent_samples, prior=law)
    with patch.object(weighing, "learn_equivalent_samples", learn):
        yield "notebook", pmf.fit_em(rows, schema=schema, rank=rank).model
        fitted, unseen = np.split(rows, [len(rows) * 4 // 5])
        judges = unseen if rank is None else None
        model = pmf.fit_em(fitted, schema=schema, rank=rank, validation=judges).model
        yield "pipeline", weigh_model(model, fitted, unseen)


def draw_questions(
    codes: np.ndarray, number: int, rng: np.random.Generator
) -> Iterator[tuple[str, int, int, tuple[dict[int, int], ...]]]:
    """Kind, target, its code, and one or two sets of conditions of each question."""
    for n_given in range(4):
        for _ in range(number):
            row, other = codes[rng.integers(len(codes), size=2)]
            observed = np.flatnonzero(row >= 0)
            if observed.size <= n_given:
                continue
            target, *given = rng.choice(observed, n_given + 1, replace=False).tolist()
            known = {place: int(row[place]) for place in given}
            for kind in KINDS[:2]:
                yield kind, target, int(row[target]), (known,)
            if given and other[given[0]] >= 0 and other[given[0]] != row[given[0]]:
                against = known | {given[0]: int(other[given[0]])}
                for kind in KINDS[2:]:
                    yield kind, target, int(row[target]), (known, against)


def measure_one(
    model: pmf.JointPMF,
    evidence: Evidence,
    question: tuple[str, int, int, tuple[dict[int, int], ...]],
    tables: Sequence[np.ndarray],
) -> tuple[int, list[float], float] | None:
    """Support, squared errors of counts, model, margin and answer, and the share of truths within intervals."""
    kind, target, code, sides = question
    seen = [np.asarray(evidence.find(request)) for request in list_requests(target, sides)]
    n_seen, n_true = ([float(each.sum()) for each in found] for found in (seen, tables))
    if min(n_true) < LEAST_TRUTH:
        return None
    answer = model.ask(write(model.schema, kind, target, code, sides), evidence)
    support, noise = min(n_seen), sum(1 / n for n in n_true)
    alike = noise + sum(1 / max(n, 1.0) for n in n_seen)
    shares = [each / n for each, n in zip(tables, n_true, strict=True)]
    alone = [(each + 1 / each.size) / (each.sum() + 1) for each in seen]
    levels, overall = np.arange(len(shares[0])), model.marginal((target,))
    assert answer.intervals is not None
    if kind == "P":
        order = np.array([int(label[0]) for label in answer.labels])
        numbers, by_model = np.array(answer.numbers), np.array(answer.more["model"])
        truth, counted, margin = shares[0][order], alone[0][order], overall[order]
        spread = truth * (1 - truth)
        unit = max(float(spread.sum()), 1e-9) * alike
        known = (numbers * n_true[0] >= 5) & ((1 - numbers) * n_true[0] >= 5)
        ends, variances = answer.intervals, numbers * (1 - numbers) * noise
    elif kind == "E":
        moved = (shares[0] + alone[0]) / 2
        variance = float(moved @ levels**2 - (moved @ levels) ** 2)
        if len(levels) < 3 or variance < 1e-9:
            return None
        truth, counted, margin = (x[None] @ levels for x in (shares[0], alone[0], overall))
        numbers, by_model = np.array(answer.numbers), np.array(answer.more["model"])
        unit, known, ends = variance * alike, np.array([True]), answer.intervals
        variances = np.array([variance * noise])
    elif kind == "OR":
        odds = [(each[code] + 0.5) / (each.sum() - each[code] + 0.5) for each in tables]
        mine = [(each[code] + 0.5) / (each.sum() - each[code] + 0.5) for each in seen]
        truth, counted = (np.log([pair[0] / pair[1]]) for pair in (odds, mine))
        margin = np.zeros(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers, by_model = np.log(answer.numbers), np.log(answer.more["model"])
            ends = np.log(np.maximum(answer.intervals, 1e-9))
        both = np.clip([each[code] for each in shares], 0.01, 0.99)
        held = 1 / (both * (1 - both))
        true_error = float(held @ (1 / np.array(n_true)))
        unit = true_error + float(held @ (1 / np.maximum(n_seen, 1.0)))
        known, variances = np.array([True]), np.array([true_error])
        if not np.isfinite([*numbers, *by_model, *truth]).all():
            return None
    else:
        truth, counted = (np.abs(x[0] - x[1])[None].sum(1) / 2 for x in (shares, alone))
        margin = np.zeros(1)
        numbers, by_model = np.array(answer.numbers), np.array(answer.more["model"])
        unit = alike / 4 * float(np.mean([each @ (1 - each) for each in shares]) + 1e-9)
        known, ends = np.array([True]), answer.intervals
        variances = np.array([unit * noise / alike])
    found = counted, by_model, margin, numbers
    errors = [float(np.square(x - truth).sum()) / unit for x in found]
    middle, half = (ends[:, 1] + ends[:, 0]) / 2, (ends[:, 1] - ends[:, 0]) / 2
    widths = np.sqrt(half**2 + 1.96**2 * variances)
    inside = np.abs(truth - middle)[known] <= widths[known]
    return int(support), errors, float(inside.mean()) if known.any() else np.nan


def list_requests(target: int, sides: Sequence[dict[int, int]]) -> list[TableRequest]:
    """Tables of the target, one for each set of conditions."""
    return [
        TableRequest((target,), tuple((place, (code,)) for place, code in each.items()))
        for each in sides
    ]


def write(
    schema: pmf.Schema, kind: str, target: int, code: int, sides: Sequence[dict[int, int]]
) -> str:
    """The question in words."""
    given = [", ".join(f"v{place}={code}" for place, code in each.items()) for each in sides]
    level = f"={schema[target].levels[code]}" if kind == "OR" else ""
    bar = f" | {'; '.join(given)}" if given[0] else ""
    return f"{kind}(v{target}{level}{bar})"


def measure(
    name: str, sizes: Sequence[int], number: int, others: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Rows of mode, kind, support, errors and coverage."""
    codes, law = read(name), find_law(others)
    schema, half, found = make_schema(codes), len(codes) // 2, []
    truth = codes[half:]
    for n in sorted({min(size, half) for size in sizes}):
        rows = codes[:n]
        questions = list(draw_questions(truth, number, np.random.default_rng(n)))
        asked = [list_requests(target, sides) for _, target, _, sides in questions]
        counted = iter(count_codes(truth, schema, [each for some in asked for each in some]))
        tables = [[next(counted).ravel() for _ in some] for some in asked]
        for mode, model in fit_models(rows, schema, law):
            evidence = Evidence.of(rows, model)
            evidence.count(each for some in asked for each in some)
            for question, held in zip(questions, tables, strict=True):
                one = measure_one(model, evidence, question, held)
                if one is not None:
                    found.append((mode, question[0], *one))
    return found


def print_lines(name: str, found: Sequence[tuple[Any, ...]]) -> None:
    """A line for each mode, kind and range of support."""
    for mode in ("notebook", "pipeline"):
        for kind in KINDS:
            for low, high in ((0, 10**9), *SUPPORT):
                mine = [x for x in found if x[:2] == (mode, kind) and low <= x[2] < high]
                if len(mine) < 10:
                    continue
                # one question that a table cannot answer does not speak for all
                errors = np.minimum([x[3] for x in mine], 30.0)
                gains = errors[:, :2] - errors[:, 3:]
                spread = gains.std(axis=0) / np.sqrt(len(mine))
                span = (
                    "all" if high - low == 10**9 else f"{low} on" if high > 10**8 else f"to {high}"
                )
                cells = [name, mode, kind, span, str(len(mine))]
                cells += [f"{mean:.3f}" for mean in errors.mean(axis=0)]
                cells += [
                    f"{g:+.3f} ± {e:.3f}" for g, e in zip(gains.mean(axis=0), spread, strict=True)
                ]
                print(
                    f"| {' | '.join([*cells, f'{np.nanmean([x[4] for x in mine]):.3f}'])} |",
                    flush=True,
                )


def main() -> None:
    """Read the arguments and print the table, or the constants of the law."""
    every = [*READING, *DRAWN]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(READING), help=", ".join(every))
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 2000, 10_000])
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--law", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.law:
        law = find_law(every)
        for label, numbers in (
            ("COEFFICIENTS", law.coefficients),
            ("SPREADS", law.spreads),
            ("TRUSTS", law.trusts),
        ):
            print(f"{label} = ({', '.join(f'{x:.2f}' for x in numbers)})")
        return
    head = "table | mode | kind | support | questions | counts | model | margin | both | over counts | over model"
    print(f"| {head} | within |\n|{'---|' * 12}")
    everything = []
    for name in given.tables:
        others = [each for each in every if each != name]
        found = measure(name, given.sizes, given.questions, others)
        print_lines(name, found)
        everything += found
    print_lines("all", everything)


if __name__ == "__main__":
    main()
