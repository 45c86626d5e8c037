"""The product of features: families of models, inputs, weights and what is asked, each combination a cell.

A cell is right, or refused by a `PmfError`, or wrong. What it must equal is found in other ways: by enumeration of the
joint PMF, by counting rows, and from its neighbours: stored samples are those in memory, a bucket is a folder, equal
weights are none. A family, an input or a request enters the product by an entry in its table.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pmflib as pmf
from pmflib.answering import equivalent_samples, open_evidence, posterior
from pmflib.base import PmfError
from pmflib.em import StoredSamples
from pmflib.model import row_scores
from pmflib.store import find_last_run
from pmflib.surveys.design import SurveyDesign
from tests.pipelines import (
    draw_codes,
    make_schema,
    record_night,
    run_to_model,
    store_of,
    write_pipeline,
)

SIZES = (3, 2, 3, 2)
"""Two waves of two variables, for panels."""
N_ROWS = 200
SCHEMA = make_schema(*SIZES)
NAMES = SCHEMA.names
CELLS = np.array(list(itertools.product(*map(range, SIZES))), np.int8)
"""All combinations of levels."""
CODES = draw_codes(N_ROWS, SIZES, seed=5, missing=0.05)
CODES.flags.writeable = False
FRAME = pd.DataFrame(
    {
        name: [None if each < 0 else str(each) for each in CODES[:, n]]
        for n, name in enumerate(NAMES)
    }
)
WEIGHT = np.where(CODES[:, 0] == 2, 3.0, np.where(CODES[:, 3] == 1, 0.5, 1.0))
"""Weights that move every PMF of one variable by more than a tenth."""
UNIT = np.argsort(np.argsort(CODES @ [4, 2, 2, 1], kind="stable")) // 5
"""Sampling units of five rows that are alike, so that a design widens intervals."""
GROUP = np.array(["a", "b"])[np.arange(N_ROWS) % 2]
SEED = int(np.random.default_rng(0).integers(2**63))
"""Seed of stored samples, for the starts of samples in memory with seed 0."""

WEIGHTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "equal": lambda: np.full(N_ROWS, 2.5),
    "weights": lambda: WEIGHT,
    "design": lambda: SurveyDesign(WEIGHT, psu=UNIT, decimals=6),
}
COLUMNS = {
    "none": {},
    "equal": {"weight": "w"},
    "weights": {"weight": "w"},
    "design": {"weight": "w", "psu": "u"},
}
"""Options of the source of a pipeline that has these weights."""


def fit_classes(samples: Any, weight: Any, **options: Any) -> Any:
    """Fit two latent classes, to samples or to counts of pairs."""
    if isinstance(samples, pmf.PairCounts) and not options:
        return pmf.fit(samples, 2)
    is_stored = isinstance(samples, StoredSamples)
    schema = None if is_stored else SCHEMA
    given = {"rank": 2, "schema": schema, "start": "random", "pseudo_count": 0.5, **options}
    seed = SEED if is_stored else 0
    return pmf.fit_em(samples, **given, weight=weight, rng=seed, max_passes=2000, tol=1e-10)


def fit_stack(samples: Any, weight: Any) -> Any:
    """Fit a stack of models."""
    is_stored = isinstance(samples, StoredSamples)
    schema = None if is_stored else SCHEMA
    return pmf.fit_em(samples, schema=schema, weight=weight, rng=SEED if is_stored else 0)


def fit_traits(samples: Any, weight: Any) -> Any:
    """Fit a trait and its states."""
    schema = None if isinstance(samples, StoredSamples) else SCHEMA
    given: Any = {"dimensions": 1, "n_states": 4, "shrinkage": 1.0, "passes": 20}
    return pmf.families.fit_traits(samples, schema, **given, weight=weight)


def fit_items(samples: Any, weight: Any) -> Any:
    """Fit item responses."""
    schema = None if isinstance(samples, StoredSamples) else SCHEMA
    return pmf.families.fit_item_responses(samples, schema=schema, weight=weight)


def fit_panel(samples: Any, weight: Any) -> Any:
    """Fit a chain of two states over two waves."""
    schema = None if isinstance(samples, StoredSamples) else SCHEMA
    return pmf.families.fit_transitions(
        samples, 2, waves=2, schema=schema, n_starts=2, weight=weight
    )


def fit_groups(samples: Any, weight: Any) -> Any:
    """Fit classes of two groups, which have one PMF each."""
    return pmf.families.fit_groups(samples, GROUP, 2, schema=SCHEMA, free=(), weight=weight)


FAMILIES: dict[str, Callable[[Any, Any], Any]] = {
    "classes": fit_classes,
    "average": lambda samples, weight: fit_classes(samples, weight, members=3),
    "forests": lambda samples, weight: fit_classes(samples, weight, dependence="tree"),
    "stack": fit_stack,
    "traits": fit_traits,
    "items": fit_items,
    "panels": fit_panel,
    "groups": fit_groups,
}
"""Families of models: how one is fitted to samples, or counts, and weights."""
FAMILY_WORDS = {
    "classes": "class",
    "average": "average",
    "forests": "forest|[Tt]ree",
    "stack": "stack|mixture|average|forest|[Tt]ree",
    "traits": "trait",
    "items": "trait|item",
    "panels": "panel|[Tt]ransition|wave",
    "groups": "group",
}
"""Words of refusals that name a family, a source or weights."""
IN_MEMORY = {"frame": FRAME, "codes": CODES}
"""Samples in memory, a row each."""
SOURCE_WORDS = {
    "frame": "",
    "codes": "array",
    "stored": "stored|StoredSamples",
    "bucket": "stored|StoredSamples",
    "counts": "count|PairCounts",
}
WEIGHT_WORDS = {
    "none": "",
    "equal": "weight",
    "weights": "weight",
    "design": "[Dd]esign|with weights",
}


@dataclass(frozen=True)
class Place:
    """A pipeline with these samples that has run once."""

    config: Any
    stages: Any

    @cached_property
    def samples(self) -> StoredSamples:
        folds = range(self.config.store.folds)
        return StoredSamples.open(
            store_of(self.config), self.stages["dataset"], SCHEMA, folds, spare_bytes=0
        )

    @property
    def evidence(self) -> Any:
        store, model = store_of(self.config), self.stages["model"]
        assert find_last_run(store, self.config.name) is not None
        return open_evidence(store, self.config.name, model, SCHEMA)


def build_place(folder: Path, weights: str, store: str, workers: str) -> Place:
    """Write the samples as CSV, and run a pipeline over them into a store."""
    folder.mkdir(parents=True)
    config = write_pipeline(
        folder, SCHEMA, COLUMNS[weights], store={"folds": 4, "path": store}, name="product"
    )
    table = FRAME.assign(w=2.5 if weights == "equal" else WEIGHT, u=UNIT)
    table[[*NAMES, *COLUMNS[weights].values()]].to_csv(folder / "data" / "a.csv", index=False)
    stages = run_to_model(config, workers)
    record_night(config, stages)
    return Place(config, stages)


@dataclass(frozen=True)
class Case:
    """What a cell is asked with.

    Parameters
    ----------
    family, source, weights
        Entries of `FAMILIES`, `World.sources` and `WEIGHTS`.
    result, model
        What the fit returns, and the model in it.
    samples, weight
        Samples or counts, and what goes beside them as their weights.
    evidence
        What `ask` takes as data.
    folder
        Empty, for files.
    """

    family: str
    source: str
    weights: str
    result: Any
    model: Any
    samples: Any
    weight: Any
    evidence: Any
    folder: Path

    @property
    def design(self) -> Any:
        """Weights as a design."""
        if self.weight is None or isinstance(self.weight, SurveyDesign):
            return self.weight
        return SurveyDesign(self.weight)

    @cached_property
    def joint(self) -> Any:
        """The joint PMF, by enumeration."""
        return enumerate_joint(self.model).reshape(SIZES)

    @property
    def shares(self) -> Any:
        """Weight of each row."""
        return np.ones(N_ROWS) if self.weights in ("none", "equal") else WEIGHT


class World:
    """All samples, and the fits to them, each made when it is first asked for.

    Parameters
    ----------
    folder
        For stores and files.
    workers
        Address of Dask workers.
    bucket
        Name of a bucket; empty leaves the bucket out.
    """

    def __init__(self, folder: Path, workers: str, bucket: str = "") -> None:
        self.folder, self.workers, self.bucket = folder, workers, bucket
        self.sources = (*IN_MEMORY, "stored", "counts", *(["bucket"] if bucket else []))
        self.answers: dict[tuple[str, ...], Any] = {}
        self._n_cases = itertools.count()

    @cache  # noqa: B019
    def find_place(self, source: str, weights: str) -> Place:
        store = f"s3://{self.bucket}/{weights}" if source == "bucket" else "store"
        return build_place(self.folder / f"{source}-{weights}", weights, store, self.workers)

    @cache  # noqa: B019
    def find_samples(self, source: str, weights: str) -> tuple[Any, Any]:
        """Samples or counts, and the weights that go beside them."""
        if source in IN_MEMORY:
            return IN_MEMORY[source], WEIGHTS[weights]()
        if source == "counts":
            return pmf.count_pairs(CODES, SCHEMA, n_folds=4, weight=WEIGHTS[weights]()), None
        return self.find_place(source, weights).samples, None

    @cache  # noqa: B019
    def _fit(self, family: str, source: str, weights: str) -> Any:
        try:
            return FAMILIES[family](*self.find_samples(source, weights))
        except Exception as error:
            return error

    def fit(self, family: str, source: str, weights: str) -> Any:
        found = self._fit(family, source, weights)
        if isinstance(found, Exception):
            raise found
        return found

    def open_case(self, family: str, source: str, weights: str, model_from: str = "") -> Case:
        """Make a case; with the model of another source, as that of samples in memory."""
        result = self.fit(family, model_from or source, weights)
        samples, weight = self.find_samples(source, weights)
        evidence = samples
        if source in ("stored", "bucket"):
            evidence = self.find_place(source, weights).evidence
        folder = self.folder / f"case-{next(self._n_cases)}"
        folder.mkdir()
        model = take_model(result)
        given = family, source, weights, result, model, samples, weight, evidence, folder
        return Case(*given)


def take_model(result: Any) -> Any:
    """The model of a fit; of groups, that of the first."""
    return result.fits["equal"].models["a"] if hasattr(result, "fits") else result.model


def enumerate_joint(model: Any) -> Any:
    """Probability of each of `CELLS`, a product at a time."""
    chances = np.zeros(len(CELLS))
    if hasattr(model, "transitions"):
        chain = model.chain
        for number, cell in enumerate(CELLS):
            rows = model.schema.offsets[:-1] + cell
            held = [chain.emissions[rows[each]].prod(axis=0) for each in model.waves.positions]
            chances[number] = (chain.initial * held[0]) @ chain.transitions[0] @ held[1]
        return chances
    for number, cell in enumerate(CELLS.tolist()):
        for state, prior in enumerate(model.prior.tolist()):
            chance = prior
            for position, code in enumerate(cell):
                if hasattr(model, "forest"):
                    table = model.forest.view_table(model.tables, state, position)
                    parent = int(model.forest.parents[state, position])
                    chance *= table[cell[parent] if parent >= 0 else 0, code]
                else:
                    chance *= model.factors[model.schema.offsets[position] + code, state]
            chances[number] += chance
    return chances


def count_joint(shares: Any, positions: tuple[int, ...]) -> Any:
    """Weighted shares of the rows that hold all of some variables, by their levels."""
    table = np.zeros([SIZES[each] for each in positions])
    for row, share in zip(CODES, shares, strict=True):
        cell = tuple(int(row[each]) for each in positions)
        if min(cell) >= 0:
            table[cell] += share
    return table / table.sum()


def flatten(value: Any) -> Any:
    """Numbers of an answer in one array."""
    if isinstance(value, dict):
        return np.concatenate([flatten(value[name]) for name in sorted(value)])
    if isinstance(value, tuple | list):
        return np.concatenate([flatten(each) for each in value])
    return np.ravel(np.asarray(value, float))


@dataclass(frozen=True)
class Request:
    """Something asked of a fit.

    Parameters
    ----------
    ask
        Returns numbers for a case; raises AssertionError if they differ from what is found in another way.
    uses_samples
        Whether samples or counts go into it besides the model.
    tolerance
        Of equality with neighbours.
    is_weighted, is_designed
        Whether weights must change its numbers, and whether the design must besides.
    words
        Words of refusals that name the request.
    """

    ask: Callable[[Case], Any]
    uses_samples: bool = True
    tolerance: float = 1e-6
    is_weighted: bool = False
    is_designed: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a cell is: "right", "refused" or "wrong", and why."""

    word: str
    why: str = ""


def judge(
    world: World, family: str, source: str, weights: str, name: str, request: Request
) -> Verdict:
    """Ask a cell, and compare it with its neighbours."""
    verdict, found = answer(world, family, source, weights, name, request)
    if found is None:
        return verdict

    def is_near(other_source: str, other_weights: str) -> bool | None:
        other = answer(world, family, other_source, other_weights, name, request)[1]
        if other is None:
            return None
        rtol, atol = min(request.tolerance, 0.01), request.tolerance
        return found.shape == other.shape and np.allclose(found, other, rtol, atol)

    is_compared = request.uses_samples or name == "fit"
    if is_compared and source not in ("frame", "counts") and is_near("frame", weights) is False:
        return Verdict("wrong", "differs from a frame in memory")
    if weights == "equal" and is_near(source, "none") is False:
        return Verdict("wrong", "equal weights differ from none")
    if weights in ("weights", "design") and request.is_weighted and is_near(source, "none"):
        return Verdict("wrong", "weights change nothing")
    if weights == "design" and request.is_designed and is_near(source, "weights"):
        return Verdict("wrong", "the design changes nothing")
    return verdict


def answer(
    world: World, family: str, source: str, weights: str, name: str, request: Request
) -> tuple[Verdict, Any]:
    """Ask a cell, once; its numbers are None unless it is right by itself."""
    key = family, source, weights, name
    if key not in world.answers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            world.answers[key] = _ask(world, family, source, weights, request)
    found: tuple[Verdict, Any] = world.answers[key]
    return found


def _ask(
    world: World, family: str, source: str, weights: str, request: Request
) -> tuple[Verdict, Any]:
    model_from = "frame" if request.uses_samples and source != "counts" else ""
    try:
        found = flatten(request.ask(world.open_case(family, source, weights, model_from)))
    except PmfError as error:
        said = str(error)
        words = (FAMILY_WORDS[family], SOURCE_WORDS[source], WEIGHT_WORDS[weights])
        if re.search("|".join([*filter(None, words), *request.words]), said):
            return Verdict("refused", said), None
        return Verdict("wrong", f"refused without a word of what: {said}"), None
    except AssertionError as error:
        return Verdict("wrong", str(error)), None
    except Exception as error:
        return Verdict("wrong", f"{type(error).__name__}: {error}"), None
    if not np.isfinite(found).all():
        return Verdict("wrong", "a number is not finite"), None
    return Verdict("right"), found


def shorten_draws() -> None:
    """Draw fewer numbers for intervals and percentiles, which no cell compares."""
    posterior.N_DRAWS = posterior.LEAST_DRAWS = 20
    row_scores.DRAWN_ROWS = 500
    equivalent_samples.N_QUESTIONS = 40


def iterate_cells(world: World, requests: dict[str, Request]) -> Iterator[tuple[Any, ...]]:
    """Cells of the product."""
    yield from itertools.product(FAMILIES, world.sources, WEIGHTS, requests)
