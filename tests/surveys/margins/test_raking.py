import numpy as np
import pytest

import pmflib as pmf
from benchmarks.models.margins import rake_schools
from pmflib.base import MemoryPlanError, SchemaError
from pmflib.surveys.margins import samples as raking
from pmflib.surveys.margins.factors import rake_cells


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = {
        "sex": rng.choice(["f", "m"], n, p=[0.7, 0.3]),
        "age": rng.choice(["y", "m", "o"], n, p=[0.5, 0.3, 0.2]),
    }
    yes = rng.random(n) < 0.2 + 0.5 * (table["age"] == "o")
    return table | {"q": np.where(yes, "yes", "no")}, rng.integers(1, 5, n).astype(float)


MARGINS = {"sex": {"f": 0.51, "m": 0.49}, "age": {"y": 0.3, "m": 0.45, "o": 0.25}}


def share(table, weight, **levels):
    held = np.all([np.asarray(table[name]) == level for name, level in levels.items()], axis=0)
    return weight[held].sum() / weight.sum()


def test_rake__of_one_margin_is_poststratification():
    table, weight = draw()
    design = pmf.surveys.rake(table, {"age": {"y": 300, "m": 450, "o": 250}}, weight=weight)
    for level, size in {"y": 300, "m": 450, "o": 250}.items():
        held = table["age"] == level
        expected = weight[held] * size / weight[held].sum()
        np.testing.assert_allclose(design.weight[held], expected, rtol=1e-12)


def test_rake__keeps_the_odds_ratio_and_solves_its_quadratic_equation():
    n = np.array([[30, 20], [10, 40]])
    rows = [(i, j) for i in (0, 1) for j in (0, 1) for _ in range(n[i, j])]
    table = {"a": [f"a{i}" for i, _ in rows], "b": [f"b{j}" for _, j in rows]}
    design = pmf.surveys.rake(table, {"a": {"a0": 0.6, "a1": 0.4}, "b": {"b0": 0.3, "b1": 0.7}})
    odds = 30 * 40 / (20 * 10)
    # x (1 - .6 - .3 + x) = odds (.6 - x) (.3 - x)
    roots = np.roots([1 - odds, 0.1 + odds * 0.9, -odds * 0.18])
    expected = next(each for each in roots if 0 < each < 0.3)
    assert share(table, design.weight, a="a0", b="b0") == pytest.approx(expected, abs=1e-11)
    assert design.weight.sum() == pytest.approx(100)


SAMPLICS = [
    8.53414390027,
    17.0682878005,
    17.8634243989,
    8.53414390027,
    22.1365756011,
    15.8634243989,
    20.0,
]


def test_rake__equals_weights_of_samplics():
    # samplics 0.6.1, SampleWeight().rake of the same rows with tolerances of 1e-14
    table = {"sex": list("ffffmmm"), "age": list("yyoyoym")}
    margins = {"sex": {"f": 52, "m": 58}, "age": {"y": 50, "o": 40, "m": 20}}
    found = pmf.surveys.rake(table, margins, weight=[1, 2, 3, 1, 2, 1, 2.5]).weight
    np.testing.assert_allclose(found, SAMPLICS, rtol=1e-8)


def test_rake__equals_weights_of_the_survey_package():
    found, expected = rake_schools()
    assert found.size == 183
    # that package stops where totals differ by less than 1 of 6,194
    np.testing.assert_allclose(found, expected, rtol=5e-5)
    assert found.sum() == pytest.approx(6194)


def test_rake__of_two_variables_and_one():
    table, weight = draw()
    joint = {
        ("sex", "age"): {("f", "y"): 1, ("f", "m"): 2, ("f", "o"): 3, ("m", "y"): 4}
        | {("m", "m"): 5, ("m", "o"): 5},
        "q": {"yes": 0.3, "no": 0.7},
    }
    design = pmf.surveys.rake(table, joint, weight=weight)
    assert share(table, design.weight, sex="m", age="o") == pytest.approx(0.25)
    assert share(table, design.weight, q="yes") == pytest.approx(0.3)
    assert design.weight.sum() == pytest.approx(20)


def test_rake__keeps_the_share_of_missing_answers():
    table, weight = draw()
    table["age"] = [None if n % 5 == 0 else each for n, each in enumerate(table["age"])]
    design = pmf.surveys.rake(table, MARGINS, weight=weight)
    gone = np.arange(len(weight)) % 5 == 0
    left = weight[gone].sum() / weight.sum()
    assert design.weight[gone].sum() / design.weight.sum() == pytest.approx(left)
    assert share(table, design.weight, age="o") == pytest.approx(0.25 * (1 - left))
    assert share(table, design.weight, sex="m") == pytest.approx(0.49)
    assert design.weight.sum() == pytest.approx(weight.sum())


def test_rake__replicates_have_the_margins_and_leave_units_out():
    table, weight = draw()
    stratum, psu = np.arange(300) // 100, np.arange(300) // 10
    drawn = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    design = pmf.surveys.rake(table, MARGINS, weight=drawn)
    assert design.degrees == 27
    assert design.n_units == 30
    replicates = list(design.iterate_replicates())
    assert len(replicates) == 30
    for column, each in enumerate(replicates):
        assert share(table, each.weights, age="o") == pytest.approx(0.25)
        assert share(table, each.weights, sex="f") == pytest.approx(0.51)
        assert np.flatnonzero(each.weights == 0).tolist() == list(
            range(10 * column, 10 * column + 10)
        )
        assert each.factor == pytest.approx(0.9)


def test_rake__given_replicates_are_raked():
    table, weight = draw()
    given = weight[:, None] * np.random.default_rng(1).choice([0.5, 1.5], (300, 8))
    drawn = pmf.surveys.SurveyDesign(weight, replicates=given, method="Fay", fay=0.5)
    design = pmf.surveys.rake(table, MARGINS, weight=drawn)
    for column, each in enumerate(design.iterate_replicates()):
        alone = pmf.surveys.rake(table, MARGINS, weight=given[:, column])
        np.testing.assert_allclose(
            each.weights / each.weights.sum(), alone.weight / alone.weight.sum(), rtol=1e-8
        )
        assert each.factor == pytest.approx(1 / (8 * 0.25))
    assert given[0, 0] == drawn.replicates[0, 0]


def test_rake__errors_follow_from_what_the_margins_leave_open():
    rng = np.random.default_rng(2)
    age = rng.integers(3, size=2000)
    table = {"age": age, "q": np.where(rng.random(2000) < 0.05, rng.integers(3, size=2000), age)}
    drawn = pmf.surveys.SurveyDesign(np.ones(2000))
    raked = pmf.surveys.rake(table, {"age": {0: 0.3, 1: 0.3, 2: 0.4}}, weight=drawn)

    def find_error(design):
        shares = np.array([share(table, each.weights, q=1) for each in design.iterate_replicates()])
        factors = np.array([each.factor for each in design.iterate_replicates()])
        return np.sqrt((factors * (shares - shares.mean()) ** 2).sum())

    assert find_error(raked) < 0.4 * find_error(drawn)
    # by residuals of poststratification (Deville and Särndal 1992)
    weight, y = raked.weight, table["q"] == 1
    means = np.array([y[age == each].mean() for each in range(3)])
    residuals = weight * (y - means[age]) / weight.sum()
    assert find_error(raked) == pytest.approx(np.sqrt((residuals**2).sum()), rel=0.15)


def test_rake__of_bounded_factors():
    table, weight = draw()
    free = pmf.surveys.rake(table, MARGINS, weight=weight)
    assert free.factors.max() > 1.9
    design = pmf.surveys.rake(table, MARGINS, weight=weight, bounds=(0.4, 1.85))
    assert 0.4 <= design.factors.min()
    assert design.factors.max() == pytest.approx(1.85)
    assert np.average(design.factors, weights=weight) == pytest.approx(1)
    assert share(table, design.weight, age="m") == pytest.approx(0.45, abs=1e-6)
    assert share(table, design.weight, sex="m") == pytest.approx(0.49, abs=1e-6)
    with pytest.raises(pmf.PmfError, match="bounds"):
        pmf.surveys.rake(table, MARGINS, weight=weight, bounds=(0.9, 1.1))


def test_rake__raked_weights_fit_and_answer():
    table, weight = draw(2000)
    design = pmf.surveys.rake(table, MARGINS, weight=weight)
    schema = pmf.Schema.infer(table)
    counts = pmf.count_pairs(table, schema, weight=design.weight)
    assert counts.weights.total == pytest.approx(weight.sum(), rel=1e-4)
    result = pmf.fit_em(table, rank=2, weight=design)
    answer = result.model.ask("P(q=yes)", table, design=design, source="counts")
    assert answer.numbers[0] == pytest.approx(share(table, design.weight, q="yes"), abs=2e-3)


def test_rake__is_the_same_from_codes_of_a_schema():
    table, weight = draw()
    schema = pmf.Schema.infer(table)
    by_codes = pmf.surveys.rake(schema.encode(table), MARGINS, weight=weight, schema=schema)
    np.testing.assert_array_equal(
        by_codes.weight, pmf.surveys.rake(table, MARGINS, weight=weight, schema=schema).weight
    )


def test_rake__of_a_replicate_that_lacks_a_level():
    table = {"a": ["x", "y", "y", "y"], "b": ["u", "u", "v", "v"]}
    design = pmf.surveys.rake(table, {"a": {"x": 0.5, "y": 0.5}})
    without = next(iter(design.iterate_replicates())).weights
    np.testing.assert_allclose(without / without.sum(), [0, 1 / 3, 1 / 3, 1 / 3])


def test_rake__of_one_level_changes_nothing():
    table, weight = {"a": ["x"] * 4}, [1.0, 2, 3, 4]
    np.testing.assert_allclose(
        pmf.surveys.rake(table, {"a": {"x": 1}}, weight=weight).weight, weight
    )


def test_rake__refuses_one_row_and_no_values():
    with pytest.raises(pmf.PmfError, match="unit"):
        pmf.surveys.rake({"a": ["x"]}, {"a": {"x": 1}})
    with pytest.raises(SchemaError, match="a"):
        pmf.surveys.rake({"a": [None, None]}, {"a": {"x": 1}})


@pytest.mark.parametrize(
    ("margins", "kind", "words"),
    [
        ({"age": {"y": 0.5, "m": 0.5}}, SchemaError, ["age", "o"]),
        ({"age": {"y": 0.5, "m": 0.5, "o": 0}}, SchemaError, ["age=o", "nothing"]),
        ({"age": {"y": 0.5, "m": 0.2, "o": 0.2, "z": 0.1}}, SchemaError, ["age=z", "0.1"]),
        ({"income": {"low": 1}}, SchemaError, ["income"]),
    ],
)
def test_rake__refuses_levels(margins, kind, words):
    table, _ = draw()
    with pytest.raises(kind) as found:
        pmf.surveys.rake(table, margins)
    for word in words:
        assert word in str(found.value)


def test_rake__refuses_margins_that_contradict_each_other():
    table, _ = draw()
    both = {
        ("sex", "age"): {("f", "y"): 0.5, ("m", "y"): 0.1, ("f", "m"): 0.1, ("f", "o"): 0.1}
        | {("m", "m"): 0.1, ("m", "o"): 0.1}
    }
    with pytest.raises(pmf.PmfError, match=r"sex=[fm] has the share"):
        pmf.surveys.rake(table, both | {"sex": {"f": 0.5, "m": 0.5}})
    # an empty cell: all who are old are f
    table = {"sex": ["f", "f", "m", "f"], "age": ["o", "o", "y", "y"]}
    with pytest.raises(pmf.PmfError, match="cannot be reached"):
        pmf.surveys.rake(table, {"sex": {"f": 0.2, "m": 0.8}, "age": {"o": 0.5, "y": 0.5}})
    found = pmf.surveys.rake(
        table, {"sex": {"f": 0.7, "m": 0.3}, "age": {"o": 0.5, "y": 0.5}}
    ).weight
    np.testing.assert_allclose(found / 4, [0.25, 0.25, 0.3, 0.2], rtol=1e-9)


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (0.5, 1.0), (-1, 2), (0.5,)])
def test_rake__refuses_bounds(bounds):
    table, _ = draw()
    with pytest.raises(pmf.PmfError, match="bounds"):
        pmf.surveys.rake(table, MARGINS, bounds=bounds)


def test_rake__refuses_weights_of_other_rows():
    table, _ = draw()
    with pytest.raises(pmf.PmfError, match="rows"):
        pmf.surveys.rake(table, MARGINS, weight=np.ones(3))


def test_rake__refuses_replicates_beyond_memory(monkeypatch):
    table, weight = draw()
    monkeypatch.setattr(raking, "find_memory_limit", lambda: 24 * 300 * 200)
    pmf.surveys.rake(table, MARGINS, weight=weight)
    monkeypatch.setattr(raking, "find_memory_limit", lambda: 24 * 300 * 200 - 1)
    with pytest.raises(MemoryPlanError, match="raking"):
        pmf.surveys.rake(table, MARGINS, weight=weight)


def test_rake_cells__columns_are_raked_as_alone():
    rng = np.random.default_rng(4)
    cells = np.array([(i, j) for i in range(3) for j in range(4)])
    sums = rng.random((12, 5))
    margins = [np.array([0.2, 0.3, 0.5]), np.full(4, 0.25)]
    whole = rake_cells(sums, cells, margins)
    for column in range(5):
        alone = rake_cells(sums[:, [column]], cells, margins)
        np.testing.assert_allclose(whole.factors[:, column], alone.factors[:, 0], rtol=1e-9)
    assert whole.gaps.max() < 1e-11
