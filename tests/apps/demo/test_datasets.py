import csv
import gzip
from collections import Counter, defaultdict
from itertools import combinations, pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.apps.demo import write_rating_log, write_survey
from pmflib.base import SchemaError
from pmflib.model import planted_factors

CARDINALITIES = [4, 3, 4, 2, 4, 4]
OFFSETS = np.concatenate([[0], np.cumsum(CARDINALITIES)])
# No cell of a test counts beyond this many standard deviations: two-sided chance 2e-9 a cell.
DEVIATIONS = 6.0
LONG_DAMAGE = (
    "unknown_level",
    "missing_field",
    "extra_field",
    "undecodable",
    "empty_value",
    "duplicate",
    "unknown_variable",
)
WIDE_DAMAGE = LONG_DAMAGE[:-1]


def make_model(seed=0):
    return (*planted_factors(CARDINALITIES, 3, np.random.default_rng(seed)), OFFSETS)


def write_log(path, seed=1, **options):
    options = {"n_samples": 500, "ratings_per_sample": 3.0, "batch": 128} | options
    return write_rating_log(path, *make_model(), rng=np.random.default_rng(seed), **options)


def write_table(path, seed=1, **options):
    options = {"n_samples": 500, "observed": 0.6, "batch": 128} | options
    return write_survey(path, *make_model(), rng=np.random.default_rng(seed), **options)


def read_csv(path):
    opener = gzip.open if path.suffix == ".gz" else open
    # Bytes that are no UTF-8 become lone surrogates, which no name or level has.
    with opener(path, "rt", encoding="utf-8", errors="surrogateescape", newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


def is_undecodable(fields):
    return any("\udc80" <= letter <= "\udcff" for field in fields for letter in str(field))


def count_ratings(summary, files):
    """Plain classification of the rows of a long log; the last rating of a pair wins."""
    found, answers = Counter(), {}
    for rows in files:
        for fields in rows:
            if is_undecodable(fields):
                found["undecodable"] += 1
            elif len(fields) != 4:
                found["missing_field" if len(fields) < 4 else "extra_field"] += 1
            elif fields[1] not in summary.variables:
                found["unknown_variable"] += 1
            elif fields[2] in ("", None):
                found["empty_value"] += 1
            elif fields[2] not in summary.levels:
                found["unknown_level"] += 1
            else:
                user, movie, rating, second = fields
                before = answers.get((user, movie))
                found["duplicate"] += before is not None
                assert before is None or (before[1] < int(second) and before[0] != rating)
                answers[user, movie] = (rating, int(second))
    return found, answers


def assert_pair_marginals(rows, n_pairs):
    """`rows` are mappings from a variable's position to a level; compare all pairs to the model."""
    prior, factors, offsets = make_model()
    marginals = (factors * prior) @ factors.T
    counts = np.zeros(marginals.shape)
    for row in rows:
        for (j, a), (k, b) in combinations(sorted(row.items()), 2):
            counts[offsets[j] + a, offsets[k] + b] += 1
    n_checked = 0
    for j, k in combinations(range(len(CARDINALITIES)), 2):
        block = np.s_[offsets[j] : offsets[j + 1], offsets[k] : offsets[k + 1]]
        support = counts[block].sum()
        expected = support * marginals[block]
        spread = np.sqrt(expected * (1 - marginals[block]))
        assert np.all(np.abs(counts[block] - expected) <= DEVIATIONS * spread)
        n_checked += support > 500
    assert n_checked == n_pairs


def test_write_rating_log__pair_marginals_agree_with_the_model(tmp_path):
    summary = write_log(tmp_path / "log.csv", n_samples=20_000, batch=4096)
    header, rows = read_csv(summary.paths[0])
    assert header == ["user", "movie", "rating", "ts"]
    assert summary.n_rows == summary.n_answers == len(rows)
    people = defaultdict(dict)
    for user, movie, rating, _ in rows:
        people[user][int(movie[1:]) - 1] = int(rating) - 1
    assert sum(map(len, people.values())) == len(rows)
    assert_pair_marginals(people.values(), 15)


@pytest.mark.parametrize("format", ["csv", "csv.gz", "parquet"])
def test_write_rating_log__summary_agrees_with_the_files(tmp_path, format):
    summary = write_log(tmp_path / "logs", n_files=3, format=format, dirt=0.2)
    assert [path.name for path in summary.paths] == [f"part-0000{f}.{format}" for f in range(3)]
    if format == "parquet":
        tables = [pq.read_table(path) for path in summary.paths]
        files = [list(zip(*(c.to_pylist() for c in t.columns), strict=True)) for t in tables]
        assert summary.undecodable == 0
    else:
        files = [read_csv(path)[1] for path in summary.paths]
    found, answers = count_ratings(summary, files)
    assert sum(map(len, files)) == summary.n_rows
    assert len(answers) == summary.n_answers
    assert {kind: found[kind] for kind in LONG_DAMAGE} == {
        kind: getattr(summary, kind) for kind in LONG_DAMAGE
    }
    # columns have types and rows a width there
    damaged = [found[kind] for kind in LONG_DAMAGE if found[kind]]
    assert max(damaged) - min(damaged) <= 1
    n_drawn = summary.n_rows - summary.duplicate
    assert abs(sum(damaged) - 0.2 * n_drawn) <= DEVIATIONS * np.sqrt(0.2 * 0.8 * n_drawn)


def test_write_rating_log__users_are_interleaved_and_spread_over_files(tmp_path):
    summary = write_log(tmp_path / "logs", n_files=2, ratings_per_sample=5.0)
    files = [read_csv(path)[1] for path in summary.paths]
    users = [fields[0] for fields in files[0]]
    n_runs = 1 + sum(left != right for left, right in pairwise(users))
    assert n_runs > 0.9 * len(users)
    both = set(users) & {fields[0] for fields in files[1]}
    # Each rating goes to either file with one chance: k of them miss one file with 2 ** (1 - k).
    sizes = np.array(list(Counter(fields[0] for rows in files for fields in rows).values()))
    chances = 1 - 2.0 ** (1 - sizes)
    assert abs(len(both) - chances.sum()) <= DEVIATIONS * np.sqrt(np.sum(chances * (1 - chances)))


def test_write_rating_log__times_rise_with_ties(tmp_path):
    summary = write_log(tmp_path / "logs", n_files=2, dirt=0.1, format="parquet")
    seconds = [pq.read_table(path)["ts"].to_numpy() for path in summary.paths]
    for times in seconds:
        assert np.all(np.diff(times) >= 0)
        assert np.any(np.diff(times) == 0)
    assert seconds[0][-1] < seconds[1][0]


def test_write_rating_log__popularity_is_skewed_and_activity_varies(tmp_path):
    rng = np.random.default_rng(0)
    prior, factors = planted_factors([5] * 100, 2, rng)
    summary = write_rating_log(
        tmp_path / "log.csv",
        prior,
        factors,
        np.arange(101) * 5,
        n_samples=1000,
        ratings_per_sample=10.0,
        rng=rng,
    )
    _, rows = read_csv(summary.paths[0])
    movies = sorted(Counter(fields[1] for fields in rows).values(), reverse=True)
    assert movies[0] > 10 * movies[len(movies) // 2]
    activity = np.array(list(Counter(fields[0] for fields in rows).values()))
    assert activity.size == 1000
    # The variance of a gamma variable of shape 2 and mean 10 is 50.
    assert abs(activity.mean() - 10) <= DEVIATIONS * np.sqrt(50 / 1000)
    assert activity.std() > 5


@pytest.mark.parametrize("format", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("write", [write_log, write_table])
def test_writers__one_seed_gives_one_file(tmp_path, format, write):
    first, again, other = (
        write(tmp_path / name, seed=seed, format=format, dirt=0.1).paths[0].read_bytes()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert first != other


def test_write_survey__pair_marginals_agree_with_the_model(tmp_path):
    summary = write_table(tmp_path / "survey.csv", n_samples=20_000, batch=4096)
    header, rows = read_csv(summary.paths[0])
    assert header == ["id", *summary.variables]
    assert [fields[0] for fields in rows] == [f"s{person:06d}" for person in range(1, 20_001)]
    answers = [
        {j: "abcd".index(text) for j, text in enumerate(fields[1:]) if text} for fields in rows
    ]
    assert sum(map(len, answers)) == summary.n_answers
    assert_pair_marginals(answers, 15)


@pytest.mark.parametrize("format", ["csv", "csv.gz"])
def test_write_survey__summary_agrees_with_the_file(tmp_path, format):
    labels = ["plain", "a, b", 'say "no"', "été"]
    clean = write_table(tmp_path / "clean", format="csv", level_labels=labels)
    assert {text for fields in read_csv(clean.paths[0])[1] for text in fields[1:]} == {"", *labels}
    summary = write_table(
        tmp_path / f"dirty.{format}", format=format, dirt=0.3, level_labels=labels
    )
    _, rows = read_csv(summary.paths[0])
    found, people, n_answers = Counter(), {}, 0
    for fields in rows:
        if is_undecodable(fields):
            found["undecodable"] += 1
        elif len(fields) != 7:
            found["missing_field" if len(fields) < 7 else "extra_field"] += 1
        elif any(text not in ("", *labels) for text in fields[1:]):
            found["unknown_level"] += 1
        elif fields[0] in people:
            found["duplicate"] += 1
            pairs = zip(people[fields[0]], fields[1:], strict=True)
            assert sum(left != right for left, right in pairs) == 1
        else:
            people[fields[0]] = fields[1:]
            n_answers += sum(map(bool, fields[1:]))
    assert len(rows) == summary.n_rows == 500 + summary.duplicate
    assert n_answers == summary.n_answers
    for kind in set(WIDE_DAMAGE) - {"empty_value"}:
        assert found[kind] == getattr(summary, kind) > 0
    assert summary.levels == tuple(labels)


def test_write_survey__emptied_answers_are_counted(tmp_path):
    summary = write_table(tmp_path / "survey.parquet", format="parquet", dirt=0.4, observed=1.0)
    table = pq.read_table(summary.paths[0])
    answers = table.select(list(summary.variables))
    assert sum(column.null_count for column in answers.columns) == summary.empty_value > 0
    assert table.num_rows == summary.n_rows == 500 + summary.duplicate
    unknown = sum(column.to_pylist().count("no such level") for column in answers.columns)
    assert unknown == summary.unknown_level > 0
    assert summary.n_answers == 6 * (500 - summary.unknown_level) - summary.empty_value


@pytest.mark.parametrize(
    ("write", "name", "options", "named"),
    [
        (write_log, "log.csv", {"n_samples": 0}, "n_samples"),
        (write_table, "log.csv", {"n_samples": 0}, "n_samples"),
        (write_log, "log.csv", {"dirt": 1.1}, "dirt"),
        (write_table, "log.csv", {"dirt": 1.1}, "dirt"),
        (write_log, "log.csv", {"format": "xlsx"}, "format"),
        (write_log, "log.csv", {"n_files": 0}, "n_files"),
        (write_log, "log.csv", {"ratings_per_sample": 0}, "ratings_per_sample"),
        (write_log, "", {}, "path"),
        (write_log, "logs", {"n_files": 2}, "logs"),
        (write_log, "logs/part-00000.csv", {"n_files": 2}, r"part-00000\.csv"),
    ],
)
def test_writers__refuse(tmp_path, write, name, options, named):
    write_log(tmp_path / "logs", n_files=2)
    with pytest.raises(pmf.PmfError, match=named):
        write(tmp_path / name, **options)


def test_write_rating_log__duplicates_need_two_levels(tmp_path):
    prior, factors = planted_factors([1, 3], 2, np.random.default_rng(0))
    with pytest.raises(SchemaError):
        write_rating_log(
            tmp_path / "log.csv",
            prior,
            factors,
            np.array([0, 1, 4]),
            n_samples=3,
            ratings_per_sample=1.0,
            rng=np.random.default_rng(0),
            dirt=0.5,
        )
