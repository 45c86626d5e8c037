"""What is asked of every fit, with what it must be equal to, found in another way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib
import numpy as np

import pmflib as pmf
from pmflib.answering import MEASURES, parse_question
from pmflib.base import DenseBlock, weigh_samples
from pmflib.inference.imputation import draw_gaps, fit_resampled, seed_rows
from pmflib.surveys.design import SurveyDesign
from tests.product.cells import (
    CELLS,
    CODES,
    FRAME,
    GROUP,
    IN_MEMORY,
    N_ROWS,
    SIZES,
    Case,
    Request,
    count_joint,
    enumerate_joint,
    flatten,
)

matplotlib.use("Agg")

VALUES = np.arange(3.0)
"""Values of the levels of v0."""


def find_entropy(table: Any) -> float:
    """Entropy of a table, nats."""
    return float(-sum(p * math.log(p) for p in table.ravel() if p > 0))


def find_information(table: Any) -> float:
    """Mutual information of the axes of a table."""
    return find_entropy(table.sum(axis=0)) + find_entropy(table.sum(axis=1)) - find_entropy(table)


def find_odds(p: float) -> float:
    """Odds of a probability."""
    return p / (1 - p)


def by_other(table: Any, measure: Callable[[Any], Any]) -> dict[str, Any]:
    """A measure of v0 given each level of v1, from their table."""
    return {str(level): measure(table[:, level] / table[:, level].sum()) for level in range(2)}


def find_quantile(share: float) -> Callable[[Any], Any]:
    """Quantile of v0."""
    return lambda p: VALUES[int(np.searchsorted(np.cumsum(p), share))]


def by_third(table: Any, measure: Callable[[Any], float]) -> float:
    """Mean of a measure of the first two of three variables over the levels of the third."""
    parts = [(table[:, :, n].sum(), table[:, :, n]) for n in range(table.shape[2])]
    return float(sum(total * measure(part / total) for total, part in parts))


def find_distance(table: Any) -> float:
    """Total variation of a table and the product of its margins."""
    return float(np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum() / 2)


def find_best(table: Any) -> dict[str, Any]:
    """Likeliest levels of v0 and v2 given the first of v1."""
    place = np.unravel_index(table[:, :, 0].argmax(), (3, 3))
    return {"v0": str(place[0]), "v2": str(place[1])}


ANSWERS: dict[str, dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]]] = {
    "P": {
        "P(v0=1 | v1=0)": ((0, 1), lambda t: t[1, 0] / t[:, 0].sum()),
        "P(v0=1 | v1)": ((0, 1), lambda t: by_other(t, lambda p: p[1])),
    },
    "E": {
        "E(v0 | v1=0)": ((0, 1), lambda t: VALUES @ t[:, 0] / t[:, 0].sum()),
        "E(v0 | v1)": ((0, 1), lambda t: by_other(t, lambda p: VALUES @ p)),
    },
    "median": {
        "median(v0 | v1=0)": ((0, 1), lambda t: by_other(t, find_quantile(0.5))["0"]),
        "median(v0 | v1)": ((0, 1), lambda t: by_other(t, find_quantile(0.5))),
    },
    "quantile": {
        "quantile(v0, 0.9 | v1=0)": ((0, 1), lambda t: by_other(t, find_quantile(0.9))["0"]),
        "quantile(v0, 0.9 | v1)": ((0, 1), lambda t: by_other(t, find_quantile(0.9))),
    },
    "argmax": {
        "argmax(v0, v2 | v1=0)": ((0, 2, 1), find_best),
        "argmax(v0, v2 | v1)": ((0, 2, 1), find_best),
    },
    "H": {
        "H(v0, v2 | v1=0)": ((0, 2, 1), lambda t: find_entropy(t[:, :, 0] / t[:, :, 0].sum())),
        "H(v0 | v1)": ((0, 1), lambda t: find_entropy(t) - find_entropy(t.sum(axis=0))),
    },
    "MI": {
        "MI(v0; v2 | v1=0)": (
            (0, 2, 1),
            lambda t: find_information(t[:, :, 0] / t[:, :, 0].sum()),
        ),
        "MI(v0; v2 | v1)": ((0, 2, 1), lambda t: by_third(t, find_information)),
    },
    "TV": {
        "TV(v0 | v1=0; v1=1)": (
            (0, 1),
            lambda t: np.abs(t[:, 0] / t[:, 0].sum() - t[:, 1] / t[:, 1].sum()).sum() / 2,
        ),
        "TV(v0; v2 | v1)": ((0, 2, 1), lambda t: by_third(t, find_distance)),
    },
    "odds": {
        "odds(v0=1 | v1=0)": ((0, 1), lambda t: find_odds(t[1, 0] / t[:, 0].sum())),
        "odds(v0=1 | v1)": ((0, 1), lambda t: by_other(t, lambda p: find_odds(p[1]))),
    },
    "OR": {
        "OR(v0=1 | v1=0; v1=1)": (
            (0, 1),
            lambda t: find_odds(t[1, 0] / t[:, 0].sum()) / find_odds(t[1, 1] / t[:, 1].sum()),
        ),
        "OR(v0=1; v1=1 | v2)": ((0, 1, 2), lambda t: t),
    },
}
"""Questions of each measure, single and by a variable: the positions, and the answer from the table of these."""


def check_near(found: Any, expected: Any, what: str, tolerance: float = 1e-6) -> None:
    """Raise AssertionError if numbers, or dicts of them, differ."""
    if isinstance(expected, dict) and isinstance(next(iter(expected.values())), str):
        assert found == expected, f"{what}: {found}, and {expected} by hand"
        return
    one, other = flatten(found), flatten(expected)
    is_near = one.shape == other.shape and np.allclose(one, other, rtol=tolerance, atol=tolerance)
    assert is_near, f"{what}: {found}, and {expected} by hand"


def ask(case: Case, question: str) -> Any:
    """Numbers of an answer, of a probability also its intervals; model and counts alone are checked by hand."""
    positions, find = ANSWERS[parse_question(question).measure][question]
    design = None if case.source not in IN_MEMORY else case.design
    alone = case.model.ask(question)
    others = tuple(n for n in range(len(SIZES)) if n not in positions)
    summed = case.joint.sum(axis=others)
    table = np.transpose(summed, np.argsort(np.argsort(positions)))
    check_near(alone.value, find(table), "by the model")
    if case.source != "counts" or len(positions) < 3:
        counted = case.model.ask(question, case.evidence, source="counts", design=design)
        expected = find(count_joint(case.shares, positions))
        # counts of pairs are rounded to whole effective samples
        check_near(counted.value, expected, "counted", 0.06 if case.source == "counts" else 1e-6)
    both = case.model.ask(question, case.evidence, design=design)
    assert np.isfinite(both.numbers).all(), "a number is not finite"
    if both.measure not in ("P", "odds"):
        return both.numbers
    return both.numbers, both.standard_errors, both.intervals


def describe(case: Case) -> Any:
    """States of a summary; text without numbers that are unknown, and no state twice."""
    for each in (case.result, case.model):
        text = repr(each.summary())
        assert "nan" not in text.lower(), "the summary holds nan"
        assert each.summary()._repr_html_(), "no HTML"
    states = case.model.summary().tables[0]
    rows = [tuple(row)[1:] for row in states.rows]
    doubles = len(rows) - len(set(rows))
    # states of traits are people, who may be alike
    assert not doubles or case.family == "traits", f"the summary lists {doubles} copies of a state"
    return [len(rows)]


def score(case: Case) -> Any:
    """Log-probabilities of rows, and predictions of a target."""
    table = case.model.score(FRAME, ("v0",), probabilities=True).to_pandas()
    logs = case.model.log_prob(FRAME)
    expected = [math.log(_chance_of(case, row)) for row in CODES[:20]]
    check_near(logs[:20], expected, "log-probability")
    shown = table["log_prob"] if "log_prob" in table else table.iloc[:, 0]
    check_near(shown.to_numpy()[:20], expected, "log-probability in the table")
    return logs


def _chance_of(case: Case, row: Any) -> float:
    held = ((CELLS == row) | (row < 0)).all(axis=1)
    return float(case.joint.ravel()[held].sum())


def predict(case: Case) -> Any:
    """PMF of v2 given the others, and what fills the gaps of rows."""
    found = case.model.predict_proba(FRAME, "v2")
    # traits of a row are estimated anew, and are not those of the states
    n_checked = 0 if case.family == "traits" else 20
    for row, pmf_of_row in zip(CODES[:n_checked], found[:n_checked], strict=True):
        hidden = np.array(row)
        hidden[2] = -1
        chances = [_chance_of(case, np.where(np.arange(4) == 2, k, hidden)) for k in range(3)]
        check_near(pmf_of_row, np.array(chances) / sum(chances), "prediction")
    filled = case.model.complete(FRAME)
    assert (filled >= 0).all(), "gaps are left"
    assert (filled[CODES >= 0] == CODES[CODES >= 0]).all(), "an answer was changed"
    return found


def impute(case: Case) -> Any:
    """Draws for the gaps, from refits to rows drawn with replacement."""
    samples = case.samples
    if case.source in IN_MEMORY:
        samples = case.model.schema.encode(FRAME)
        if case.weight is not None:
            samples = weigh_samples(DenseBlock(samples), case.weight, 6)
    fits = fit_resampled(case.model, samples, 2)
    filled = draw_gaps(fits[0], CODES, CODES < 0, seed_rows(np.arange(N_ROWS), 0))
    assert (filled >= 0).all(), "gaps are left"
    return [0.0]


def impute_table(case: Case) -> Any:
    """Draws of the estimator, for tables in memory."""
    imputer = pmf.PMFImputer(2, schema=case.model.schema, members=1, draws=2)
    imputer.fit(case.samples, sample_weight=case.weight)
    tables = imputer.transform(FRAME)
    assert not any(each.isna().to_numpy().any() for each in tables), "gaps are left"
    return flatten([np.asarray(each == "0", float) for each in tables])


def export(case: Case) -> Any:
    """Parameters as a table and as files."""
    frame = case.result.to_frame()
    assert not frame["value"].isna().any(), "a value is missing"
    case.result.to_csv(case.folder / "model.csv")
    lines = (case.folder / "model.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + len(frame), "the file has other rows"
    if "share" in set(frame["parameter"]):
        check_near(frame["value"][frame["parameter"] == "share"].sum(), 1.0, "shares")
    case.result.to_excel(case.folder / "model.xlsx")
    return frame["value"].to_numpy()


def export_counts(case: Case) -> Any:
    """Counts for other sites, and read again."""
    path = case.folder / "counts.csv"
    case.samples.export(path)
    again = pmf.surveys.read_counts(path)
    check_near(again.tables.sum(axis=0), case.samples.tables.sum(axis=0), "counts")
    return again.to_samples().tables.sum(axis=0)


def plot(case: Case) -> Any:
    """All figures of a model and its fit."""
    from matplotlib import pyplot

    for name, arguments in (
        ("plot_states", ()),
        ("plot_profiles", ()),
        ("plot_associations", ()),
        ("plot_marginal", ("v0",)),
    ):
        getattr(case.model, name)(*arguments)
        pyplot.close("all")
    case.result.plot_convergence()
    pyplot.close("all")
    return [0.0]


def find_errors(case: Case) -> Any:
    """Standard errors of the parameters, in the order of the model's arrays."""
    model = case.result.model if hasattr(case.result, "model") else case.model
    design = case.design if case.source in IN_MEMORY and case.weights != "equal" else None
    found = pmf.inference.standard_errors(model, case.samples, design)
    errors = [found[name].errors for name in sorted(found)]
    return np.nan_to_num(flatten(errors), nan=-1.0)


def find_residuals(case: Case) -> Any:
    """Statistics of the residuals of all pairs."""
    found = pmf.inference.bivariate_residuals(case.model, case.samples, weight=case.weight)
    rows = sorted(found.table.to_pylist(), key=lambda row: (row["variable"], row["other"]))
    # what lacks a neighbour in a forest is drawn by its position, which is another in a store
    names = ("support",) if case.family == "forests" else ("support", "excess")
    return np.nan_to_num(flatten([[row[name] for name in names] for row in rows]), nan=-1.0)


def classify(case: Case) -> Any:
    """Shares of the classes and the averages of their posteriors, by hand from posteriors."""
    found = pmf.inference.classify(case.model, case.samples, weight=case.weight)
    posteriors = case.model.posterior(CODES)
    kept = (CODES >= 0).any(axis=1)
    shares = case.shares[kept] @ posteriors[kept] / case.shares[kept].sum()
    classes = posteriors[kept].argmax(axis=1)
    assigned = np.bincount(classes, case.shares[kept], case.model.rank) / case.shares[kept].sum()
    check_near(found.assigned, assigned, "assigned")
    return shares, assigned, np.nan_to_num(found.average_posteriors)


def relate(case: Case) -> Any:
    """Mean of an outcome by class, with its errors."""
    outcome = np.where(CODES[:, 0] >= 0, CODES[:, 0], 1).astype(float)
    weight = None if isinstance(case.weight, SurveyDesign) else case.weight
    design = case.weight if isinstance(case.weight, SurveyDesign) else None
    found = pmf.inference.distal_outcome(
        case.model, case.samples, outcome, weight=weight, design=design
    )
    return found.values, found.errors


def regress(case: Case) -> Any:
    """Classes by a covariate, with errors."""
    covariate = {"x": (GROUP == "a").astype(float) + np.arange(N_ROWS) / N_ROWS}
    weight = None if isinstance(case.weight, SurveyDesign) else case.weight
    design = case.weight if isinstance(case.weight, SurveyDesign) else None
    given = {"weight": weight, "design": design}
    found = pmf.inference.class_regression(case.model, case.samples, covariate, **given)
    return found.values, found.errors


def keep(case: Case) -> Any:
    """A model is equal to itself when it has been saved."""
    path = case.folder / "model"
    case.model.save(path)
    again = type(case.model).load(path)
    assert type(again) is type(case.model), "another class"
    assert (again.log_prob(CODES) == case.model.log_prob(CODES)).all(), "other numbers"
    assert again.origin == case.model.origin, "another origin"
    check_near(enumerate_joint(again), case.joint, "saved")
    return again.log_prob(CODES)


def sample(case: Case) -> Any:
    """Drawn rows have the frequencies of the joint PMF."""
    drawn = case.model.sample(20_000, 1)
    cells = np.ravel_multi_index(tuple(drawn.T.astype(int)), SIZES)
    found = np.bincount(cells, minlength=len(CELLS)) / len(drawn)
    assert np.abs(found - case.joint.ravel()).max() < 0.015, "other frequencies"
    return [0.0]


def measure(case: Case) -> Any:
    """Log-likelihood on the data of the fit; for counts, their criterion."""
    found = case.result.criteria(case.samples)
    if case.source == "counts":
        return [found.bic]
    scale = case.shares.sum() / (case.shares**2).sum()
    expected = scale * case.shares @ case.model.log_prob(FRAME)
    # weights of stored samples sum to a whole number
    check_near(found.log_likelihood, expected, "log-likelihood", 1e-3)
    return [found.log_likelihood]


def diagnose(case: Case) -> Any:
    """Diagnosis of a model beside its counts."""
    found = pmf.inference.diagnose(case.samples, case.model)
    return [found.n_pairs, found.rank, found.n_parameters]


def weigh(case: Case) -> Any:
    """Weight of a model in answers, from unseen rows."""
    designs = {}
    if case.source in IN_MEMORY and case.design is not None:
        designs = {"design": case.design, "unseen_design": case.design}
    found = pmf.answering.weigh_model(case.model, case.samples, case.samples, **designs)
    assert math.isfinite(found.ask("P(v0=1)").numbers[0])
    return [0.0]


def rake(case: Case) -> Any:
    """A model raked to known margins has them."""
    share = np.array([0.2, 0.3, 0.5])
    margins = {"v0": dict(zip("012", (200, 300, 500), strict=True))}
    raked = case.model.rake(margins)
    check_near(raked.marginal(["v0"]), share, "raked")
    return raked.marginal(["v1"])


def fit(case: Case) -> Any:
    """The joint PMF of a fit: of one variable, close to the weighted shares."""
    assert math.isclose(case.joint.sum(), 1.0, rel_tol=1e-9), "probabilities do not sum to 1"
    if case.family not in ("panels", "groups", "traits"):
        for position in range(len(SIZES)):
            others = tuple(n for n in range(len(SIZES)) if n != position)
            expected = count_joint(case.shares, (position,))
            check_near(case.joint.sum(axis=others), expected, f"PMF of v{position}", 0.05)
    if case.family == "traits":
        # states are people drawn by their position, which is another in a store
        return case.model.trait_model.base, case.model.trait_model.slopes
    return case.joint


REQUESTS: dict[str, Request] = {
    # starts of samples in memory and stored differ in their last bits, and EM in its last steps
    "fit": Request(fit, False, 0.03, is_weighted=True),
    # stored counts are rounded to whole effective samples
    **{
        question: Request(partial(ask, question=question), tolerance=5e-3, words=("v1|v2",))
        for questions in ANSWERS.values()
        for question in questions
    },
    "summary": Request(describe, False),
    "score": Request(score, False, 0.05),
    "predict": Request(predict, False, 0.05),
    "sample": Request(sample, False),
    "impute": Request(impute),
    "impute a table": Request(impute_table),
    "export": Request(export, False, 0.2),
    "export counts": Request(export_counts),
    "plot": Request(plot, False),
    "standard errors": Request(find_errors, tolerance=1e-3, is_weighted=True, is_designed=True),
    "residuals": Request(find_residuals, tolerance=1e-3, is_weighted=True),
    "classify": Request(classify),
    "distal outcome": Request(relate, tolerance=1e-3, is_weighted=True, is_designed=True),
    "class regression": Request(regress, tolerance=1e-3, is_weighted=True, is_designed=True),
    "save and load": Request(keep, False, 0.05),
    "criteria": Request(measure, tolerance=1e-3, is_weighted=True),
    "diagnose": Request(diagnose),
    "weigh": Request(weigh),
    "rake": Request(rake, False, 0.05),
}
"""What is asked; questions come from `ANSWERS`, which has all of `MEASURES`."""
assert ANSWERS.keys() == MEASURES.keys()


def offers(family: str, source: str, weights: str, name: str) -> bool:
    """Whether there is such a cell: counts alone are exported, and a chain or groups have fewer methods."""
    if name in ("plot", "sample", "rake", "export") and weights in ("equal", "design"):
        # of a model alone, which those of other weights are like
        return False
    if name in ("export counts", "diagnose"):
        return source == "counts"
    if name == "impute" and source == "counts":
        return False
    if name == "impute a table":
        # by an estimator with a model of its own
        return family == "classes"
    if family == "groups":
        return name not in ("export", "plot", "criteria")
    return not (family == "panels" and name in ("export", "criteria"))
