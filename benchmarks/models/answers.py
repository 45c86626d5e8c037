"""Whether answers from counts and a model are believable: against the counts alone, the model alone, and unseen rows.

    python -m benchmarks.models.answers [TABLE ...] [--rank 8] [--dependence tree] [--questions 300]

Each table is halved. Of the first half four fifths are fitted, the rest say how many rows the model counts for, and all
of it is counted; the second half holds the truth. Questions are P(a variable | 0 to 3 others), drawn from rows of the
second half. For each number of conditions and each range of support (rows of the first half that meet the conditions)
a line has the mean log-probability, nats, that counts, the model and both give to an answer of the second half, what
both gain over either with its standard error, and the share of levels whose number in the second half lies within the
interval of 95 % (that of the posterior with the sampling error of the second half; ends are split at random).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import betabinom

import pmflib as pmf
from benchmarks.data import DATA
from pmflib.core.arrays import FloatArray, IntArray
from pmflib.counting.conditional_tables import TableRequest
from pmflib.fitting.weighing import weigh_model
from pmflib.model.questions.evidence import Evidence, count_codes

MOST_ROWS = 40_000
SUPPORT = ((0, 10**9), (0, 30), (30, 200), (200, 10**9))


def _read_adult() -> pd.DataFrame:
    names = "age workclass weight education years marital occupation relationship race sex gain loss hours country"
    paths = [DATA / "adult" / f"UCI_ADULT{part}.data.gz" for part in ("", "2")]
    kept = {"dtype": str, "skipinitialspace": True, "header": None, "comment": "|"}
    table = pd.concat(
        [pd.read_csv(path, names=[*names.split(), "label"], **kept) for path in paths]
    )
    return table.assign(label=table["label"].str.rstrip("."))


def _read_plain(name: str, **options: object) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        paths = sorted((DATA / name).iterdir())
        table = pd.concat([pd.read_csv(path, dtype=str, **options) for path in paths])
        return table.rename(
            columns=lambda column: str(column) if isinstance(column, str) else f"v{column}"
        )

    return read


def _read_ratings() -> pd.DataFrame:
    """Ratings with what is known of the person and the film: 100,000 rows, many of one person."""
    folder = DATA / "ml-100k"
    genres = [
        line.split("|")[0] for line in (folder / "u.genre").read_text().split() if "|" in line
    ]
    ratings = pd.read_csv(
        folder / "u.data.gz", sep="\t", names=["user", "film", "rating", "time"], dtype=str
    )
    users = pd.read_csv(
        folder / "u.user", sep="|", names=["user", "age", "sex", "job", "zip"], dtype=str
    )
    films = pd.read_csv(folder / "u.item", sep="|", header=None, dtype=str, encoding="latin-1")
    films = films[[0, *range(5, 5 + len(genres))]].set_axis(["film", *genres], axis=1)
    whole = ratings.merge(users, on="user").merge(films, on="film")
    return whole.drop(columns=["user", "film", "time", "zip"])


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "mushroom": _read_plain("mushroom", header=None),
    "krkopt": _read_plain("krkopt", sep="\t"),
    "fars": _read_plain("fars", sep="\t"),
    "nltcs": _read_plain("nltcs", header=None),
    "plants": _read_plain("plants", header=None),
    "ratings": _read_ratings,
    # the method came from these
    "adult": _read_adult,
    "pisa2009": _read_plain("pisa2009"),
    "votes": _read_plain("votes", header=None, na_values=["2"]),
    "car": _read_plain("car", header=None),
}


@dataclass(frozen=True)
class Asked:
    """A question, and its answers: rows counted, log-probabilities of the second half's answers, levels within."""

    n_conditions: int
    n_rows: int
    counts: float
    model: float
    both: float
    within: list[bool]


def measure(
    name: str, rank: int, dependence: Literal["auto", "none", "tree"], n_questions: int
) -> list[Asked]:
    """Put questions to halves of a table."""
    table = TABLES[name]()
    schema = pmf.Schema.infer(table)
    rng = np.random.default_rng(0)
    codes = schema.encode(table)
    codes = codes[rng.permutation(len(codes))][:MOST_ROWS]
    first, second = codes[: len(codes) // 2], codes[len(codes) // 2 :]
    n_fitted = len(first) * 4 // 5
    fitted, unseen = first[:n_fitted], first[n_fitted:]
    model = pmf.fit_em(fitted, schema=schema, rank=rank, dependence=dependence, rng=0).model
    model = weigh_model(model, fitted, unseen)
    evidence = Evidence.of(first, model)
    requests = [
        request
        for n_conditions in range(4)
        for request in draw_requests(second, n_conditions, n_questions, rng)
    ]
    single = [TableRequest((position,)) for position in range(schema.n_variables)]
    singles = [counts + 0.5 for counts in count_codes(first, schema, single)]
    found = []
    seen, truths = (count_codes(half, schema, requests) for half in (first, second))
    for request, counted, truth in zip(requests, seen, truths, strict=True):
        (target,) = request.targets
        levels = schema[target].levels
        answer = model.ask(write_question(schema, request), evidence)
        order = [levels.index(row[0]) for row in answer.labels]
        both, of_model = np.zeros(len(levels)), np.zeros(len(levels))
        both[order], of_model[order] = answer.numbers, answer.more["model"]
        alone = (counted + 2 * singles[target] / singles[target].sum()) / (counted.sum() + 2)
        n_rows = counted.sum() + answer.equivalent_samples[0]
        within = find_within(both, n_rows, truth, rng)
        scores = (find_score(chances, truth) for chances in (alone, of_model, both))
        by_counts, by_model, by_both = scores
        n_counted = int(counted.sum())
        found.append(Asked(len(request.given), n_counted, by_counts, by_model, by_both, within))
    return found


def draw_requests(
    codes: IntArray, n_conditions: int, number: int, rng: np.random.Generator
) -> list[TableRequest]:
    """Questions whose target and conditions are observed cells of a row."""
    found: list[TableRequest] = []
    while len(found) < number:
        row = codes[rng.integers(len(codes))]
        observed = np.flatnonzero(row >= 0)
        if observed.size > n_conditions:
            target, *given = rng.choice(observed, n_conditions + 1, replace=False).tolist()
            found.append(TableRequest((target,), tuple((j, (int(row[j]),)) for j in given)))
    return found


def write_question(schema: pmf.Schema, request: TableRequest) -> str:
    """The question in words."""
    given = [f"{schema[j].name!r}={schema[j].levels[code]!r}" for j, (code,) in request.given]
    bar = f" | {', '.join(given)}" if given else ""
    return f"P({schema[request.targets[0]].name!r}{bar})"


def find_score(chances: FloatArray, truth: IntArray) -> float:
    """Mean log-probability of the answers, nats."""
    return float(truth @ np.log(np.maximum(chances, 1e-6)) / truth.sum())


def find_within(
    chances: FloatArray, n_rows: float, truth: IntArray, rng: np.random.Generator
) -> list[bool]:
    """Whether the number of each level that is expected at least once lies within 95 % of what is predicted."""
    n = int(truth.sum())
    expected = chances * n >= 1
    first = chances[expected] * n_rows
    rest = np.maximum(n_rows - first, 1e-9)
    below = np.asarray(betabinom.cdf(truth[expected] - 1, n, first, rest))
    at = np.asarray(betabinom.pmf(truth[expected], n, first, rest))
    shares = below + rng.random(len(at)) * at
    within: list[bool] = ((shares >= 0.025) & (shares <= 0.975)).tolist()
    return within


def print_lines(name: str, asked: list[Asked]) -> None:
    """A line for each number of conditions and range of support."""
    for n_conditions in range(4):
        for low, high in SUPPORT:
            mine = [e for e in asked if e.n_conditions == n_conditions and low <= e.n_rows < high]
            if len(mine) < 10:
                continue
            scores = np.array([(e.counts, e.model, e.both) for e in mine])
            gains = scores[:, 2:] - scores[:, :2]
            errors = gains.std(axis=0) / np.sqrt(len(mine))
            within = [each for e in mine for each in e.within]
            span = (
                "all"
                if high - low == 10**9
                else f"{low} to {high}"
                if high < 10**9
                else f"{low} on"
            )
            cells = [name, str(n_conditions), span, str(len(mine))]
            cells += [f"{mean:.4f}" for mean in scores.mean(axis=0)]
            cells += [
                f"{g:+.4f} ± {e:.4f}" for g, e in zip(gains.mean(axis=0), errors, strict=True)
            ]
            print(f"| {' | '.join([*cells, f'{np.mean(within):.3f}'])} |", flush=True)


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES)[:6], help=", ".join(TABLES))
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--dependence", choices=("auto", "none", "tree"), default="tree")
    parser.add_argument("--questions", type=int, default=300)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    head = "table | conditions | support | questions | counts | model | both | - counts | - model | within"
    print(f"| {head} |\n|{'---|' * 10}")
    for name in given.tables:
        print_lines(name, measure(name, given.rank, given.dependence, given.questions))


if __name__ == "__main__":
    main()
