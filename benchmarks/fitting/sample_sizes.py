"""Sample sizes that are foretold from a pilot, and those that planted models need.

    python -m benchmarks.fitting.sample_sizes [--designs 40] [--fits 6]
    python -m benchmarks.fitting.sample_sizes --bound

Each design has 4 to 8 variables of 2 to 4 levels, 2 to 4 states, and 40 to 100 % of the answers. A pilot is fitted, and
`pmf.inference.sample_size` foretells the rows for an error of .02 of answers, and of .03 of factors. Tables of that
many rows are
drawn from the planted model and fitted; as the error falls with the root of the rows, theirs says how many rows the
accuracy took. Beside them stand the rows that counting would need: a GROUP BY for answers, and for factors a count of
people whose states are known. The last lines have the share of designs within a factor of 1.5.

``--bound`` fits models with columns uniform on the simplex and prints by how much the constants of
`pmflib.inference.planning.sample_sizes.bound_sample_size` would have to change to suffice in half and in 95 % of the
models.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import numpy as np

import pmflib as pmf
from pmflib.inference.planning.sample_sizes import Asked, bound_sample_size, sample_size
from pmflib.model.sampling import sample_codes
from pmflib.papers.metrics import match_factors

PILOT_ROWS = 3000
ACCURACY: dict[Asked, float] = {"answers": 0.02, "factors": 0.03}
WITHIN = 1.5


@dataclass(frozen=True)
class Planted:
    """A planted model, and the share of answers that are observed."""

    model: pmf.JointPMF
    observed: float

    @classmethod
    def draw(cls, seed: int, *, uniform: bool = False) -> Planted:
        """Draw a design; columns of the factors are uniform on the simplex, or such that states can be told apart."""
        rng = np.random.default_rng(seed)
        n_variables, rank = int(rng.integers(4, 9)), int(rng.integers(2, 5))
        cardinalities = [int(rng.integers(3 if rank > 2 else 2, 5))] * n_variables
        schema = pmf.Schema.from_cardinalities(cardinalities)
        concentration = 1.0 if uniform else 0.6
        columns = [rng.dirichlet(np.full(c, concentration), rank).T for c in cardinalities]
        prior = np.full(rank, 1 / rank) if uniform else rng.dirichlet(np.full(rank, 8.0))
        factors = 0.98 * np.concatenate(columns) + 0.02 / cardinalities[0]
        return cls(pmf.JointPMF(prior, factors, schema), float(rng.uniform(0.4, 1.0)))

    def fit(self, n_rows: int, seed: int) -> pmf.JointPMF:
        """Fit rows that are drawn from the model."""
        model, rng = self.model, np.random.default_rng(seed)
        codes = sample_codes(
            model.prior, model.factors, model.schema.offsets, n_rows, rng, observed=self.observed
        )
        return pmf.fit_em(codes, schema=model.schema, rank=model.rank).model

    def find_errors(self, fitted: pmf.JointPMF, of: Asked) -> np.ndarray:
        """Errors of a fit, with the weights of their answers multiplied in."""
        true = self.model
        if of == "factors":
            match = match_factors(true.prior, true.factors, fitted.prior, fitted.factors)
            return (fitted.factors[:, match] - true.factors).ravel()
        errors, weights = [], []
        for given in range(true.schema.n_variables):
            rows = true.schema.rows_of(given)
            tables = []
            for model in (true, fitted):
                joint = (model.factors * model.prior) @ model.factors[rows].T
                tables.append(joint / (model.factors[rows] @ model.prior))
            off = np.delete(tables[1] - tables[0], rows, axis=0)
            errors.append(off.ravel())
            weights.append(np.broadcast_to(true.factors[rows] @ true.prior, off.shape).ravel())
        every = np.concatenate(weights)
        found: np.ndarray = np.concatenate(errors) * np.sqrt(every / every.mean())
        return found

    def count_rows(self, of: Asked, accuracy: float) -> float:
        """Rows from which counting has the accuracy."""
        model = self.model
        if of == "factors":
            spread = model.factors * (1 - model.factors) / (model.prior * self.observed)
            return float(spread.mean()) / accuracy**2
        spreads, weights = [], []
        for given in range(model.schema.n_variables):
            rows = model.schema.rows_of(given)
            share = model.factors[rows] @ model.prior
            answers = np.delete(
                (model.factors * model.prior) @ model.factors[rows].T / share, rows, 0
            )
            # the share of the condition cancels: rarer ones need more rows, and are asked less often
            spreads.append(answers * (1 - answers) / self.observed**2)
            weights.append(np.broadcast_to(share, answers.shape))
        total = sum(float(each.sum()) for each in spreads)
        return total / sum(float(each.sum()) for each in weights) / accuracy**2


def check_design(seed: int, n_fits: int) -> dict[Asked, tuple[int, float, float]]:
    """Rows foretold, and rows that were needed by fits, and by counting."""
    planted = Planted.draw(seed)
    pilot = planted.fit(PILOT_ROWS, 1000 + seed)
    found: dict[Asked, tuple[int, float, float]] = {}
    for of, accuracy in ACCURACY.items():
        n_rows = sample_size(pilot, accuracy, observed=planted.observed, of=of).n_rows
        squares = [
            np.mean(planted.find_errors(planted.fit(n_rows, 10_000 + 100 * seed + fit), of) ** 2)
            for fit in range(n_fits)
        ]
        needed = n_rows * float(np.mean(squares)) / accuracy**2
        counted = planted.count_rows(of, accuracy)
        found[of] = n_rows, needed, counted
    return found


def run(n_designs: int, n_fits: int) -> None:
    """Print a line for each design, and the share within the factor."""
    print("| design | of | rows foretold | rows needed | ratio | by counting |")
    print("|---|---|---|---|---|---|")
    ratios: dict[Asked, list[float]] = {of: [] for of in ACCURACY}
    for seed in range(n_designs):
        for of, (n_rows, needed, counted) in check_design(seed, n_fits).items():
            ratios[of].append(n_rows / needed)
            print(
                f"| {seed} | {of} | {n_rows:,} | {needed:,.0f} | {n_rows / needed:.2f} | {counted:,.0f} |",
                flush=True,
            )
    for of, found in ratios.items():
        share = np.mean([1 / WITHIN <= ratio <= WITHIN for ratio in found])
        print(
            f"{of}: {share:.0%} of {len(found)} designs within a factor of {WITHIN}, "
            f"median ratio {np.median(found):.2f}"
        )


def run_bound(n_designs: int) -> None:
    """Print the constants of the bounds."""
    for learnt_from in ("samples", "pairs"):
        constants = []
        for seed in range(n_designs):
            planted = Planted.draw(seed, uniform=True)
            model, n_rows = planted.model, 20_000
            sizes = model.schema.n_variables, model.schema.cardinalities[0], model.rank
            codes = sample_codes(
                model.prior,
                model.factors,
                model.schema.offsets,
                n_rows,
                np.random.default_rng(seed),
                observed=planted.observed,
            )
            if learnt_from == "samples":
                fitted = pmf.fit_em(codes, schema=model.schema, rank=model.rank).model
            else:
                fitted = pmf.fit(pmf.count_pairs(codes, model.schema), rank=model.rank).model
            largest = float(np.abs(planted.find_errors(fitted, "factors")).max())
            bound = bound_sample_size(
                *sizes, min(largest, 0.99), observed=planted.observed, learnt_from=learnt_from
            )
            constants.append(n_rows / bound)
        print(
            f"{learnt_from}, times the constants in use: median {np.median(constants):.2f}, "
            f"95 % {np.quantile(constants, 0.95):.2f}"
        )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--designs", type=int, default=40)
    parser.add_argument("--fits", type=int, default=6)
    parser.add_argument("--bound", action="store_true")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.bound:
            run_bound(options.designs)
        else:
            run(options.designs, options.fits)


if __name__ == "__main__":
    main()
