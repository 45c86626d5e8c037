"""Classification of rows into latent classes: classification table and expected errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from pmflib.base.arrays import FloatArray, IntArray, check_model_type, check_row_order
from pmflib.base.display.drawing import Axes
from pmflib.base.display.summary import Summarised, Summary, SummaryTable, format_count, percent
from pmflib.base.errors import PmfError
from pmflib.base.weights import read_shares
from pmflib.information.kinds import open_information
from pmflib.information.latent_classes import ClassInformation
from pmflib.model import JointPMF


@dataclass(frozen=True, eq=False)
class Classification(Summarised):
    """Class assignments with their certainty.

    Parameters
    ----------
    average_posteriors
        float64 of shape (n_classes, n_classes): mean posteriors of all classes (columns) among rows assigned to each
        class (rows); NaN for classes without rows. Diagonal values of 0.8 and above are usually considered clear.
    errors
        float64 of the same shape: share of the rows in each true class that is assigned to each class.
    assigned, expected
        float64 of shape (n_classes,): shares of the rows by most probable class, and by posterior.
    certainty, classes
        float64 and int64 of shape (n_rows,): posterior of the most probable class for each row with any observed cell,
        and that class.
    entropy_r2
        Entropy R2: 1 minus the mean entropy of the posteriors divided by log(n_classes); NaN for a single class.
    error_rate
        Expected share of misclassified rows.
    n_rows
        Number of rows with any observed cell.
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
        """Plot the certainty of the classification; see `pmflib.fits.figures.plot_certainty`.

        Raises
        ------
        PmfError
            If matplotlib is not installed.
        """
        from pmflib.fits.figures import plot_certainty

        return plot_certainty(self.certainty, self.classes, ax=ax)

    def summary(self) -> Summary:
        """Return a summary of the classification table: text in a terminal, HTML in a notebook."""
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
        Model with latent classes or forests, from a single fit.
    samples
        `Codes` of shape (n_rows, n_variables), -1 missing, or a table that the schema can encode. Rows with nothing
        observed are omitted.
    weight
        float64 of shape (n_rows,), at least 0: number of samples that each row represents; None for 1 each.

    Returns
    -------
    The classification table and statistics derived from it, all weighted.

    Raises
    ------
    SchemaError
        If the samples do not fit the schema.
    PmfError
        If the model has no latent classes, no row has an observed cell, or a weight is out of range.

    References
    ----------
    Ramaswamy, DeSarbo, Reibstein, Robinson (1993), Marketing Science 12(1), for the entropy; Nagin (2005), "Group-based
    modeling of development", for average posteriors.
    """
    check_model_type("model", model, JointPMF)
    check_classes(model)
    codes = model.schema.encode(samples)
    check_row_order(samples, weight=weight)
    weights = read_shares(weight, len(codes))
    kept = (codes >= 0).any(axis=1) & (weights > 0)
    if not kept.any():
        raise PmfError("samples has no row with a positive weight and an observed cell")
    posteriors, weights = model.posterior(codes[kept]), weights[kept]
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
    if model.origin.final or not isinstance(open_information(model), ClassInformation):
        raise PmfError(
            "model has no latent classes of one likelihood: it has traits, or is an average of fits; give latent "
            "classes of fit_em(samples, rank=...)"
        )


def tabulate_assignment(
    posteriors: FloatArray, shares: FloatArray, weights: FloatArray
) -> FloatArray:
    """Estimate the probability that a row of each class is assigned to each class.

    Parameters
    ----------
    posteriors, shares
        float64 of shape (n_rows, n_classes): class probabilities, and assignment of each row to the classes.
    weights
        float64 of shape (n_rows,).

    Returns
    -------
    float64 of shape (n_classes, n_classes), rows sum to 1; 0 for a class without any probability.
    """
    expected = posteriors * weights[:, None]
    totals = expected.sum(axis=0)[:, None]
    return np.asarray(expected.T @ shares / np.where(totals > 0, totals, 1.0))
