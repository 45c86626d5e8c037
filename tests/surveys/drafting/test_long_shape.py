import numpy as np
import pytest

from pmflib.ingest import SourceOptions, find_sources
from pmflib.surveys.drafting.long_shape import find_long_log, note_waves

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


def write_waves(folder, order):
    people, waves = np.repeat(np.arange(150), 3)[order], np.tile([1, 2, 3], 150)[order]
    columns = {"pid": people, "wave": waves} | {name: RNG.integers(0, 2, 450) for name in "xyv"}
    find(folder, **columns)
    return find_sources(str(folder))


@pytest.mark.parametrize("order", [np.arange(450), np.argsort(np.tile([1, 2, 3], 150))])
def test_note_waves__one_row_of_a_person_and_wave(tmp_path, order):
    sources = write_waves(tmp_path, order)
    given = WIDE.model_copy(update={"sample": "pid"})
    note = note_waves(sources, given, None)
    assert note.startswith("pid: 150 samples in 450 rows, whose rows 'wave' tells apart (3 values)")
    assert "on_duplicate" in note
    # without a column of samples it looks like a long log, of which there is more than one answer
    alone = note_waves(sources, WIDE, find_long_log(sources, WIDE))
    assert alone.startswith("pid: 150 samples in 450 rows, whose rows 'wave' tells apart")


def test_note_waves__says_nothing_of_samples_of_one_row_and_of_long_logs(tmp_path):
    ids = np.arange(1200)
    find(tmp_path, id=ids, x=RNG.integers(0, 2, 1200), y=RNG.integers(0, 2, 1200))
    sources = find_sources(str(tmp_path))
    assert note_waves(sources, WIDE.model_copy(update={"sample": "id"}), None) is None
    assert note_waves(sources, WIDE, None) is None
    shape = find(tmp_path, user=USERS, item=ITEMS, stars=RNG.integers(1, 6, 1200))
    assert note_waves(sources, WIDE, shape) is None


def test_note_waves__rows_that_nothing_tells_apart(tmp_path):
    find(tmp_path, id=np.arange(60) // 2, x=RNG.integers(0, 2, 60), y=RNG.integers(0, 2, 60))
    note = note_waves(find_sources(str(tmp_path)), WIDE.model_copy(update={"sample": "id"}), None)
    assert note.startswith("id: 30 samples in 60 rows; with --sample id the last row")
