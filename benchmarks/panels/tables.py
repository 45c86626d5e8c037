"""Tables of public data as codes, and halves of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import pmflib as pmf

MOST_LEVELS, N_BINS = 45, 8
"""Levels of a column above which it is cut into so many bins of equal frequency."""
READING: dict[str, tuple[str, dict[str, object]]] = {
    "adult": ("adult/UCI_ADULT.data.gz", {"header": None, "skipinitialspace": True}),
    "mushroom": ("mushroom/UCI_MUSHROOM.data", {"header": None}),
    "krkopt": ("krkopt/krkopt.csv.gz", {"sep": "\t"}),
    "fars": ("fars/fars.csv.gz", {"sep": "\t"}),
    "nltcs": ("nltcs/nltcs.train.data.gz", {"header": None}),
    "plants": ("plants/plants.train.data.gz", {"header": None}),
    "pisa2009": ("pisa2009/pisaitems.csv.gz", {}),
    "votes": ("votes/UCI_VOTERS.data", {"header": None}),
    "car": ("car/UCI_CAR.data", {"header": None}),
    "gss7402": ("gss7402/gss7402.csv.gz", {}),
    "doctorvisits": ("doctorvisits/doctorvisits.csv.gz", {}),
}
"""Files, and how pandas reads them."""


def read_codes(data: Path, name: str, most_rows: int, seed: int = 0) -> np.ndarray:
    """Read some rows of a table by chance: codes by the order of the texts, -1 is missing."""
    path, options = READING[name]
    table = pd.read_csv(data / path, dtype=str, keep_default_na=False, **options)
    order = np.random.default_rng(seed).permutation(len(table))[:most_rows]
    columns = []
    for _, column in table.iloc[order].items():
        texts = column.str.strip().to_numpy(str)
        absent = np.isin(texts, ["", "?"])
        numbers = pd.to_numeric(pd.Series(texts[~absent]), errors="coerce").to_numpy()
        known = texts[~absent]
        if np.unique(known).size > MOST_LEVELS and not np.isnan(numbers).any():
            cuts = np.unique(np.quantile(numbers, np.arange(1, N_BINS) / N_BINS))
            known = np.searchsorted(cuts, numbers)
        levels, found = np.unique(known, return_inverse=True)
        codes = np.full(texts.size, -1)
        codes[~absent] = found
        if levels.size > 1:
            columns.append(codes)
    return np.stack(columns, axis=1)


def make_schema(codes: np.ndarray) -> pmf.Schema:
    """Make a schema of as many levels as the codes have."""
    return pmf.Schema.from_cardinalities((codes.max(axis=0) + 1).tolist())


def draw_model(
    n_variables: int, n_levels: int, rank: int, rng: np.random.Generator, sharpness: float
) -> pmf.JointPMF:
    """Draw latent classes, none of which is rare, with PMFs of a Dirichlet law."""
    prior = 0.7 * rng.dirichlet(np.full(rank, 5.0)) + 0.3 / rank
    drawn = rng.dirichlet(np.full(n_levels, sharpness), (n_variables, rank)).transpose(0, 2, 1)
    factors = 0.95 * drawn.reshape(-1, rank) + 0.05 / n_levels
    return pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities([n_levels] * n_variables))
