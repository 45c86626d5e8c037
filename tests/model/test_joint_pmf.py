import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import MemoryPlanError, SchemaError, StoreError
from pmflib.model import ModelOrigin, joint_pmf, mixture
from pmflib.store import read_arrays
from tests.reference import (
    conditional_pmf,
    joint_tensor,
    make_codes,
    make_model,
    restrict,
    row_probability,
)

CARDINALITIES = [2, 3, 2]
SCHEMA = pmf.Schema(
    (
        pmf.Variable("smokes", ("no", "yes")),
        pmf.Variable("rating", ("1", "2", "5"), (1.0, 2.0, 5.0)),
        pmf.Variable("dose", ("low", "high"), edges=(5.0,)),
    )
)


@pytest.fixture
def model():
    return pmf.JointPMF(
        *make_model(np.random.default_rng(0), CARDINALITIES, 2), SCHEMA, ModelOrigin("test")
    )


@pytest.fixture
def tensor(model):
    return joint_tensor(model.prior, model.factors, CARDINALITIES)


@st.composite
def models_and_codes(draw):
    cardinalities = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parameters = make_model(rng, cardinalities, draw(st.integers(1, 3)))
    codes = make_codes(
        rng, draw(st.integers(0, 5)), cardinalities, missing=draw(st.sampled_from([0, 0.5, 1]))
    )
    return pmf.JointPMF(*parameters, pmf.Schema.from_cardinalities(cardinalities)), codes


@given(models_and_codes())
def test_every_question__equals_the_joint_tensor(case):
    model, codes = case
    cardinalities = model.schema.cardinalities.tolist()
    tensor = joint_tensor(model.prior, model.factors, cardinalities)
    expected = [np.log(row_probability(tensor, row)) for row in codes]
    np.testing.assert_allclose(model.log_prob(codes), expected, rtol=1e-11, atol=1e-12)
    completed = model.complete(codes)
    for position, size in enumerate(cardinalities):
        probabilities = model.predict_proba(codes, position)
        assert probabilities.shape == (len(codes), size)
        expected_pmf = [conditional_pmf(tensor, row, position) for row in codes]
        np.testing.assert_allclose(
            probabilities, np.reshape(expected_pmf, probabilities.shape), rtol=1e-11
        )
        assert np.array_equal(model.predict(codes, position), probabilities.argmax(axis=1))
        np.testing.assert_allclose(
            model.expected_value(codes, position), probabilities @ np.arange(size), rtol=1e-13
        )
        gaps = codes[:, position] < 0
        assert np.array_equal(completed[~gaps, position], codes[~gaps, position])
        assert np.array_equal(completed[gaps, position], probabilities[gaps].argmax(axis=1))
    assert completed.dtype == model.schema.code_dtype


@given(models_and_codes())
def test_posterior__equals_bayes_rule(case):
    model, codes = case
    posterior = model.posterior(codes)
    assert posterior.shape == (len(codes), model.rank)
    for row, found in zip(codes, posterior, strict=True):
        levels = [model.schema.offsets[j] + code for j, code in enumerate(row) if code >= 0]
        joint = model.prior * np.prod(model.factors[levels], axis=0)
        np.testing.assert_allclose(found, joint / joint.sum(), rtol=1e-12)


def test_posterior__row_with_nothing_observed_is_answered_by_the_prior(model, tensor):
    nothing = pmf.Codes([[-1, -1, -1]])
    np.testing.assert_allclose(model.posterior(nothing), [model.prior], rtol=1e-14)
    assert model.log_prob(nothing) == pytest.approx([0.0], abs=1e-15)
    np.testing.assert_allclose(
        model.predict_proba(nothing, "rating")[0], tensor.sum(axis=(0, 2)), rtol=1e-13
    )


def test_log_prob__batches_join_up(model, monkeypatch):
    codes = make_codes(np.random.default_rng(1), 23, CARDINALITIES)
    whole = [model.log_prob(codes), model.posterior(codes), model.complete(codes)]
    monkeypatch.setattr(mixture, "BATCH_ROWS", 5)
    parts = [model.log_prob(codes), model.posterior(codes), model.complete(codes)]
    for one, other in zip(whole, parts, strict=True):
        assert one.tobytes() == other.tobytes()


def test_predict_proba__tables_with_labels(model):
    table = {"smokes": ["yes", None], "rating": ["5", "1.0"], "dose": [7.5, None]}
    codes = pmf.Codes([[1, 2, 1], [-1, 0, -1]])
    assert np.array_equal(model.log_prob(table), model.log_prob(codes))
    assert np.array_equal(model.predict_proba(table, "smokes"), model.predict_proba(codes, 0))
    assert np.array_equal(model.complete(pa.table(table)), model.complete(codes))


def test_predict_proba__own_column_may_be_absent_or_hold_anything(model):
    given_others = {"rating": [5], "dose": [7.5]}
    expected = model.predict_proba(pmf.Codes([[-1, 2, 1]]), "smokes")
    for own in ({}, {"smokes": ["never heard of"]}, {"smokes": ["yes"]}, {"smokes": [None]}):
        assert np.array_equal(model.predict_proba(given_others | own, "smokes"), expected)
    assert np.array_equal(model.predict_proba(pmf.Codes([[99, 2, 1]]), "smokes"), expected)
    with pytest.raises(SchemaError, match="'dose'"):
        model.predict_proba({"rating": [5]}, "smokes")


def test_expected_value__in_the_units_of_the_values(model, tensor):
    probabilities = conditional_pmf(tensor, [1, -1, 0], 1)
    expected = probabilities @ [1.0, 2.0, 5.0]
    assert model.expected_value(pmf.Codes([[1, 0, 0]]), "rating") == pytest.approx([expected])
    with pytest.raises(SchemaError, match="'smokes'"):
        model.expected_value(pmf.Codes([[1, 0, 0]]), "smokes")


def test_marginal__every_choice_and_order_of_variables(model, tensor):
    for n in (1, 2, 3):
        for positions in itertools.permutations(range(3), n):
            axes = tuple(axis for axis in range(3) if axis not in positions)
            left = [axis for axis in range(3) if axis in positions]
            expected = tensor.sum(axis=axes).transpose(
                [left.index(position) for position in positions]
            )
            np.testing.assert_allclose(model.marginal(positions), expected, rtol=1e-12)
    assert np.array_equal(model.marginal(["dose", "smokes"]), model.marginal([2, 0]))


@pytest.mark.parametrize(
    "evidence",
    [
        {"smokes": "yes", "rating": "5"},
        {0: "yes", 1: 5},
        {"smokes": pmf.Codes([1]), "rating": np.int8(5)},
    ],
)
def test_marginal__given_levels_of_others(model, tensor, evidence):
    rest, _ = restrict(tensor, [1, 2, -1])
    np.testing.assert_allclose(model.marginal(["dose"], evidence), rest / rest.sum(), rtol=1e-12)


@pytest.mark.parametrize("level", ["high", "7.5", 7, pmf.Codes([1])])
def test_marginal__given_a_bin(model, tensor, level):
    rest, _ = restrict(tensor, [-1, -1, 1])
    expected = rest / rest.sum()
    np.testing.assert_allclose(model.marginal([0, 1], {"dose": level}), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("variables", "evidence"),
    [
        ([], None),
        (["rating", 1], None),
        (["rating"], {"rating": "1"}),
        (["rating"], {"dose": 1, 2: 0}),
        (["ratings"], None),
        (["rating"], {"smokes": "maybe"}),
        (["rating"], {"smokes": 2}),
        (["rating"], {"smokes": ""}),
        (["smokes"], {"rating": 1.5}),
    ],
)
def test_marginal__refuses(model, variables, evidence):
    with pytest.raises(SchemaError):
        model.marginal(variables, evidence)


def test_marginal__refuses_more_cells_than_its_limit():
    wide = pmf.JointPMF(np.ones(1), np.full((54, 1), 0.5), pmf.Schema.from_cardinalities([2] * 27))
    with pytest.raises(MemoryPlanError, match=f"{2**27:,} cells"):
        wide.marginal(range(27))


def test_marginal__memory_does_not_grow_with_cells_times_rank():
    import tracemalloc

    rank, n = 50, 16
    wide = pmf.JointPMF(
        np.full(rank, 1 / rank), np.full((2 * n, rank), 0.5), pmf.Schema.from_cardinalities([2] * n)
    )
    wide.marginal([0])
    tracemalloc.start()
    joint = wide.marginal(range(n))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert joint.sum() == pytest.approx(1.0)
    assert peak < 4 * joint.nbytes


def test_sample__frequencies_are_the_joint_pmf(model, tensor):
    n = 40_000
    codes = model.sample(n, rng=1)
    hits = np.bincount(np.ravel_multi_index(codes.T, tensor.shape), minlength=tensor.size)
    p = tensor.ravel()
    # six standard deviations of a binomial count: one chance in 4e7 for twelve cells
    assert np.all(np.abs(hits - n * p) < 6 * np.sqrt(n * p * (1 - p)))
    assert codes.dtype == SCHEMA.code_dtype


def test_sample__by_seed_and_by_generator(model):
    assert np.array_equal(model.sample(9, rng=5), model.sample(9, rng=np.random.default_rng(5)))
    assert model.sample(0, rng=0).shape == (0, 3)


def test_save__and_load_to_the_same_bits(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    assert loaded.prior.tobytes() == model.prior.tobytes()
    assert loaded.factors.tobytes() == model.factors.tobytes()
    assert loaded.schema == SCHEMA
    assert loaded.origin == {"method": "test"}


def test_load__kinds_are_registered_where_they_are_defined(model, tmp_path, monkeypatch):
    monkeypatch.setattr(joint_pmf, "CLASSES", dict(joint_pmf.CLASSES))

    class Weighed(pmf.JointPMF, mark="dependence=weights"):
        def list_parts(self):
            return {"weights": (np.array([0.5, 2.0]), ("weight",))}, {"dependence": "weights"}

        @classmethod
        def read_parts(cls, folder, schema, origin, attributes):
            arrays, _ = read_arrays(folder, ["prior", "factors", "weights"])
            return cls(
                arrays["prior"],
                arrays["factors"],
                schema,
                ModelOrigin.of({"weight": arrays["weights"].max()}),
            )

    Weighed(model.prior, model.factors, SCHEMA).save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    assert type(loaded) is Weighed
    assert loaded.origin == {"weight": 2.0}
    del joint_pmf.CLASSES["dependence=weights"]
    with pytest.raises(StoreError, match="'weights'"):
        pmf.JointPMF.load(tmp_path / "model")


def test_load__refuses_what_is_no_model(model, tmp_path):
    with pytest.raises(StoreError):
        pmf.JointPMF.load(tmp_path / "nowhere")
    pmf.PairCounts.zero(SCHEMA, 1).save(tmp_path / "pairs")
    with pytest.raises(StoreError, match="'pair counts'"):
        pmf.JointPMF.load(tmp_path / "pairs")
    model.save(tmp_path / "model")
    chunk = tmp_path / "model" / "factors" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-5])
    with pytest.raises(StoreError, match="'model'"):
        pmf.JointPMF.load(tmp_path / "model")
    (tmp_path / "model" / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match="'model'"):
        pmf.JointPMF.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("prior", "factors", "message"),
    [
        (np.ones(1), np.full((4, 1), 0.5), "factors"),
        (np.empty(0), np.empty((7, 0)), "rank"),
        (np.ones((1, 1)), np.full((7, 1), 0.5), "prior"),
        (
            np.array([1.5, -0.5]),
            np.full((7, 2), 0.5),
            r"prior\[1\] is -0.5",
        ),
        (
            np.array([0.5, np.inf]),
            np.full((7, 2), 0.5),
            r"prior\[1\] is inf",
        ),
        (
            np.array([0.5, 0.5]),
            np.full((7, 2), np.nan),
            r"factors\[0, 0\] is nan",
        ),
        (np.array([0.5, 0.5]), np.full((7, 2), 0.5), "sum"),
    ],
)
def test_joint_pmf__refuses_what_is_no_model(prior, factors, message):
    with pytest.raises(pmf.PmfError, match=message):
        pmf.JointPMF(prior, factors, SCHEMA)


def test_n_parameters__free_ones_only(model):
    # 1 of the prior, (1 + 2 + 1) per latent state
    assert model.n_parameters == 1 + 2 * 4
    assert model.factor("rating").shape == (3, 2)
