"""Certificates of erasures: the artefacts that were affected, and data that remain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.store.artefacts import Store
from pmflib.store.care.exports import Export, State, list_exports
from pmflib.store.dataset import list_file_steps
from pmflib.store.erasures import Erasure, ErasureList, read_erasures
from pmflib.store.run_records import find_last_run, find_live, list_histories, list_records
from pmflib_tasks.erasure.mentions import SEARCHED, Names, find_in_export, find_in_store
from pmflib_tasks.holdings import RawFile


@dataclass(frozen=True)
class EarlierModel:
    """A model that was fitted to data that an erasure has replaced.

    Parameters
    ----------
    pipeline, model
        Name of the pipeline, and digest of the model.
    live
        Whether it is live.
    runs
        Numbers of the runs that fitted it.
    """

    pipeline: str
    model: str
    live: bool
    runs: list[int]


@dataclass(frozen=True)
class WrittenOutside:
    """An export of a store.

    Parameters
    ----------
    kind, path, host, written, files
        As in `pmflib.store.care.exports.Export`: ``files`` has the SHA-256 of each file as it was written.
    state
        State of its files.
    mentions
        Number of lines that mention an erased identifier; None if it was not searched, is out of reach, or contains no
        text.
    """

    kind: str
    path: str
    host: str
    written: str
    files: dict[str, str]
    state: State
    mentions: int | None


@dataclass
class TouchedArtefacts:
    """Numbers of artefacts of one kind that contained erased samples.

    Parameters
    ----------
    rows
        Number of rows of erased samples in them.
    rewritten, deleted, kept
        Numbers of artefacts that were rewritten, deleted and kept.
    """

    rows: int = 0
    rewritten: int = 0
    deleted: int = 0
    kept: int = 0


@dataclass(frozen=True)
class ReplacedArtefact:
    """One artefact that an erasure has replaced or deleted.

    Parameters
    ----------
    kind, old
        Kind and digest.
    new
        Digest of the replacement; None if there is none.
    rows, deleted
        As in `pmflib.store.erasures.Replacement`.
    """

    kind: str
    old: str
    new: str | None
    rows: int
    deleted: bool


@dataclass(frozen=True)
class Certificate:
    """Certificate of an erasure, which is recorded and printed as `asdict` returns it.

    Parameters
    ----------
    erasure, started
        Number and start of the erasure (UTC, ISO 8601).
    samples, samples_found
        Salted digests of the requested samples, and the number of them found in the store.
    artefacts
        Affected artefacts by kind.
    replaced
        Each of these artefacts.
    models_fitted_before
        Models that are kept, as they contain probabilities but no samples.
    raw_files
        Raw files that still contain erased samples.
    erased_in_all
        Number of all erased samples, or tasks and workers, of the store.
    written_outside
        Known exports: report pages, tables, labels, quarantined rows.
    mentions_in_store
        Number of lines of other samples, in quarantine or on pages, that mention an erased identifier and are kept;
        None if they were not searched because the call that finished the erasure lacked some identifiers.
    """

    erasure: int
    started: str
    samples: list[str]
    samples_found: int
    artefacts: dict[str, TouchedArtefacts]
    replaced: list[ReplacedArtefact]
    models_fitted_before: list[EarlierModel]
    raw_files: list[RawFile]
    erased_in_all: int
    written_outside: list[WrittenOutside]
    mentions_in_store: int | None


@dataclass(frozen=True)
class ErasureState:
    """State of the erasures of a store.

    Parameters
    ----------
    samples
        Number of erased samples, or tasks and workers, whose rows are skipped.
    unfinished
        Whether an erasure was interrupted.
    raw_files
        Raw files that still contain erased samples.
    """

    samples: int
    unfinished: bool
    raw_files: list[RawFile]


def describe_erasures(store: Store) -> ErasureState:
    """Describe the erasures of a store."""
    erasures = read_erasures(store)
    if erasures is None:
        return ErasureState(0, False, [])
    number = len(erasures.samples) + len(erasures.workers)
    return ErasureState(number, bool(erasures.unfinished), list_raw_files(store))


def certify(
    store: Store, erasures: ErasureList, act: Erasure, identifiers: Sequence[str]
) -> Certificate:
    """Make the certificate of an erasure, which contains no identifiers.

    Parameters
    ----------
    store
        The store.
    erasures, act
        All erasures, and the one to certify.
    identifiers
        Erased identifiers known to this call.
    """
    erased = ErasedSamples.of_list(erasures) or ErasedSamples.of_list(erasures, "workers")
    assert erased is not None
    given = {erased.digest_identifier(each.encode()) for each in identifiers}
    # free text is searched only if all identifiers are known
    names = Names(tuple(sorted(identifiers))) if given >= {*act.samples} else None
    kinds: dict[str, TouchedArtefacts] = {}
    replaced = []
    for each in act.replaced:
        old, new = each.old, None if each.new is None else each.new.digest
        touched = kinds.setdefault(old.kind, TouchedArtefacts())
        touched.rows += each.rows
        touched.deleted += each.deleted
        touched.rewritten += new is not None and new != old.digest
        touched.kept += not each.deleted
        replaced.append(ReplacedArtefact(old.kind, old.digest, new, each.rows, each.deleted))
    return Certificate(
        erasure=act.number,
        started=act.started,
        samples=act.samples,
        samples_found=len(act.found),
        artefacts=kinds,
        replaced=replaced,
        models_fitted_before=list_models_before(store),
        raw_files=list_raw_files(store),
        erased_in_all=len(erasures.samples) + len(erasures.workers),
        written_outside=[_describe_export(each, names) for each in list_exports(store)],
        mentions_in_store=None if names is None else len(find_in_store(store, names)),
    )


def _describe_export(export: Export, names: Names | None) -> WrittenOutside:
    """Find the state of an export, and count its lines that mention an identifier."""
    state = export.find_state()
    mentions = None
    if names is not None and state in ("as written", "changed"):
        holds_text = any(path.lower().endswith(SEARCHED) for path in export.files)
        mentions = len(find_in_export(export, names)) if holds_text else None
    return WrittenOutside(**asdict(export), state=state, mentions=mentions)


def list_models_before(store: Store) -> list[EarlierModel]:
    """Models that were fitted to data that an erasure has replaced, with the runs that fitted them."""
    out: dict[str, EarlierModel] = {}
    for name in list_histories(store):
        live = find_live(store, name)
        for record in list_records(store, name):
            model = record.stages.get("model")
            entry = None if model is None else store.find(model.identity)
            if model is None or entry is None or record.action != "run":
                continue
            if store.find(entry.inputs["dataset"].identity) is None:
                made = EarlierModel(name, model.digest, model == live, [])
                out.setdefault(model.digest, made).runs.append(record.number)
    return list(out.values())


def list_raw_files(store: Store) -> list[RawFile]:
    """Raw files of the last runs that are known to contain rows of erased samples."""
    found: Any
    out: dict[tuple[str, str], RawFile] = {}
    for name in list_histories(store):
        run = find_last_run(store, name)
        if run is None:
            continue
        if store.find(run.stages["dataset"].identity) is None:
            # the next run builds the dataset again
            found = list_records(store, name)[-1].facts.get("raw_files", ())
            out |= {(each["name"], each["digest"]): RawFile(**each) for each in found}
            continue
        rows: Counter[tuple[str, str]] = Counter()
        for file in list_file_steps(store, run.stages["dataset"]):
            entry = store.find(file.step.identity)
            erased = 0 if entry is None else entry.summary.get("rows_erased", 0)
            rows[file.name, file.source.digest] += erased
        for (name_of, digest), n_rows in rows.items():
            if n_rows:
                out[name_of, digest] = RawFile(name_of, digest, n_rows)
    return list(out.values())
