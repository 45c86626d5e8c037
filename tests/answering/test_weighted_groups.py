"""Groups of weighted samples: each has an effective number of its own, however it is asked for."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import Variance

SCHEMA = pmf.Schema(tuple(pmf.Variable(name, ("0", "1")) for name in "gyz"))
MODEL = pmf.JointPMF(np.ones(1), np.full((6, 1), 0.5), SCHEMA)


def draw(seed=0):
    """100 rows of a group with weight 10, and 900 of another with weight 1."""
    rng = np.random.default_rng(seed)
    group = np.repeat([0, 1], [100, 900])
    codes = np.column_stack([group, rng.random((1000, 2)) < 0.3]).astype(int)
    return codes, np.where(group == 0, 10.0, 1.0)


def pick(found, **levels):
    names = [found.columns.index(name) for name in levels]
    rows = [
        n
        for n, label in enumerate(found.labels)
        if [label[k] for k in names] == list(levels.values())
    ]
    return {found.labels[n][found.columns.index("y")]: n for n in rows}


@pytest.mark.parametrize("source", ["both", "counts"])
def test_ask__a_group_is_worth_its_own_rows(source):
    codes, weight = draw()
    design = Variance.of_rows(weight)
    every = MODEL.ask("P(y | g)", codes, design=design, source=source)
    for group, n in (("0", 100), ("1", 900)):
        alone = MODEL.ask(f"P(y | g={group})", codes, design=design, source=source)
        assert sum(alone.more["samples"]) == n
        # a group of equal weights is what its rows are without weights
        rows = codes[codes[:, 0] == int(group)]
        plain = MODEL.ask(f"P(y | g={group})", rows, source=source)
        for level, row in pick(every, g=group).items():
            for found in (alone, plain):
                own = found.labels.index((level,))
                assert every.more["samples"][row] == found.more["samples"][own]
                if found is alone or source == "counts":
                    np.testing.assert_allclose(every.numbers[row], found.numbers[own], rtol=1e-9)
                    ends = every.intervals[row], found.intervals[own]
                    np.testing.assert_allclose(*ends, rtol=1e-9)


def test_ask__weighted_counts_of_pairs_say_that_groups_are_not_known():
    codes, weight = draw()
    counts = pmf.count_pairs(codes, SCHEMA, weight=weight)
    assert any("of a group" in each for each in MODEL.ask("P(y | g)", counts).warnings)
    for asked, data in (("P(y)", counts), ("P(y | g)", pmf.count_pairs(codes, SCHEMA))):
        assert not any("of a group" in each for each in MODEL.ask(asked, data).warnings)


def test_ask__groups_of_a_measure_have_their_shares_of_the_weights():
    codes, weight = draw()
    design = Variance.of_rows(weight)
    found = MODEL.ask("MI(y; z | g)", codes, design=design, source="counts")
    total = 0.0
    for group, share in ((0, 1000 / 1900), (1, 900 / 1900)):
        rows = codes[codes[:, 0] == group]
        total += share * MODEL.ask("MI(y; z)", rows, source="counts").more["counted"][0]
    assert found.more["counted"][0] == pytest.approx(total)


def test_ask__a_row_with_nearly_all_of_the_weight_is_one_row():
    codes, weight = draw()
    weight[:] = 1
    weight[0] = 1e6
    for source in ("both", "counts"):
        found = MODEL.ask(
            f"P(y={codes[0, 1]})", codes, design=Variance.of_rows(weight), source=source
        )
        assert found.interval[0] < 0.5
        if source == "counts":
            # of one row, which has it, hardly anything is known
            assert found.interval[0] < 0.2
            assert found.interval[1] > 0.99


def test_ask__weights_have_intervals_that_hold():
    rng = np.random.default_rng(3)
    inside = {"giant": [], "gamma": []}
    for name in inside:
        for _ in range(150):
            codes = (rng.random((200, 3)) < 0.3).astype(int)
            weight = rng.gamma(1.0, 1.0, 200) + 0.01
            if name == "giant":
                weight[rng.integers(200)] = 10_000
            found = MODEL.ask(
                "P(y=1)", codes, design=Variance.of_rows(weight.round(4)), source="counts"
            )
            inside[name].append(found.interval[0] <= 0.3 <= found.interval[1])
    # .95 in the long run, three standard errors of the share allowed
    assert all(np.mean(each) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150) for each in inside.values())


def test_ask__groups_of_standardised_counts_are_those_asked_alone():
    rng = np.random.default_rng(5)
    codes = np.column_stack([rng.random(3000) < 0.2, rng.random((3000, 2)) < 0.4]).astype(int)
    codes[rng.random(3000) < np.where(codes[:, 2], 0.7, 0.1), 1] = -1
    every = MODEL.ask("P(y | g)", codes)
    for group in "01":
        alone = MODEL.ask(f"P(y | g={group})", codes)
        assert any("standardised" in each for each in alone.warnings)
        for level, row in pick(every, g=group).items():
            own = alone.labels.index((level,))
            # shares of strata are of all groups together, or of one
            np.testing.assert_allclose(every.intervals[row], alone.intervals[own], rtol=5e-3)
