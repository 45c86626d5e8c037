"""Groups whose conditional PMFs are equal but for one variable, or all equal: what `pmf.fit_groups` says of them.

    python -m benchmarks.models.groups [TABLES] [SEED]

TABLES (60) tables of each line are drawn: 1,000 rows, six questions of two levels, two classes, three groups with
other shares of the classes, a tenth of the answers missing. In the second group the third question distinguishes the
classes by as much less as the line says. A line has the shares of the tables in which that question is the first of
the differences and beyond chance, in which any other is, in which the test of "equal" within "free" rejects at .05,
the simplest thing to do, and that of "partial" within "free" does; and in which BIC is least for "equal", "partial"
and "free".
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.special import chdtrc

import pmflib as pmf

N_ROWS = 1000
SHIFTS = (0.0, 0.15, 0.3, 0.5)
"""How much less the question distinguishes the classes in the second group: by so much of the way to one half."""


def main() -> None:
    """Print the table."""
    n_tables = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 600
    warnings.simplefilter("ignore")
    schema = pmf.Schema.from_cardinalities([2] * 6)
    print(
        "| shift | found first | others | equal in free | partial in free | BIC: equal | partial | free |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shift in SHIFTS:
        lines = []
        for each in range(n_tables):
            rng = np.random.default_rng([seed, each])
            member = rng.integers(0, 3, N_ROWS)
            kind = (rng.random(N_ROWS) < np.array([0.3, 0.5, 0.7])[member]).astype(int)
            chances = np.tile(np.array([0.2, 0.8])[kind][:, None], (1, 6))
            own = member == 1
            chances[own, 2] += shift * (0.5 - chances[own, 2])
            codes = (rng.random(chances.shape) < chances).astype(np.int64)
            codes[rng.random(codes.shape) < 0.1] = -1
            found = pmf.fit_groups(codes, np.array(["a", "b", "c"])[member], 2, schema=schema)
            distinct = [one.name for one in found.differences if one.is_distinct]
            equal, partial = found.tests["equal"], found.tests["partial"]
            degrees = equal.degrees + partial.degrees
            plain = chdtrc(degrees, equal.statistic + partial.statistic)
            lines.append(
                [
                    distinct[:1] == ["v2"],
                    bool(set(distinct) - {"v2"}),
                    plain <= 0.05,
                    partial.p_value <= 0.05,
                    *(found.best == name for name in ("equal", "partial", "free")),
                ]
            )
        shares = " | ".join(f"{share:.2f}" for share in np.array(lines, np.float64).mean(axis=0))
        print(f"| {shift} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
