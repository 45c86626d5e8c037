"""Thirty nights of MovieLens 100K: models refitted warm against models fitted from scratch.

    python -m benchmarks.pipeline.nightly_refits ../shared/data/ml-100k

cuts the ratings of the movies with at least 100 ratings by time into deliveries, a file each, and runs the pipeline
after each: once as it is, warm from the live model and through the gate, and once fitting from scratch whatever is
live. Every night prints the processor time of the fit, the passes of EM that its model took, the log-probability per
hidden cell of the model that is live after it, and by how much the night's model predicts all cells of the test samples
better than the fit from scratch, with its standard error.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.ml100k import write
from benchmarks.models.movielens import read_log
from pmflib.cluster.workers import start_workers
from pmflib.schema import Schema, Variable
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord, append_record, list_records
from pmflib_tasks.compare import compare, pass_gate
from pmflib_tasks.config import PipelineConfig, make_config
from pmflib_tasks.count import count
from pmflib_tasks.evaluate import evaluate
from pmflib_tasks.fit import fit
from pmflib_tasks.ingest import ingest
from pmflib_tasks.refine import refine
from pmflib_tasks.refit import plan_refit
from pmflib_tasks.select import select, settle

FIRST_NIGHT = datetime(2026, 1, 1, 2, tzinfo=UTC)


def main() -> None:
    """Replay the nights, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the MovieLens folder")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--last", type=int, default=30, help="stop after this night")
    parser.add_argument("--rank", default="5", help="a number, or auto")
    parser.add_argument("--refresh", default="30d")
    parser.add_argument("--min-count", type=int, default=100)
    parser.add_argument(
        "--every", type=int, default=1, help="nights from one comparison with a fit from scratch on"
    )
    options = parser.parse_args()
    log = read_log(options.path).astype(np.int64)
    log = log[np.bincount(log[:, 1])[log[:, 1]] >= options.min_count]
    deliveries = np.array_split(log[np.argsort(log[:, 3], kind="stable")], options.nights)
    with tempfile.TemporaryDirectory() as name:
        config = set_up(Path(name), log, options.rank, options.refresh)
        print(
            "night  rows    way    passes  seconds  live   from scratch: passes  seconds  gain over it"
        )
        with start_workers(config.cluster) as address:
            for night, rows in enumerate(deliveries[: options.last], 1):
                write(Path(name) / "log" / f"{night:02}.csv", rows)
                compared = night % options.every == 0
                print(run_night(config, night, address, compared), flush=True)


def set_up(folder: Path, log: np.ndarray, rank: str, refresh: str) -> PipelineConfig:
    """Make the folder of deliveries, the schema and the configuration."""
    (folder / "log").mkdir()
    stars = tuple("12345")
    movies = [str(movie) for movie in np.unique(log[:, 1])]
    values = tuple(map(float, stars))
    schema = Schema(tuple(Variable(movie, stars, values) for movie in movies))
    schema.save(folder / "schema.json")
    source = {"path": "log", "layout": "long"}
    source |= {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    model = {"rank": rank if rank == "auto" else int(rank), "refresh": refresh}
    return make_config({"source": source, "model": model}, base=folder)


def run_night(config: PipelineConfig, night: int, address: str, with_fresh: bool) -> str:
    """Run the pipeline on what has been delivered so far, record it, and describe it in a line."""
    store, now = Store(config.resolve("store")), FIRST_NIGHT + timedelta(days=night - 1)
    dataset = ingest.fn(config, address)
    counts = count.fn(config, dataset, address)
    stages = {"dataset": dataset, "counts": counts}
    records = list_records(store, config.name)
    schema = Schema.load(config.resolve("schema.json"))
    refit = plan_refit(store, config, schema, records, stages, (), now)
    started = time.process_time()
    model = fit_model(config, stages, refit.start, address)
    seconds = time.process_time() - started
    live = records[-1].live if records else None
    outcome, reason = "promoted", "first model"
    if live is not None:
        decision = pass_gate(config, dataset, model, live, address)
        outcome, reason = "promoted" if decision.promoted else "kept", decision.reason
    chosen = model if outcome == "promoted" else live
    record = RunRecord(
        action="run",
        outcome="promoted" if outcome == "promoted" else "kept",
        reason=reason,
        started=now.isoformat(),
        ended=now.isoformat(),
        config=config.digest,
        stages=stages,
        live=chosen,
        facts={"refit": refit.to_json(), "rows": summarise(store, dataset)},
    )
    append_record(store, config.name, record)
    assert chosen is not None
    score = evaluate_target(config, stages, chosen, address)
    line = f"{night:5}  {summarise(store, dataset)['rows_in']:6}  {refit.way:5}  "
    line += f"{summarise(store, model)['passes']:6}  {seconds:7.2f}  {score:.5f}"
    if with_fresh:
        started = time.process_time()
        other = fit_model(config, dict(stages), None, address)
        seconds = time.process_time() - started
        if other == model:
            return f"{line}   {'the same':>38}  {reason}"
        pair = summarise(store, compare.fn(config, dataset, model, other, address))
        line += f"   {summarise(store, other)['passes']:13}  {seconds:7.2f}  "
        line += f"{pair['gain']:+.5f} +- {pair['standard_error'] or float('inf'):.5f}"
    return f"{line}  {reason}"


def fit_model(
    config: PipelineConfig, stages: dict[str, Reference], start: Reference | None, address: str
) -> Reference:
    """Fit from scratch, or from a model; what was made is added to the stages."""
    dataset, counts = stages["dataset"], stages["counts"]
    if start is None:
        if config.model.rank == "auto":
            stages["rank"] = select.fn(config, dataset, counts, address)
            config = settle(config, stages["rank"])
        start = fit.fn(config, counts, stages.get("rank"))
    stages["start"] = start
    stages["model"] = refine.fn(config, dataset, counts, start, address)
    return stages["model"]


def evaluate_target(
    config: PipelineConfig, stages: dict[str, Reference], model: Reference, address: str
) -> float:
    """Log-probability per hidden cell of the test samples, nats."""
    store = Store(config.resolve("store"))
    scores = evaluate.fn(config, stages["dataset"], stages["counts"], model, address)
    return float(summarise(store, scores)["log_prob_per_cell"])


def summarise(store: Store, reference: Reference) -> dict[str, Any]:
    """Summary of an artefact."""
    entry = store.find(reference.identity)
    assert entry is not None
    return entry.summary


if __name__ == "__main__":
    main()
