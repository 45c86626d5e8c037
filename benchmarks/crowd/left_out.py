"""What ten public logs say of a label log that is not among them: the rules of the default, each log left out in turn.

    python -m benchmarks.crowd.left_out ../shared/data

prints, for each log, the errors of majority vote, of Dawid and Skene's method and of the default, with calibration
error (15 bins of equal width, points) and log-loss of the default and of calibrated votes; below that what the
constants would be without the log, and what they would give for it:

* thresholds of `pmflib.apps.crowd.model_choice.choose_model`, by the mean error of the nine other logs, without its
  comparisons with fits that have no votes, which change the choice on none of the ten;
* factor of the evidence and shared error (`pmflib.apps.crowd.confidence.CalibrationPrior`), by their mean log-loss.

Last a reliability diagram as a table: labels by confidence in bins of a tenth, of all logs together, with the share
that is right: by the posterior of the method, and calibrated by what the nine other logs choose.

The constants of the package are those of all ten; what is printed for a log that is left out had no part of it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.crowd.calibration import Pairs, measure_widths
from benchmarks.crowd.regimes import LEAST_PROBABILITY, read_judged
from pmflib.apps.crowd import Aggregation, LabelLog, aggregate
from pmflib.apps.crowd.aggregation import fit_crowd_model
from pmflib.apps.crowd.dawid_skene import plan_shrunk
from pmflib.apps.crowd.e_step import count_votes
from pmflib.apps.crowd.methods import LABEL_LIMITS
from pmflib.apps.crowd.model_choice import EVENNESS, HeldOut, assign_folds, hold_out_labels
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel
from pmflib.apps.crowd.true_labels import TasksInMemory

LOGS = (
    "bluebird",
    "dog",
    "labelme",
    "jn-product",
    "tweet",
    "fact-eval",
    "zencrowd-us",
    "face",
    "trec11",
    "mre-treat",
)
LARGEST = plan_shrunk(LABEL_LIMITS.max_passes, LABEL_LIMITS.tol).annotator_model
MODELS = {
    "even": replace(LARGEST, n_subclasses=1, evenness=EVENNESS),
    "learnt": replace(LARGEST, n_subclasses=1),
    "two": LARGEST,
}
RULES = tuple(
    product((0.06, 0.08, 0.1, 0.15), (1.0, 1.5, 2.0, 3.0), (0.02, 0.04, 0.06), (1.0, 2.5, 4.0))
)
"""Most moved, errors of the prior, least moved, errors of a second subclass."""
CONSTANTS = tuple(product((0.45, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0), (0.04, 0.0, 0.02, 0.06, 0.1)))
"""Evidence and shared error."""


@dataclass(frozen=True, eq=False)
class JudgedLog:
    """A log with the truth of some tasks, and what each model makes of it.

    Parameters
    ----------
    log
        The log.
    truth
        int64 of shape (n_tasks,): class, -1 where no worker named it, -2 where it is not known.
    found
        Results by model.
    held_out
        What each model says of held-out labels.
    votes
        Votes of the tasks of ``held_out``.
    """

    log: LabelLog
    truth: np.ndarray
    found: Mapping[str, Aggregation]
    held_out: Mapping[str, HeldOut]
    votes: np.ndarray

    def choose(self, rule: Sequence[float]) -> str:
        """Name of the model that `pmflib.apps.crowd.model_choice.choose_model` takes by other thresholds."""
        most_moved, prior_errors, least_moved, subclass_errors = rule
        base = self.held_out["learnt"]
        gain, moved = base.compare(self.held_out["two"])
        nearer = self.held_out["two"].count_top(self.votes) > base.count_top(self.votes)
        if nearer and moved >= least_moved and gain.mean > subclass_errors * gain.error:
            return "two"
        gain, moved = base.compare(self.held_out["even"])
        alike = moved <= most_moved and gain.mean >= -prior_errors * gain.error
        return "even" if alike else "learnt"

    def score(self, probabilities: np.ndarray) -> tuple[float, float, float]:
        """Error, per cent, calibration error, points, and log-loss, nats, of the tasks whose truth is known."""
        judged = self.truth > -2
        found, truth = probabilities[judged], self.truth[judged]
        right = found.argmax(axis=1) == truth
        given = found[np.arange(truth.size), np.maximum(truth, 0)][truth >= 0]
        loss = -float(np.log(np.maximum(given, LEAST_PROBABILITY)).mean())
        return 100 * float(1 - right.mean()), measure_widths(found.max(axis=1), right), loss


def judge(data: Path, name: str) -> JudgedLog:
    """Read a log and fit all models."""
    log, truth = read_judged(data, name)
    labels, sizes = log.block, (log.n_workers, log.n_classes)
    several, folds = np.flatnonzero(np.diff(labels.indptr) > 1), assign_folds(labels)
    found, held_out = {}, {}
    for model, kind in MODELS.items():
        found[model] = fit(log, kind)
        each = hold_out_labels(labels, folds, sizes, kind, LABEL_LIMITS)
        held_out[model] = HeldOut(each.log_probs[several], each.codes[several])
    return JudgedLog(log, truth, found, held_out, count_votes(labels, log.n_classes)[several])


def fit(log: LabelLog, kind: AnnotatorModel) -> Aggregation:
    """Fit one model, as `aggregate` does."""
    state, posterior = fit_crowd_model(log, kind)
    tasks, model = TasksInMemory(log, posterior), state.parameters
    return Aggregation(tasks, model.prior, model.confusion, evenness=kind.evenness)


def show_methods(logs: Mapping[str, JudgedLog]) -> None:
    """Print errors, calibration errors and log-losses of the methods."""
    methods = ("majority", "dawid_skene", "auto")
    rows = []
    for name, one in logs.items():
        rows.append([one.score(aggregate(one.log, how).probabilities) for how in methods])
        print_row(name, rows[-1])
    print_row("mean", np.mean(rows, axis=0))


def print_row(name: str, scores: Sequence[Sequence[float]] | np.ndarray) -> None:
    """Print error, calibration error and log-loss of each method."""
    print(
        f"{name:12}" + "".join(f"{e:9.2f}{c:7.1f}{loss:7.3f}" for e, c, loss in scores), flush=True
    )


def score_constants(one: JudgedLog, model: str) -> np.ndarray:
    """Scores of a model by evidence and shared error, (n_constants, 3)."""
    found, judged = one.found[model], np.flatnonzero(one.truth > -2)
    block, posterior = one.log.block.take(judged), found.posterior[judged]
    some = replace(one, truth=one.truth[judged])
    rules = [
        replace(found.calibration, evidence=evidence, shared_error=shared)
        for evidence, shared in CONSTANTS
    ]
    return np.array([some.score(rule.apply(block, posterior)) for rule in rules])


def show_left_out(logs: Mapping[str, JudgedLog]) -> None:
    """Print what the other logs choose, and what it gives."""
    scores = {name: {m: score_constants(one, m) for m in MODELS} for name, one in logs.items()}
    taken = {name: [one.choose(rule) for rule in RULES] for name, one in logs.items()}
    kept: list[np.ndarray] = []
    pairs: dict[str, list[Pairs]] = {"before": [], "after": []}
    for name in logs:
        others = [each for each in logs if each != name]
        # the same class is the most probable one, whatever the shared error
        errors = [[scores[each][model][0, 0] for model in taken[each]] for each in others]
        rule = int(np.mean(errors, axis=0).argmin())
        losses = [scores[each][taken[each][rule]][:, 2] for each in others]
        best = int(np.mean(losses, axis=0).argmin())
        kept.append(scores[name][taken[name][rule]][best])
        evidence, shared = CONSTANTS[best]
        for when, each in judge_confidence(logs[name], taken[name][rule], evidence, shared).items():
            pairs[when].append(each)
        print_row(name, kept[-1][None])
        print(f"  {taken[name][rule]} by {RULES[rule]}, {evidence} and {shared}", flush=True)
    print_row("mean", np.mean(kept, axis=0)[None])
    print("\nconfidence and share of right labels, with the number of tasks")
    for when, parts in pairs.items():
        show_bins(when, *map(np.concatenate, zip(*parts, strict=True)))


def judge_confidence(
    one: JudgedLog, model: str, evidence: float, shared: float
) -> dict[str, Pairs]:
    """Confidence of the judged tasks and whether their label is right: before calibration, and after."""
    found, judged = one.found[model], one.truth > -2
    rule = replace(found.calibration, evidence=evidence, shared_error=shared)
    each = {"before": found.posterior, "after": rule.apply(one.log.block, found.posterior)}
    return {
        when: (shares[judged].max(axis=1), shares[judged].argmax(axis=1) == one.truth[judged])
        for when, shares in each.items()
    }


def show_bins(title: str, confidence: np.ndarray, right: np.ndarray) -> None:
    """Print mean confidence, share of right labels and number of tasks of each tenth."""
    places = np.minimum((confidence * 10).astype(int), 9)
    for place in np.unique(places):
        mine = places == place
        print(
            f"{title:8}{confidence[mine].mean():8.3f}{right[mine].mean():8.3f}{mine.sum():8}",
            flush=True,
        )


def main() -> None:
    """Judge the logs, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of real logs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logs = {name: judge(options.data, name) for name in LOGS}
    print(f"{'':12}{'majority':>25}{'dawid_skene':>25}{'auto':>25}")
    show_methods(logs)
    print(
        "\nlog left out: its error, calibration error and log-loss by what the nine others choose"
    )
    show_left_out(logs)


if __name__ == "__main__":
    main()
