"""Classification of rows into latent classes: the classification table and its expected errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from pmflib.core.arrays import FloatArray, IntArray, check_model_type
from pmflib.core.errors import PmfError
from pmflib.core.weights import read_shares
from pmflib.display.drawing import Axes
from pmflib.display.summary import Summarised, Summary, SummaryTable, format_count, percent
from pmflib.model import JointPMF


@dataclass(frozen=True, eq=False)
class Classification(Summarised):
    """Class assignments with their certainty.

    Parameters
    ----------
    average_posteriors
        float64 of shape (n_classes, n_classes): of the rows whose likeliest class is that of a table row, the mean
        posteriors of all classes; NaN where there are none. Its diagonal is what is reported, .8 and above as clear.
    errors
        float64 of the same shape: of the rows that are in a class, the share assigned to each.
    assigned, expected
        float64 of shape (n_classes,): shares of the rows by likeliest class, and by posterior.
    certainty, classes
        float64 and int64 of shape (n_rows,): posterior of the likeliest class of each row with anything observed, and
        that class.
    entropy_r2
        1 less the entropy of the posteriors over its largest, log F a row; NaN of one class.
    error_rate
        Share of the rows that are expected to be assigned wrongly.
    n_rows
        Rows with anything observed.
    """

    average_posteriors: FloatArray
    errors: FloatArray
    assigned: FloatArray
    expected: FloatArray
    certainty: FloatArray
    classes: IntArray
    entropy_r2: float
    error_rate: float
    n_rows: int

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw how sure rows are of their class: see `pmflib.fitting.figures.plot_certainty`.

        Raises
        ------
        PmfError
            If matplotlib is not installed.
        """
        from pmflib.fitting.figures import plot_certainty

        return plot_certainty(self.certainty, self.classes, ax=ax)

    def summary(self) -> Summary:
        """The table, and how sure classes are: text in a terminal, HTML in a notebook."""
        n_classes = self.assigned.size
        rows = [
            (
                str(each),
                percent(self.assigned[each]),
                *(
                    "none" if np.isnan(share) else f"{share:.3f}"
                    for share in self.average_posteriors[each]
                ),
            )
            for each in range(n_classes)
        ]
        columns = ("likeliest", ">rows", *(f">class {each}" for each in range(n_classes)))
        title = "Average posteriors by likeliest class"
        table = SummaryTable(title, columns, rows, n_classes, "average_posteriors")
        known = "one class" if math.isnan(self.entropy_r2) else f"{self.entropy_r2:.3f}"
        facts = (
            ("rows", format_count(self.n_rows)),
            ("entropy R2", known),
            ("assigned wrongly, expected", percent(self.error_rate)),
        )
        return Summary(f"Classification by {n_classes} latent classes", facts, (), (table,))


def classify(model: JointPMF, samples: object, *, weight: object | None = None) -> Classification:
    """Assign rows to their most probable latent classes, and measure the certainty of the assignment.

    Parameters
    ----------
    model
        Latent classes or forests, a single fit.
    samples
        Codes of shape (n_rows, n_variables), -1 missing, or a table that the schema can encode. Rows with nothing
        observed are left out.
    weight
        float64 of shape (n_rows,), at least 0: samples that a row stands for; None is 1.

    Returns
    -------
    The classification table and what is made of it, all by weight.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model has no latent classes, no row has anything observed, or a weight is out of range.

    References
    ----------
    Ramaswamy, DeSarbo, Reibstein, Robinson (1993), Marketing Science 12(1), for the entropy; Nagin (2005), "Group-based
    modeling of development", for average posteriors.
    """
    check_model_type("model", model, JointPMF)
    check_classes(model)
    codes = model.schema.encode(samples)
    weights = read_shares(weight, len(codes))
    kept = (codes >= 0).any(axis=1) & (weights > 0)
    if not kept.any():
        raise PmfError("samples has no row with a weight and anything observed")
    posteriors, weights = model.posterior(np.ascontiguousarray(codes[kept])), weights[kept]
    total = float(weights.sum())
    classes = posteriors.argmax(axis=1)
    likeliest = np.eye(model.rank)[classes]
    held = weights @ likeliest
    sums = (likeliest * weights[:, None]).T @ posteriors
    averages = np.where(held[:, None] > 0, sums / np.maximum(held[:, None], 1e-300), np.nan)
    entropy = -float(weights @ xlogy(posteriors, posteriors).sum(axis=1))
    certainty = posteriors.max(axis=1)
    return Classification(
        averages,
        tabulate_assignment(posteriors, likeliest, weights),
        held / total,
        weights @ posteriors / total,
        certainty,
        classes,
        1 - entropy / (total * math.log(model.rank)) if model.rank > 1 else math.nan,
        1 - float(weights @ certainty) / total,
        len(posteriors),
    )


def check_classes(model: JointPMF) -> None:
    """Check that the states of a model are latent classes of a single likelihood.

    Raises
    ------
    PmfError
        If it has traits, or is an average of fits.
    """
    if model.trait_model is not None or model.origin.get("final"):
        raise PmfError(
            "model has no latent classes of one likelihood: it has traits, or is an average of fits; give latent "
            "classes of fit_em(samples, rank=...)"
        )


def tabulate_assignment(
    posteriors: FloatArray, shares: FloatArray, weights: FloatArray
) -> FloatArray:
    """Probability that a row of a class is assigned to each class.

    Parameters
    ----------
    posteriors, shares
        float64 of shape (n_rows, n_classes): probabilities of the classes, and how much a row is assigned to each.
    weights
        float64 of shape (n_rows,).

    Returns
    -------
    float64 of shape (n_classes, n_classes), rows sum to 1; 0 for a class that no row may be in.
    """
    expected = posteriors * weights[:, None]
    totals = expected.sum(axis=0)[:, None]
    return np.asarray(expected.T @ shares / np.where(totals > 0, totals, 1.0))
