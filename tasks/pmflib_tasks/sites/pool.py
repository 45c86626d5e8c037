"""Stages: counts of the pipeline and of other sites together, and the model of their pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.base.machine import find_memory_limit
from pmflib.base.texts import list_some
from pmflib.cluster.memory import MemoryPlan
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.zarr_tables import PAIRS
from pmflib.store.artefacts import Reference, Store
from pmflib.store.objects.local_folder import digest_file
from pmflib.surveys.sites.site_counts import add_sites, list_differences
from pmflib.surveys.sites.site_files import read_site
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.health import Check, HealthLine
from pmflib_tasks.holdings import Holder
from pmflib_tasks.planned_stages import PlannedStage, RunSizes
from pmflib_tasks.sites.section import SitesConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, stage
from pmflib_tasks.steps import Step, Walk

VERSION = 1
READING = 12
"""Memory for reading a file of counts in which every cell is observed, as a multiple of its counts (11.5 measured with
150 variables of 4 levels in 16 folds)."""


def find_files(config: PipelineConfig) -> dict[str, Path]:
    """Paths of the files of counts, by site."""
    given = config.section(SitesConfig).root
    return {name: Path(config.resolve(path)) for name, path in given.items()}


def list_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield the check that the counts of all sites can be read, and are of this schema; none without sites."""

    def check() -> HealthLine:
        paths, schema = find_files(config), load_schema(config)
        for name, path in paths.items():
            if differences := list_differences(schema, read_site(path).schema):
                said = (
                    f"the counts of {name!r} have another schema: {list_some(differences, 5, '; ')}"
                )
                remedy = "give all sites one schema file, and count again"
                return HealthLine("FAIL", "sites", said, remedy, "source")
        return HealthLine("ok", "sites", f"counts of {', '.join(paths)}")

    if config.section(SitesConfig).root:
        yield Check("sites", "source", "ask the site for its counts again", check)


@stage(name="pool", makes="pooled")
def pool(config: PipelineConfig, counts: Reference) -> Reference:
    """Add the counts of other sites to those of this pipeline, fold by fold.

    Parameters
    ----------
    config
        The pipeline, with at least one site.
    counts
        Reference from `count`.

    Returns
    -------
    Reference to the sum. The entry's summary holds the digest, number of rows and minimum of each site.

    Raises
    ------
    SourceError
        If a file is missing, truncated or changed.
    SchemaError
        If schemas or numbers of folds differ.
    MemoryPlanError
        If the counts of all sites would not fit in memory.
    """
    store = open_store(config)
    plan_pool(config, load_schema(config).n_levels).check(find_memory_limit())
    paths = find_files(config)
    sites = {name: read_site(path) for name, path in paths.items()}
    facts = {
        name: {"digest": site.digest, "rows": int(site.n_rows.sum()), "minimum": site.minimum}
        for name, site in sites.items()
    }
    report_progress("pool", 0, 1)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        own = PairCounts.load(store.locate(counts) / PAIRS)
        total = add_sites(sites.items(), own, f"the counts of {config.name}")
        total.save(folder / PAIRS)
        return {"samples": int(total.n_rows.sum()), "sites": facts}

    files = {
        name: store.record_source(path.name, digest_file(path), {"bytes": path.stat().st_size})
        for name, path in paths.items()
    }
    entry = build_artefact(
        store,
        "pooled",
        inputs={"counts": counts} | {f"site {name}": x.reference for name, x in files.items()},
        options={"sites": sorted(sites)},
        version=VERSION,
        write=write,
    )
    report_progress("pool", 1, 1, f"{entry.summary['samples']:,} samples, {len(sites):,} sites")
    return entry.reference


def plan_pool(config: PipelineConfig, n_levels: int) -> MemoryPlan:
    """Plan the memory of `pool`: the counts of all sites, and what reading a file of counts takes."""
    table = 8 * config.store.folds * n_levels**2
    n_sites = len(config.section(SitesConfig).root)
    return MemoryPlan(
        "pool",
        {f"counts of {n_sites:,} site(s)": (n_sites + READING) * table},
        "Merge rare levels in the schema of all sites, or use fewer folds.",
    )


def plan_stages(sizes: RunSizes) -> Iterator[PlannedStage]:
    """Plan the stages of a run with counts of other sites, which has none of samples."""
    is_given = bool(sizes.config.section(SitesConfig).root)
    memory = plan_pool(sizes.config, sizes.schema.n_levels)
    replaces = ("select", "fit", "refine") if is_given else ()
    yield PlannedStage("pool", "count", is_given, lambda _: memory, replaces)
    yield PlannedStage("fit_pooled", "count", is_given)


@stage(name="fit_pooled", makes="model")
def fit_pooled(config: PipelineConfig, dataset: Reference, pooled: Reference) -> Reference:
    """Fit latent classes to the pairs of the training folds of all sites; rank "auto" is chosen by pairs.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        Reference to the pipeline's own samples, which judge the model.
    pooled
        Reference from `pool`.

    Returns
    -------
    Reference to the model.

    Raises
    ------
    RankError
        If the method does not support the rank.
    """
    store, train = open_store(config), config.fold_split.train
    seed, given = config.seed, config.model.rank
    report_progress("fit_pooled", 0, 1)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        # runs without sites need none
        from pmflib.fits.fit_result import summarise_fit
        from pmflib.fits.from_counts import fit as fit_counts
        from pmflib.fits.ranks.by_pairs import select_rank

        training = PairCounts.load(store.locate(pooled) / PAIRS).select_folds(train)
        # a configuration without a rank is refused with sites
        rank, choice = given or "auto", None
        if rank == "auto":
            budget = config.model.rank_seconds
            choice = select_rank(training, rng=seed, budget=budget, checkpoint=work)
            rank = choice.rank
        result = fit_counts(training, rank, method=config.start_choice, rng=seed)
        result.model.save(folder / "model")
        # the model outlives the sum, which an erasure deletes
        summary = summarise_fit(result) | {"sites": list_sites(store, pooled)}
        if choice is not None:
            comparisons = [each.to_json() for each in (*choice.comparisons, *result.comparisons)]
            notes = [choice.reason, *choice.notes, *result.notes]
            summary |= {"notes": notes, "comparisons": comparisons}
        return summary

    entry = build_artefact(
        store,
        "model",
        inputs={"dataset": dataset, "pooled": pooled},
        options={
            "rank": given,
            "rank_budget": config.model.rank_budget if given == "auto" else None,
            "method": config.start_choice,
            "train": list(train),
            "seed": seed,
        },
        version=VERSION,
        write=write,
    )
    report_progress("fit_pooled", 1, 1, f"rank {entry.summary['rank']}")
    return entry.reference


def list_sites(store: Store, made: Reference) -> dict[str, dict[str, Any]]:
    """Return digest, rows and minimum of each site whose counts a sum or a model was made from; empty for none."""
    entry = store.find(made.identity)
    return {} if entry is None else dict(entry.summary.get("sites", {}))


def find_withdrawal(config: PipelineConfig, live: Reference) -> str:
    """Name the sites whose counts the live model was fitted to and that the configuration lacks, in a clause."""
    left = sorted(
        list_sites(open_store(config), live).keys() - config.section(SitesConfig).root.keys()
    )
    return f"{', '.join(left)} withdrew counts that the live model was fitted to" if left else ""


def run_pool(walk: Walk) -> Reference:
    """Add the counts of other sites to those of a run."""
    return pool(walk.config, walk.stages["counts"])


def run_fit_pooled(walk: Walk) -> Reference:
    """Fit latent classes to the pairs of all sites."""
    return fit_pooled(walk.config, walk.stages["dataset"], walk.stages["pooled"])


STEPS = (
    Step("pooled", run_pool, needs=("counts",), stands_for="counts"),
    Step(
        "model",
        run_fit_pooled,
        needs=("dataset", "pooled"),
        applies=lambda walk: bool(walk.config.section(SitesConfig).root),
    ),
)
"""With counts of other sites, the model is fitted to pairs."""

HOLDER = Holder({"pooled": None}, sums=("pooled",))
"""Counts of all sites are deleted with those of this pipeline."""
