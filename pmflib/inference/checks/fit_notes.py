"""What is noted with every fit of latent classes: residuals of pairs, and parameters that are not determined."""

from __future__ import annotations

from pmflib.em.block_source import BlockSource
from pmflib.inference.checks.bivariate_residuals import BivariateResiduals, measure_residuals
from pmflib.information.latent_classes import ClassInformation
from pmflib.model import JointPMF


def note_fit(model: JointPMF, source: BlockSource) -> tuple[BivariateResiduals | None, str]:
    """Measure the residuals of a fit, and name the parameters that its samples do not determine.

    Parameters
    ----------
    model
        Latent classes, a single fit.
    source
        Valid samples that it was fitted to.

    Returns
    -------
    The residuals, or None if they would take more than a moment; and a note, or "".
    """
    measured = measure_residuals(model, source)
    if measured is None:
        return None, ""
    residuals, information = measured
    if information is None:
        return residuals, ""
    return residuals, ClassInformation(model).note_undetermined(information)
