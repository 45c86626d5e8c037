"""What an erasure has touched, and what remains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pmflib.store.artefacts import Store
from pmflib.store.dataset import list_file_steps
from pmflib.store.erasures import Erasure, ErasureList, read_erasures
from pmflib.store.run_records import find_last_run, find_live, list_histories, list_records


@dataclass(frozen=True)
class ErasureState:
    """What a store remembers of its erasures.

    Parameters
    ----------
    samples
        Erased samples, whose rows are passed over.
    unfinished
        Whether an erasure was stopped before its end.
    raw_files
        Name, digest and number of rows of raw files that still hold erased samples.
    """

    samples: int
    unfinished: bool
    raw_files: list[dict[str, Any]]


def describe_erasures(store: Store) -> ErasureState:
    """Describe the erasures of a store."""
    erasures = read_erasures(store)
    if erasures is None:
        return ErasureState(0, False, [])
    return ErasureState(len(erasures.samples), bool(erasures.unfinished), list_raw_files(store))


def certify(store: Store, erasures: ErasureList, act: Erasure) -> dict[str, Any]:
    """Facts of an erasure: what was touched, and what remains.

    Parameters
    ----------
    store
        The store.
    erasures, act
        All erasures, and the one to certify.

    Returns
    -------
    Plain JSON types, without identifiers.
    """
    kinds: dict[str, dict[str, int]] = {}
    for each in act.replaced:
        row = kinds.setdefault(each.old.kind, {"rows": 0, "rewritten": 0, "deleted": 0, "kept": 0})
        row["rows"] += each.rows
        row["deleted"] += each.deleted
        row["rewritten"] += each.new is not None and each.new.digest != each.old.digest
        row["kept"] += not each.deleted
    return {
        "erasure": act.number,
        "started": act.started,
        "samples": act.samples,
        "samples_found": len(act.found),
        "artefacts": kinds,
        "replaced": [
            {
                "kind": each.old.kind,
                "old": each.old.digest,
                "new": None if each.new is None else each.new.digest,
                "rows": each.rows,
                "deleted": each.deleted,
            }
            for each in act.replaced
        ],
        "models_fitted_before": list_models_before(store),
        "raw_files": list_raw_files(store),
        "erased_in_all": len(erasures.samples),
    }


def list_models_before(store: Store) -> list[dict[str, Any]]:
    """Models that were fitted to data which an erasure has replaced, with the runs that made them."""
    out: dict[str, dict[str, Any]] = {}
    for name in list_histories(store):
        live = find_live(store, name)
        for record in list_records(store, name):
            model = record.stages.get("model")
            entry = None if model is None else store.find(model.identity)
            if model is None or entry is None or record.action != "run":
                continue
            if store.find(entry.inputs["dataset"].identity) is None:
                row = {"pipeline": name, "model": model.digest, "live": model == live, "runs": []}
                out.setdefault(model.digest, row)["runs"].append(record.number)
    return list(out.values())


def list_raw_files(store: Store) -> list[dict[str, Any]]:
    """Raw files of the last runs that still hold rows of erased samples, as far as they have been read."""
    out: dict[tuple[str, str], dict[str, Any]] = {}
    for name in list_histories(store):
        run = find_last_run(store, name)
        if run is None or store.find(run.stages["dataset"].identity) is None:
            continue
        rows: Counter[tuple[str, str]] = Counter()
        for file in list_file_steps(store, run.stages["dataset"]):
            entry = store.find(file.step.identity)
            erased = 0 if entry is None else entry.summary.get("rows_erased", 0)
            rows[file.name, file.source.digest] += erased
        for (name_of, digest), n_rows in rows.items():
            if n_rows:
                out[name_of, digest] = {"name": name_of, "digest": digest, "rows": n_rows}
    return list(out.values())
