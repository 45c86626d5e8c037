"""Guards of label logs: the workers and classes of new labels, and the agreement between workers."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.class_names import sort_names
from pmflib.apps.crowd.worker_pair_counts import WorkerPairCounts
from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.display.summary import percent
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.base.texts import fold_text, unify_texts
from pmflib.ingest.dataset.accounts import StepSummary
from pmflib.ingest.dataset.identifiers import count_forms, find_respelled
from pmflib.ingest.dataset.spills import LEVELS_FILE
from pmflib.schema import Schema, Variable
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import LEVEL_COUNTS, list_file_steps
from pmflib.store.file_digests import read_checked
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.counts import compare_counts, estimate_correlation
from pmflib_tasks.guards.drift import DriftTests, measure_drift
from pmflib_tasks.guards.findings import Measurement
from pmflib_tasks.guards.identity_guards import compare_forms, measure_respelled
from pmflib_tasks.guards.row_guards import LEAST_SIBLINGS, bound_share

LABELS_SHOWN = 5
"""Maximum number of new labels that a finding names."""
LEAST_SHARED = 20
"""Minimum number of new tasks that two workers share, for a test of their agreement."""
LEAST_ALIKE = 0.95
"""Minimum share of their tasks on which two workers agree if one copies the other."""
MOST_CHANCE = 1e-4
"""Significance level of the tests of copying, over all pairs of workers."""
LEAST_LABELS = 10
"""Minimum number of new labels of an unknown worker, for a test of guessing."""
GUESS_SHARE = 0.25
"""Share of the usual agreement beyond chance below which an unknown worker guesses."""
GUESS_ERRORS = 2.0
"""Standard errors by which the agreement of a guesser must be below the usual one."""
DAY = {"number": 86_400.0, "instant": 86_400e6}
"""Length of a day in the units of times: numbers are seconds, instants microseconds."""


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Labels of one raw file.

    Parameters
    ----------
    name, digest
        Name of the file, and SHA-256 of its bytes.
    given
        int64 of shape (n_workers, n_classes): labels by worker and class.
    newest
        Time of its newest row, days; None if rows have no time.
    """

    name: str
    digest: str
    given: IntArray
    newest: float | None = None


def read_label_files(store: Store, dataset: Reference, schema: Schema) -> list[LabelFile]:
    """Read the labels of each file of a label log, by the workers and classes of a schema.

    Raises
    ------
    StoreError
        If the dataset or a file of it is missing or damaged.
    """
    files: dict[str, LabelFile] = {}
    for step in list_file_steps(store, dataset):
        folder = store.locate(step.step)
        own = np.load(io.BytesIO(read_checked(folder / LEVEL_COUNTS)), allow_pickle=False)
        levels = _find_levels(folder, schema)
        given = np.zeros(schema.n_levels + 1, np.int64)
        np.add.at(given, levels, own)
        entry = store.find(step.step.identity)
        times = None if entry is None else from_json(StepSummary, entry.summary, is_part=True).times
        newest = None
        if times is not None and times.newest is not None and times.format is not None:
            newest = times.newest / DAY[times.format]
        table = given[:-1].reshape(schema.n_variables, -1)
        if step.name in files:
            first = files[step.name]
            table = first.given + table
            newest = max((x for x in (first.newest, newest) if x is not None), default=None)
        files[step.name] = LabelFile(step.name, step.source.digest, table, newest)
    return list(files.values())


def _find_levels(folder: Path, schema: Schema) -> list[int]:
    """Level in a schema of each level of a file; the last number where the schema has none."""
    places = {
        (worker.name, fold_text(label)): first + code
        for worker, first in zip(schema, schema.offsets.tolist(), strict=False)
        for code, label in enumerate(worker.levels)
    }
    named = map(parse_json, map(str.encode, parse_json(read_checked(folder / LEVELS_FILE))))
    return [places.get((worker, fold_text(label)), schema.n_levels) for worker, label in named]


def join_names(store: Store, datasets: Iterable[Reference]) -> Schema:
    """Make a schema of all workers and classes of some datasets: each run of a label log has its own."""
    workers, classes = set[str](), set[str]()
    for step in (step for dataset in datasets for step in list_file_steps(store, dataset)):
        for text in parse_json(read_checked(store.locate(step.step) / LEVELS_FILE)):
            worker, label = parse_json(text.encode())
            workers.add(worker)
            classes.add(label)
    levels = sort_names(unify_texts(sort_names(classes)).values())
    return Schema(tuple(Variable(worker, levels) for worker in sort_names(workers)))


def measure_label_files(
    files: Sequence[LabelFile],
    last: Sequence[LabelFile],
    schema: Schema,
    labels_per_task: float,
    config: QualityConfig,
) -> Iterator[Measurement]:
    """Measure the workers, classes and times of the labels in new files.

    Parameters
    ----------
    files, last
        Files of this run and of the last run, by the same workers and classes.
    schema
        These workers and classes.
    labels_per_task
        Mean number of labels of a task, which are dependent draws of classes.
    config
        Limits of drifts.

    Yields
    ------
    Measurements; none without a last run or a new file.
    """
    known = {file.digest for file in last}
    new = [file for file in files if file.digest not in known and file.given.sum()]
    if not last or not new:
        return
    before = np.stack([file.given for file in last])
    for file in new:
        yield _measure_busiest(file, before, schema)
    for file in new:
        yield _measure_unknown(file, before, schema)
    yield _find_new_classes(new, before, schema)
    yield from measure_drift(_test_classes(new, before, labels_per_task), config)
    newest = max((file.newest for file in last if file.newest is not None), default=None)
    for file in new:
        if newest is None or file.newest is None:
            continue
        days = newest - file.newest
        said = (
            f"{file.name}: its newest label is {days:.2f} days older than the newest label so far"
        )
        yield Measurement("time_backwards", file.name, max(days, 0.0), said)


def measure_worker_names(
    files: Sequence[LabelFile], last: Sequence[LabelFile], names: Sequence[str]
) -> Iterator[Measurement]:
    """Compare names of workers by form, and as numbers, as identifiers of samples are compared.

    Parameters
    ----------
    files, last
        Files of this run and of the last run, by the same workers; none of a last run that there is not.
    names
        Names of the workers.

    Yields
    ------
    Measurements of ``identifier_form`` and ``identifier_spelling``; none without a new file.
    """
    known = {file.digest for file in last}
    new = [file for file in files if file.digest not in known and file.given.sum()]
    if not new:
        return
    forms = [[*count_forms(pa.array([name.encode()], pa.binary()))] for name in names]

    def count(file: LabelFile) -> Counter[str]:
        rows = file.given.sum(axis=1).tolist()
        counted = Counter[str]()
        for own, n_labels in zip(forms, rows, strict=True):
            if n_labels:
                counted.update(dict.fromkeys(own, n_labels))
        return counted

    yield from compare_forms(
        {f"workers of {file.name}": count(file) for file in new}, [count(file) for file in last]
    )
    before = np.sum([np.zeros(len(names)), *(file.given.sum(axis=1) for file in last)], axis=0)
    given = np.sum([file.given.sum(axis=1) for file in new], axis=0)
    unknown = {name for name, old, now in zip(names, before, given, strict=True) if now and not old}
    seen = [name for name, old, now in zip(names, before, given, strict=True) if now or old]
    found = [each for each in find_respelled(pa.array(seen, pa.string())) if unknown & {*each}]
    yield measure_respelled(found, len(seen), "workers of new files")


def measure_agreement(
    new: WorkerPairCounts,
    n_tasks: int,
    before: Mapping[str, int],
    workers: Sequence[str],
    unknown: BoolArray,
) -> Iterator[Measurement]:
    """Measure how far new labels agree with other labels of their tasks, and how many may be guesses or copies.

    Parameters
    ----------
    new
        Pairs of labels of the same task of which at least one is new.
    n_tasks
        Approximate number of tasks with such pairs.
    before
        Number of pairs of labels of the last run, "pairs", and of those that agree, "agreeing".
    workers
        Names.
    unknown
        Whether the last run had no label of each worker, (n_workers,).
    """
    agree = np.trace(new.counts, axis1=1, axis2=2)
    n_pairs, n_agree = int(new.support.sum()), int(agree.sum())
    if not n_pairs:
        for guard in ("label_agreement", "guesses", "copies"):
            reason = "no task with a new label has another one"
            yield Measurement(guard, "new labels", None, reason)
        return
    if before.get("pairs"):
        usual = before["agreeing"] / before["pairs"]
        # pairs of one task are dependent: the number of tasks is the effective number of pairs
        least = bound_share(round((1 - n_agree / n_pairs) * n_tasks), n_tasks) - (1 - usual)
        sentence = (
            f"new labels agree in {percent(n_agree / n_pairs)} of {n_pairs:,} pairs with other labels of their "
            f"task, against {percent(usual)} so far"
        )
        yield Measurement("label_agreement", "new labels", max(least, 0.0), sentence)
        yield _measure_guesses(new, agree, usual, workers, unknown)
    yield _measure_copies(new, agree, workers)


def _measure_guesses(
    new: WorkerPairCounts,
    agree: IntArray,
    usual: float,
    workers: Sequence[str],
    unknown: BoolArray,
) -> Measurement:
    """Measure the share of new labels by unknown workers who agree with others hardly more than by chance."""
    given = np.zeros((len(workers), new.counts.shape[1]))
    met, agreed = np.zeros_like(given), np.zeros(len(workers))
    for side, labels, others in ((new.first, 2, 1), (new.second, 1, 2)):
        np.add.at(given, side, new.counts.sum(axis=labels))
        np.add.at(met, side, new.counts.sum(axis=others))
        np.add.at(agreed, side, agree)
    pairs = np.maximum(given.sum(axis=1), 1.0)
    chance, agreement = (given * met).sum(axis=1) / pairs**2, agreed / pairs
    # pairs of one label are dependent: the number of labels is the effective number of pairs
    error = np.sqrt(usual * (1 - usual) / np.maximum(new.n_labels, 1))
    low = agreement < np.minimum(
        chance + GUESS_SHARE * (usual - chance), usual - GUESS_ERRORS * error
    )
    guessing = np.flatnonzero(unknown & low & (new.n_labels >= LEAST_LABELS))
    share = float(new.n_labels[guessing].sum() / max(new.n_labels.sum(), 1))
    sentence = (
        f"{guessing.size} unknown workers agree with others hardly more than by chance; {percent(share)} of the new "
        "labels may be guesses"
    )
    named = tuple(workers[row] for row in guessing.tolist())
    return Measurement("guesses", "new labels", share, sentence, named=named)


def _measure_copies(new: WorkerPairCounts, agree: IntArray, workers: Sequence[str]) -> Measurement:
    """Measure the share of new labels by workers who agree with another far more than both do with the rest."""
    from scipy.special import bdtrc

    support = new.support
    totals, agreed = (np.zeros(len(workers), np.int64) for _ in range(2))
    for side in (new.first, new.second):
        np.add.at(totals, side, support)
        np.add.at(agreed, side, agree)
    others = totals[new.first] + totals[new.second] - 2 * support
    others_agree = agreed[new.first] + agreed[new.second] - 2 * agree
    # two workers who share tasks with nobody else cannot be tested
    expected = (others_agree + 0.5) / (others + 1)
    tested = (support >= LEAST_SHARED) & (others >= LEAST_SHARED)
    chance = np.ones(support.size)
    chance[tested] = bdtrc(agree[tested] - 1, support[tested], np.minimum(expected[tested], 1.0))
    alike = (
        tested & (agree >= LEAST_ALIKE * support) & (chance < MOST_CHANCE / max(tested.sum(), 1))
    )
    copying = np.unique(new.second[alike])
    share = float(new.n_labels[copying].sum() / max(new.n_labels.sum(), 1))
    sentence = (
        f"{int(alike.sum())} pairs of workers agree far more often than they do with others; "
        f"{percent(share)} of the new labels may be copies"
    )
    both = np.union1d(new.first[alike], new.second[alike]).tolist()
    named = tuple(workers[row] for row in both)
    return Measurement("copies", "new labels", share, sentence, named=named)


def _measure_busiest(file: LabelFile, before: IntArray, schema: Schema) -> Measurement:
    rows, earlier = file.given.sum(axis=1), before.sum(axis=2)
    usual = float((earlier.max(axis=1) / np.maximum(earlier.sum(axis=1), 1)).max())
    busiest, total = int(rows.argmax()), int(rows.sum())
    more = max(bound_share(int(rows[busiest]), total) - usual, 0.0)
    sentence = (
        f"{file.name}: {int(rows[busiest]):,} of {total:,} labels are by one worker, "
        f"{percent(rows[busiest] / total)}; the largest such share of an earlier file is {percent(usual)}"
    )
    named = (schema.names[busiest],)
    return Measurement("worker_rows", file.name, more, sentence, named=named)


def _measure_unknown(file: LabelFile, before: IntArray, schema: Schema) -> Measurement:
    rows = file.given.sum(axis=1)
    unknown = before.sum(axis=(0, 2)) == 0
    n_unknown, total = int(rows[unknown].sum()), int(rows.sum())
    strangers = np.flatnonzero(unknown & (rows > 0))
    sentence = (
        f"{file.name}: {n_unknown:,} of {total:,} labels are by {strangers.size} unknown workers"
    )
    least = bound_share(n_unknown, total)
    named = tuple(schema.names[row] for row in strangers.tolist())
    return Measurement("unknown_workers", file.name, least, sentence, named=named)


def _find_new_classes(new: Sequence[LabelFile], before: IntArray, schema: Schema) -> Measurement:
    given = np.sum([file.given for file in new], axis=0).sum(axis=0)
    names = np.array(schema[0].levels)[(given > 0) & (before.sum(axis=(0, 1)) == 0)].tolist()
    shown = ", ".join(map(repr, names[:LABELS_SHOWN]))
    sentence = f"{len(names)} labels were never given before" + (f": {shown}" if names else "")
    return Measurement("new_classes", "new labels", len(names), sentence)


def _test_classes(
    new: Sequence[LabelFile], before: IntArray, labels_per_task: float
) -> list[DriftTests]:
    """Test the classes of each new file against those of all earlier files; labels of a task are a cluster."""
    groups = before.sum(axis=1)
    edges = np.array([0, groups.shape[1]])
    reference = groups.sum(axis=0)
    correlation = np.zeros(1)
    if len(groups) >= LEAST_SIBLINGS:
        correlation = estimate_correlation(groups, edges)
    tests = []
    for file in new:
        counts = file.given.sum(axis=0)
        effect = np.maximum(labels_per_task, 1 + (counts.sum() - 1) * correlation)
        compared = compare_counts(counts, reference, edges, effect, labels_per_task)
        tests.append(DriftTests("class_shares", [f"classes in {file.name}"].__getitem__, compared))
    return tests
