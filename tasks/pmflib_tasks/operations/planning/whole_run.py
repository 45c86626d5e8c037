"""The plan of a run: costs of all stages, what fits, what is the limit, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property

from pmflib.cluster.memory import OWN_BYTES, format_bytes
from pmflib_tasks.operations.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib_tasks.operations.planning.speeds import BY_STAGE, Speeds
from pmflib_tasks.operations.planning.stage_costs import StageCost
from pmflib_tasks.operations.planning.stages import Planner
from pmflib_tasks.operations.planning.trait_stages import refuse_traits
from pmflib_tasks.operations.planning.width import describe_misfit

LEAST_EFFICIENCY = 0.7
"""Efficiency below which more workers are hardly worth what they cost."""
FEWER = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02, 0.01, 0.0)
"""Numbers of workers that are tried in place of those planned, as shares of these."""
MOST_WORKERS = 10_000
"""Most workers that a deadline is tried with."""
WORTH_WHILE = 0.8
"""Share of the time of a run below which another cluster is worth a sentence."""


@dataclass(frozen=True)
class RunPlan:
    """What a run will take on a cluster.

    Parameters
    ----------
    log, fit, cluster, speeds
        Sizes and speeds.
    """

    log: LogSize
    fit: FitSize
    cluster: ClusterSize
    speeds: Speeds

    @cached_property
    def planner(self) -> Planner:
        """Planner of the stages."""
        return Planner(self.log, self.fit, self.cluster, self.speeds)

    @cached_property
    def stages(self) -> list[StageCost]:
        """Costs of the stages, in order."""
        return self.planner.plan()

    @property
    def wall_seconds(self) -> float:
        """Time of the run; at most, where it depends on what it finds."""
        return sum(stage.wall_seconds for stage in self.stages)

    @property
    def least_seconds(self) -> float:
        """Time of the run at least."""
        return sum(stage.least_seconds for stage in self.stages)

    @property
    def efficiency(self) -> float:
        """Share of the time of all threads, in all stages, that is spent on the work itself."""
        useful = sum(stage.efficiency * stage.wall_seconds for stage in self.stages)
        return useful / max(self.wall_seconds, 1e-300)

    @property
    def slowest(self) -> StageCost:
        """Stage that takes most of the time."""
        return max(self.stages, key=lambda stage: stage.wall_seconds)

    @property
    def fits(self) -> bool:
        """Whether every stage fits the memory of a worker and of the client."""
        return not self.misfits

    @cached_property
    def misfits(self) -> list[str]:
        """One sentence for each stage that does not fit."""
        cluster, out = self.cluster, []
        room = {"a worker": cluster.worker_room, "the client": cluster.client_room}
        for stage in self.stages:
            needed = {"a worker": stage.worker_memory, "the client": stage.client_memory}
            for who, n_bytes in needed.items():
                if n_bytes > room[who]:
                    out.append(describe_misfit(stage.stage, n_bytes, who, room[who]))
        return out

    def describe(self) -> list[str]:
        """Sentences for people: what fits, what is the limit, what to change."""
        planner, cluster, out = self.planner, self.cluster, list(self.misfits)
        if not out:
            most = max(stage.worker_memory for stage in self.stages)
            out.append(
                f"fits: a worker needs {format_bytes(most)} of the {format_bytes(cluster.worker_room)} it "
                f"may use; the least memory limit of a worker is {format_bytes(planner.least_memory)}"
            )
        out += self._describe_blocks() if self.fit.has_classes else []
        slowest = self.slowest
        longest = "" if self.least_seconds == self.wall_seconds else ", where all takes longest"
        out.append(
            f"limit: {slowest.stage} takes {slowest.wall_seconds / self.wall_seconds:.0%} of the time{longest}; "
            f"{LIMITS[slowest.limit]}"
        )
        return [*out, *self._describe_left_out(), *self._list_changes()]

    def _describe_left_out(self) -> list[str]:
        """What is configured, and not fitted."""
        planner, fit, out = self.planner, self.fit, []
        if fit.forests is not None and planner.forest_memory is None:
            out.append(
                "forests: not tried, for their tables or counts of pairs are more than is tried without being asked "
                "for; model.dependence = 'tree' fits them where they fit in memory"
            )
        if (refused := refuse_traits(planner)) is not None:
            out.append(
                f"traits: not fitted, for they need {format_bytes(OWN_BYTES + refused.needed)} in a worker and "
                f"{format_bytes(planner.client_bytes(refused))} in the client; latent classes are published"
            )
        return out

    def _describe_blocks(self) -> list[str]:
        planner, fit = self.planner, self.fit
        if all(planner.keeps):
            kept = format_bytes(planner.kept_bytes)
            return [f"memory of workers: blocks stay there, {kept} each; the store is read once"]
        refine = next(stage for stage in self.stages if stage.stage == "refine")
        passes = max(1, fit.passes * (fit.runs if fit.validation else 1))
        more = planner.keeping_memory
        n_workers = self._find_keeping_workers()
        workers = f", or {n_workers:,} workers" if n_workers else ""
        return [
            f"memory of workers: blocks do not stay; each of {passes:,} passes reads "
            f"{show_bytes(refine.read_bytes / passes)}; give {format_bytes(more)} a worker{workers}"
        ]

    def _find_keeping_workers(self) -> int:
        """Number of workers of the same memory with which blocks stay; 0 if no number is enough."""
        for factor in (1.25, 1.5, 2, 3, 4, 6, 8, 12, 16):
            n_workers = round(self.cluster.workers * factor)
            if all(self.resize(n_workers).planner.keeps):
                return n_workers
        return 0

    def _list_changes(self) -> list[str]:
        """What would make the run quicker, or cheaper."""
        cluster, fit, out = self.cluster, self.fit, []
        best = self.find_efficient()
        if best.worker_hours < self.worker_hours:
            n_best = best.cluster.workers
            named = "1 worker is" if n_best == 1 else f"{n_best:,} workers are"
            out.append(
                f"workers: {self.efficiency:.0%} of their time is work; {named} at "
                f"{best.efficiency:.0%} and take {show_seconds(best.wall_seconds)}, for "
                f"{best.worker_hours:,.1f} worker hours in place of {self.worker_hours:,.1f}"
            )
        else:
            twice = self.resize(2 * cluster.workers)
            if twice.wall_seconds < WORTH_WHILE * self.wall_seconds:
                out.append(
                    f"workers: twice as many take {show_seconds(twice.wall_seconds)}, for "
                    f"{twice.worker_hours:,.1f} worker hours in place of {self.worker_hours:,.1f}"
                )
        if fit.runs > 1 and fit.validation:
            one = replace(self, fit=replace(fit, runs=1))
            if one.wall_seconds < WORTH_WHILE * self.wall_seconds:
                out.append(
                    f"passes: {fit.runs} runs of EM compare pseudo-counts and starts; em.pseudo_count and model.method "
                    f"given, one run is left, and all takes {show_seconds(one.wall_seconds)}"
                )
        shape, read = self.planner.shape, self.stages[0]
        if (
            shape.files < cluster.n_threads
            and read.wall_seconds > (1 - WORTH_WHILE) * self.wall_seconds
        ):
            whole = "read" if self.log.cut == "not" else "hashed"
            out.append(
                f"files: each of {shape.files:,} is {whole} by one task, so that {shape.files:,} of "
                f"{cluster.n_threads:,} threads work; cut the log to more files"
            )
        return out

    @property
    def worker_hours(self) -> float:
        """Hours of all workers together."""
        return self.cluster.workers * self.wall_seconds / 3600

    def resize(self, n_workers: int) -> RunPlan:
        """The same run on another number of such workers."""
        return replace(self, cluster=replace(self.cluster, workers=max(1, n_workers)))

    def find_efficient(self) -> RunPlan:
        """The same run on the largest number of workers that are well used, of its own and some below.

        Only of those that take fewer worker hours than its own; its own where there is none. Where none of them is used
        well, that with the fewest worker hours.
        """
        if self.efficiency >= LEAST_EFFICIENCY or self.cluster.workers == 1:
            return self
        numbers = {max(1, round(self.cluster.workers * share)) for share in FEWER}
        plans = [self.resize(n) for n in sorted(numbers, reverse=True)]
        cheaper = [each for each in plans if each.worker_hours < self.worker_hours and each.fits]
        well_used = (each for each in cheaper if each.efficiency >= LEAST_EFFICIENCY)
        least = min(cheaper, key=lambda each: each.worker_hours, default=self)
        return next(well_used, least)

    def find_cheapest(self, deadline: float) -> RunPlan | None:
        """The same run on the number of such workers that takes the fewest worker hours and is done in time.

        Parameters
        ----------
        deadline
            Seconds that all may take, above 0.

        Returns
        -------
        The plan, of 1 to ``MOST_WORKERS`` workers; None where no number that fits in memory is enough. Numbers are
        tried in steps of a quarter.
        """
        numbers = {1}
        while max(numbers) < MOST_WORKERS:
            numbers.add(min(MOST_WORKERS, max(max(numbers) + 1, round(1.25 * max(numbers)))))
        best: RunPlan | None = None
        for n_workers in sorted(numbers):
            found = self.resize(n_workers)
            if found.wall_seconds > deadline or not found.fits:
                continue
            if best is None or found.worker_hours < best.worker_hours:
                best = found
            elif found.worker_hours > 4 * best.worker_hours:
                break
        return best

    def to_json(self) -> dict[str, object]:
        """The plan as plain JSON types; sizes in bytes, times in seconds."""
        stages = [
            {**asdict(stage), "messages": stage.messages, "limit": stage.limit}
            for stage in self.stages
        ]
        speeds = {
            name: value for name, value in asdict(self.speeds).items() if value != float("inf")
        }
        speeds |= {name: dict(getattr(self.speeds, name)) for name in BY_STAGE}
        return {
            "log": asdict(self.log),
            "fit": self.fit.to_json(),
            "cluster": asdict(self.cluster),
            "speeds": speeds,
            "stages": stages,
            "wall_seconds": self.wall_seconds,
            "least_seconds": self.least_seconds,
            "worker_hours": self.worker_hours,
            "efficiency": self.efficiency,
            "fits": self.fits,
            "blocks_stay": all(self.planner.keeps),
            "least_worker_memory": self.planner.least_memory,
            "notes": self.describe(),
        }


LIMITS = {
    "work": "the workers compute: more of them, or quicker cores, shorten it",
    "storage": "workers wait for the storage: a quicker one, or more workers where it grows with them, shorten it",
    "idle": "threads wait for the slowest, or have nothing to do: fewer workers do nearly as well",
    "scheduler": "the scheduler of Dask hands out tasks one by one: fewer workers of more memory do as well",
    "merges": "results are merged level by level: fewer workers, or a quicker network, shorten it",
    "starting": "workers start and kernels load: of more data it is a smaller share",
    "client": "the client works alone: a quicker core there shortens it, more workers do not",
}
"""What to say of each limit."""


def show_bytes(n_bytes: float) -> str:
    """Write a number of bytes as data are bought: 380 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"


def show_seconds(seconds: float) -> str:
    """Write a time: 42 s, 7 min, 3.5 h, 2.1 days."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
