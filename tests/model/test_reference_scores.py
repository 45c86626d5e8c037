"""Percentiles among reference samples: even over rows of the same kind, whatever their gaps."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.model import HELD_OUT, ReferenceScores, RowScorer, score_reference
from tests.model.test_row_scores import draw, make_model

MODEL = make_model([4] * 20, 5, concentration=0.4)


def hide_by_row(codes, rng):
    """Gaps that depend on the row: some leave out nearly all, and who chose the first level leaves more."""
    share = rng.choice([0.0, 0.2, 0.9], len(codes))
    share = np.where(codes[:, 0] == 0, np.minimum(share + 0.3, 0.95), share)
    out = codes.copy()
    out[rng.random(codes.shape) < share[:, None]] = -1
    return out


def find_percentiles(reference, codes):
    found = RowScorer(MODEL).score(codes)
    observed = found.n_observed > 0
    percentiles = reference.find_percentiles(found.surprises, found.n_observed)
    assert np.isnan(percentiles[~observed]).all()
    return percentiles[observed], found.n_observed[observed]


def distance(percentiles):
    """Largest distance from the uniform distribution, in [0, 1]: Kolmogorov and Smirnov's."""
    ordered = np.sort(percentiles) / 100
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())


def critical(*sizes):
    """Distance that samples of one distribution exceed once in a thousand times, about."""
    return 1.95 * np.sqrt(sum(1 / size for size in sizes))


def make_reference(codes):
    return ReferenceScores.make(
        [score_reference(codes, np.arange(len(codes)), RowScorer(MODEL))], HELD_OUT
    )


@pytest.mark.parametrize("kind", ["random", "by row"])
def test_find_percentiles__uniform_on_rows_like_the_reference(kind):
    rng = np.random.default_rng(5)

    def make(n_rows, seed):
        codes = MODEL.sample(n_rows, seed)
        if kind == "by row":
            return hide_by_row(codes, rng)
        codes[rng.random(codes.shape) < rng.uniform(0, 0.9, (n_rows, 1))] = -1
        return codes

    reference = make_reference(make(20_000, 1))
    percentiles, counts = find_percentiles(reference, make(20_000, 2))
    assert distance(percentiles) < critical(20_000, 20_000)
    # and for rows with few observed cells, or many: there are some thousand of each
    for rows in (counts <= 4, (counts > 4) & (counts < 15), counts >= 15):
        n_rows = np.count_nonzero(rows)
        # with few cells scores are discrete, and bands hold neighbouring numbers of cells
        assert distance(percentiles[rows]) < critical(n_rows, n_rows) + 0.02


def test_find_percentiles__rows_with_more_gaps_than_any_reference_sample():
    reference = make_reference(draw(MODEL, 20_000, 0.05))
    for missing in (0.3, 0.6, 0.85):
        percentiles, _ = find_percentiles(reference, draw(MODEL, 10_000, missing, seed=7))
        assert distance(percentiles) < critical(10_000, 5_000) + 0.02


def test_draw__percentiles_of_a_model_alone():
    reference = ReferenceScores.draw(MODEL)
    for missing in (0.0, 0.5):
        percentiles, _ = find_percentiles(reference, draw(MODEL, 10_000, missing, seed=3))
        assert distance(percentiles) < critical(10_000, 10_000) + 0.02


def test_find_percentiles__ties_are_in_the_middle():
    counts = np.full(4, 2)
    none = np.empty(0), np.empty(0, int)
    reference = ReferenceScores.make([(np.array([1.0, 2, 2, 3]), counts, *none)], HELD_OUT)
    found = reference.find_percentiles(np.array([0.0, 1, 2, 2.5, 9, np.nan]), np.full(6, 2))
    np.testing.assert_array_equal(found, [0, 12.5, 50, 75, 100, np.nan])


def test_save__reads_back(tmp_path):
    reference = make_reference(draw(MODEL, 3000, 0.4))
    reference.save(tmp_path / "reference")
    again = ReferenceScores.load(tmp_path / "reference")
    for name in ("surprises", "bands", "edges"):
        np.testing.assert_array_equal(getattr(again, name), getattr(reference, name))
    assert again.origin == HELD_OUT


def test_make__refuses_samples_with_nothing_observed():
    with pytest.raises(pmf.PmfError):
        make_reference(np.full((5, 20), -1, np.int8))


def measure_ranking(scores, anomalous):
    """Share of the pairs of an anomaly and another row in which the anomaly has the higher score."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(len(scores))
    n_found = np.count_nonzero(anomalous)
    return (ranks[anomalous].mean() - (n_found - 1) / 2) / (len(scores) - n_found)


def test_score__planted_anomalies_have_high_percentiles():
    """Rows with shuffled cells are found; the reference, the rows as they are and the anomalies are different draws."""
    model = make_model([5] * 30, 6, concentration=0.3)
    scorer = RowScorer(model)

    def make(n_rows, seed):
        codes, rng = model.sample(n_rows, seed), np.random.default_rng(seed)
        codes[rng.random(codes.shape) < rng.uniform(0, 0.6, (n_rows, 1))] = -1
        return codes

    codes, others = make(6000, 21), model.sample(6000, 22)
    anomalous = np.arange(6000) < 300
    # four in ten cells are those of another row
    mixed = (
        (np.random.default_rng(11).random(codes.shape) < 0.4) & anomalous[:, None] & (codes >= 0)
    )
    codes[mixed] = others[mixed]
    sample = make(10_000, 23)
    reference = ReferenceScores.make(
        [score_reference(sample, np.arange(len(sample)), scorer)], HELD_OUT
    )
    found = scorer.score(codes)
    percentiles = reference.find_percentiles(found.surprises, found.n_observed)
    # log-probabilities of rows with different gaps say less
    area = measure_ranking(percentiles, anomalous)
    assert area > 0.85
    assert area > measure_ranking(-found.log_probs, anomalous) + 0.05


def test_score__the_most_surprising_variable_is_the_planted_one():
    """One cell of each row gets another level; of those whose own level was probable, most are found."""
    rng = np.random.default_rng(3)
    model = make_model([5] * 30, 6, concentration=0.1)
    codes = model.sample(4000, 5)
    rows, positions = np.arange(4000), rng.integers(0, 30, 4000)
    codes[rows, positions] = (codes[rows, positions] + rng.integers(1, 5, 4000)) % 5
    found = RowScorer(model).score(codes)
    hit = (found.variables == positions).mean()
    assert hit > 0.7
