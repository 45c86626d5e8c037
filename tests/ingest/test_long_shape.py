import numpy as np
import pytest

from pmflib.ingest.long_shape import find_long_log
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import find_sources

RNG = np.random.default_rng(4)
WIDE = SourceOptions(path="x", layout="wide")
CELLS = RNG.permutation(60 * 40)[:1200]
USERS, ITEMS = CELLS // 40, CELLS % 40


def find(folder, **columns):
    rows = "\n".join(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))
    (folder / "a.csv").write_text(f"{','.join(columns)}\n{rows}\n")
    return find_long_log(find_sources(str(folder)), WIDE)


@pytest.mark.parametrize("names", [("a", "b"), ("user", "movie"), ("movie", "user")])
def test_find_long_log__each_pair_has_one_answer(tmp_path, names):
    seconds = 1_500_000_000 + 977 * np.arange(1200)
    columns = dict(zip(names, (USERS, ITEMS), strict=True))
    stars = RNG.integers(1, 6, 1200)
    found = find(tmp_path, **columns, stars=stars, at=seconds)
    sample, variable = names if names[0] != "movie" else names[::-1]
    assert found.flags == f"--sample {sample} --variable {variable} --value stars --time at"
    assert f"{sample} and {variable}" in found.reason


def test_find_long_log__names_are_quoted_for_a_shell(tmp_path):
    found = find(tmp_path, **{"the user": USERS, "item": ITEMS, "x": RNG.integers(0, 3, 1200)})
    assert found.flags == "--sample 'the user' --variable item --value x"


@pytest.mark.parametrize(
    "columns",
    [
        # independent columns repeat pairs
        {"a": RNG.integers(0, 60, 1200), "b": RNG.integers(0, 40, 1200), "c": RNG.integers(0, 3, 1200)},
        # an identifier of rows never repeats
        {"id": np.arange(1200), "a": RNG.integers(0, 40, 1200), "b": RNG.integers(0, 3, 1200)},
        # few rows: chance repeats nothing either
        {"age": RNG.permutation(60)[:40], "weight": RNG.permutation(80)[:40], "b": [0, 1] * 20},
        {"a": USERS, "b": ITEMS},
        {"a": USERS, "b": ITEMS, **{f"c{n}": RNG.integers(0, 3, 1200) for n in range(5)}},
        {"a": [], "b": [], "c": []},
    ],
)  # fmt: skip
def test_find_long_log__wide_tables(tmp_path, columns):
    assert find(tmp_path, **columns) is None
