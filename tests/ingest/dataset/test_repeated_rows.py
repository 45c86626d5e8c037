"""Rows without identifiers that come again are found by their order, and rows that are alike by chance are not."""

import numpy as np
import pytest

from pmflib.ingest.dataset.repeated_rows import check_repeated, find_repeated, hash_codes
from pmflib.ingest.options import make_source
from pmflib.ingest.sources import find_sources


def draw(n_rows, levels, seed):
    """Rows of dependent variables: half of the people answer all questions alike."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, levels, (n_rows, 5))
    alike = rng.random(n_rows) < 0.5
    codes[alike] = codes[alike, :1]
    return codes


@pytest.mark.parametrize("levels", [2, 4, 9])
def test_find_repeated__rows_of_other_people_are_alike_by_chance_alone(levels):
    files = [hash_codes(draw(3000, levels, seed)) for seed in range(3)]
    assert sum(each.sum() for each in find_repeated(files)) == 0
    in_order = find_repeated([np.sort(each) for each in files])
    # sorted rows of few kinds are no evidence
    assert in_order is None or sum(each.sum() for each in in_order) == 0


@pytest.mark.parametrize("levels", [2, 4, 9])
def test_find_repeated__rows_that_were_delivered_before(levels):
    first, second, new = (hash_codes(draw(n, levels, n)) for n in (400, 500, 300))
    nothing, none, again = find_repeated([first, second, np.concatenate([first, second, new])])
    assert not nothing.any()
    assert not none.any()
    # rows at the ends of stretches may be missed where rows are alike
    assert again[:900].mean() > 0.9
    assert again[900:].mean() < 0.1
    (twice,) = find_repeated([np.concatenate([first, first[100:300]])])
    assert not twice[:400].any()
    assert twice[400:].mean() > 0.8


def test_find_repeated__cycles_are_no_deliveries():
    hours = np.tile(np.arange(24), 50)
    assert not find_repeated([hash_codes(hours[:, None])])[0].any()


def test_find_repeated__few_rows_and_rows_that_are_all_alike():
    assert [each.tolist() for each in find_repeated([])] == []
    assert [each.tolist() for each in find_repeated([np.zeros(1, np.uint64)])] == [[False]]
    assert find_repeated([np.zeros(100, np.uint64)]) is None


def test_check_repeated__says_how_many_and_where(tmp_path):
    rows = [",".join(map(str, row)) for row in draw(200, 5, 1).tolist()]
    for name, lines in (("a", rows[:100]), ("b", rows)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["p,q,r,s,t", *lines]) + "\n")
    sources, options = find_sources(str(tmp_path)), make_source({"path": "x", "layout": "wide"})
    said = check_repeated(sources, options, list("pqrst"))
    assert "of 300 rows come again" in said
    assert "b.csv" in said
    assert "source.sample" in said
    assert check_repeated(sources[:1], options, list("pqrst")) == ""
