"""The demonstration: generate, run, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.etl import etl
from pmflib.config import load_config, make_source
from pmflib.config.draft import draft_config
from pmflib.model import JointPMF
from pmflib.store.run_records import find_live
from pmflib.synthetic.demo import RANK, compare_with_truth, write_demo_log
from tasks.stage import open_store
from tasks.stage_progress import report


def run_demo(folder: Path, n_users: int, seed: int) -> dict[str, Any]:
    """Generate a log of a known model, run the pipeline on it, and compare.

    Parameters
    ----------
    folder
        Empty folder for the log, the configuration and the store.
    n_users
        Samples to generate.
    seed
        Seed of the generator.

    Returns
    -------
    Facts of the run; "truth" compares the recovered model with the true one.
    """
    report("generate", 0, 1)
    written, truth = write_demo_log(folder / "log", n_users=n_users, seed=seed)
    report("generate", 1, 1, f"{written.n_rows:,} rows")
    source = make_source(
        {
            "path": "log/*.csv",
            "layout": "long",
            "sample": "user",
            "variable": "movie",
            "value": "rating",
            "time": "ts",
        }
    )
    # the schema of this log is known; `pmf infer` would take damaged rows for levels, and a user would delete these
    truth.schema.save(folder / "schema.json")
    config = folder / "pipeline.toml"
    config.write_text(draft_config(source, rank=RANK), "utf-8")
    facts = etl(str(config))
    store = open_store(load_config(config))
    live = find_live(store, load_config(config).name)
    assert live is not None
    model = JointPMF.load(store.locate(live) / "model")
    return {**facts, "written_rows": written.n_rows, "truth": compare_with_truth(model, truth)}
