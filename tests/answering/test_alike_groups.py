import numpy as np
import pytest
from scipy.stats import chi2_contingency

import pmflib as pmf
from pmflib.answering.support import find_homogeneity


def draw(n_rows=600):
    rng = np.random.default_rng(0)
    state, land = rng.integers(0, 2, n_rows), rng.integers(0, 3, n_rows)
    land = np.where(rng.random(n_rows) < 0.4, state, land)
    codes = np.stack([state ^ (rng.random(n_rows) < 0.2), state, land], axis=1)
    codes[rng.random(codes.shape) < 0.05] = -1
    schema = pmf.Schema(
        (
            pmf.Variable("x", ("no", "yes")),
            pmf.Variable("y", ("no", "yes")),
            pmf.Variable("land", ("at", "ch", "de")),
        )
    )
    samples = pmf.Codes(codes)
    return pmf.fit_em(samples, rank=2, schema=schema).model, samples


@pytest.mark.parametrize("question", ["P(x | land)", "P(x=yes | land)", "P(x | land, y=yes)"])
def test_ask__tests_whether_groups_are_alike_in_the_counts(question):
    model, codes = draw()
    kept = (codes[:, [0, 2]] >= 0).all(axis=1)
    if "y=yes" in question:
        kept &= codes[:, 1] == 1
    table = np.zeros((3, 2))
    np.add.at(table, (codes[kept, 2], codes[kept, 0]), 1)
    known = chi2_contingency(table, correction=False)
    answer = model.ask(question, codes)
    assert np.isclose(answer.homogeneity.statistic, known.statistic)
    assert np.isclose(answer.homogeneity.p_value, known.pvalue)
    assert answer.homogeneity.degrees == 2
    assert answer.to_json()["homogeneity"]["degrees"] == 2


def test_ask__has_no_test_where_there_are_no_groups_or_no_counts():
    model, codes = draw()
    assert model.ask("P(x | y=yes)", codes).homogeneity is None
    assert model.ask("P(x | land)").homogeneity is None
    assert "homogeneity" not in model.ask("P(x | land)").to_json()


def test_find_homogeneity__leaves_out_what_nobody_has():
    counts = np.array([[30, 20, 0], [10, 40, 0], [0, 0, 0]])
    found = find_homogeneity(counts)
    assert found == find_homogeneity(counts[:2, :2])
    assert found.degrees == 1
    assert find_homogeneity(counts[:1]) is None
    assert find_homogeneity(counts[:, 2:]) is None
    assert find_homogeneity(np.array([[2, 3], [1, 4]])).is_rough
