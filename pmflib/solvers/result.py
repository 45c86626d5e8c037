"""What every solver hands back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pmflib.arrays import FloatArray
from pmflib.selection.comparison import Comparison


@dataclass(frozen=True, eq=False)
class SolverResult:
    """A fitted prior and its factors, with the story of the fit.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities of the latent states; sums to 1.
    factors
        float64 of shape (n_levels, rank), conditional probabilities of all variables, stacked;
        each variable's rows sum to 1 in every column.
    loss_history
        The solver's loss as its docstring defines it; the last entry is the loss of this result.
    n_iter
        Iterations made, at least 0.
    converged
        Whether the stopping rule was met before the limit of iterations; True for a direct solver.
    notes
        One sentence for each choice or repair that the solver made by itself.
    method
        Name of what made the result, where it is another than the method that was called; else empty.
    comparisons
        What was chosen on held-out data on the way.
    """

    prior: FloatArray
    factors: FloatArray
    loss_history: tuple[float, ...]
    n_iter: int
    converged: bool
    notes: tuple[str, ...] = ()
    method: str = ""
    comparisons: tuple[Comparison, ...] = ()

    def with_notes(self, notes: tuple[str, ...], method: str = "") -> SolverResult:
        """Put notes on what went before it ahead of its own, and name what made it."""
        return replace(self, notes=(*notes, *self.notes), method=method or self.method)
