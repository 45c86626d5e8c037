"""Forests of stored samples: what is open is chosen on samples in memory, then all blocks are passed over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pmflib.counting.pair_counts import PairCounts
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.dependence import describe_residuals, hold_out, keep_plain, list_ranks
from pmflib.fitting.em_fit import EMFit, digest_model
from pmflib.fitting.forest_refining import Judge, Saved, plan_forests, run_saved, take_stored
from pmflib.fitting.forest_search import REFIT_PASSES, ForestSearch, find_limits, report_forests
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.starts import StoredCounts
from pmflib.running.clients import find_memory
from pmflib.running.memory_plan import format_bytes
from pmflib.selection.comparison import Comparison
from pmflib.trees.memory import are_modest, find_largest
from pmflib.trees.stored_tree_samples import StoredTreeSamples
from pmflib.trees.tree_checkpoint import load_search, save_search
from pmflib.trees.tree_em import TreeRun
from pmflib.trees.tree_fit import START_ROWS

SEARCH_WORK = 1 << 27
"""Cells times rank, missing cells included, of the samples that forests are searched with: about a quarter of a second
of a pass. Of more samples as many are taken, and all are passed over once the search is done."""


def fit_stored_dependence(
    fit: EMFit,
    plain: FitResult,
    training: StoredSamples,
    validation: object | None,
    counts: PairCounts | StoredCounts,
    *,
    is_forced: bool,
    tries_ranks: bool = False,
) -> FitResult:
    """Fit stored samples with forests, where that is worth it: as `pmflib.fitting.dependence.fit_dependence` does.

    Parameters
    ----------
    fit, plain, is_forced, tries_ranks
        As there.
    training
        Training samples.
    validation
        Held-out samples, stored or in memory; without any, forests are only fitted where they are forced, and a fold of
        the samples of the search chooses what is open.
    counts
        Co-occurrence counts of the training samples: what bivariate residuals are found in.

    Returns
    -------
    The result without forests, with a note, or the one with forests.

    Raises
    ------
    MemoryPlanError
        If the tables and counts would not fit in memory.
    """
    offsets = fit.schema.offsets
    if not is_forced and not are_modest(offsets, fit.rank):
        largest = find_largest(offsets, fit.rank)
        much = f"tables or counts of pairs of {format_bytes(largest)} are more than is tried without being asked for"
        return keep_plain(
            plain, f"dependence none: {much}; 'tree' fits them where they fit in memory"
        )
    find_memory(training.client).check(
        partial(plan_forests, training, fit.rank, fit.options.members)
    )
    whole = counts.load() if isinstance(counts, StoredCounts) else counts
    n_large, note = describe_residuals(plain.model, whole)
    del whole
    if not is_forced and not n_large and not tries_ranks:
        return keep_plain(plain, f"dependence none: {note}")
    passes = _ForestPasses(fit, training, counts, Judge.open(fit, validation))
    if passes.judge is None and not is_forced:
        return keep_plain(plain, f"dependence none: no samples are held out to judge by; {note}")
    ranks = list_ranks(fit.rank, n_large, is_forced, tries_ranks)
    search, runs, comparisons = passes.search(plain, ranks)
    judge = None
    if not passes.has_all:
        runs = [passes.run(number, each) for number, each in enumerate(runs)]
        judge = passes.judge.samples if passes.judge else None
        note += f"; forests were searched on {passes.n_search:,} of {training.n_rows:,} samples"
    models = [each.parameters for each in runs]
    choice = search.choose(models, is_forced, judge)
    if choice.chosen.settings["dependence"] == "none":
        return keep_plain(plain, note, choice.reason, comparison=choice)
    found = (*comparisons, choice)
    notes = (note, *(each.reason for each in found))
    return report_forests(fit, runs, models, notes, found)


def count_searched(n_rows: int, n_variables: int, rank: int) -> int:
    """Number of training samples that forests are searched with, of so many, with models of a rank."""
    return min(n_rows, max(START_ROWS, SEARCH_WORK // (n_variables * rank)))


class _ForestPasses:
    """The search on some of the samples, and passes over all of them, which continue from their checkpoints."""

    def __init__(
        self,
        fit: EMFit,
        training: StoredSamples,
        counts: PairCounts | StoredCounts,
        judge: Judge | None,
    ) -> None:
        self.judge = judge
        self._fit, self._training, self._counts = fit, training, counts
        self.n_search = count_searched(training.n_rows, fit.schema.n_variables, fit.rank)

    @property
    def has_all(self) -> bool:
        """Whether the search has all samples, so that no pass over them is left to make."""
        if self.judge is None:
            return False
        return self.n_search == self._training.n_rows and self._n_judges == self.judge.n_rows

    def search(
        self, plain: FitResult, ranks: Sequence[int]
    ) -> tuple[ForestSearch, list[TreeRun], list[Comparison]]:
        """Search on samples in memory."""
        codes = take_stored(self._training, self.n_search)
        if self.judge is None:
            codes, held_codes = hold_out(codes)
        else:
            held_codes = self.judge.take(self._n_judges)
        search = ForestSearch(self._fit, codes, held_codes, plain.model)
        self._parts = (
            self._fit.digest_options(),
            self._training.digest(),
            self.judge.digest if self.judge else "",
            digest_model((plain.model.prior, plain.model.factors)),
            f"{ranks} {self.n_search}",
        )
        saved = Saved(None, False)
        if not self.has_all:
            saved = Saved.make(self._fit, "search", *self._parts)
        if saved.path is not None and saved.is_there:
            known = load_search(saved.path, self._fit.schema.offsets)
            if known is not None:
                return search, *known
        runs, comparisons = search.run(ranks)
        if saved.path is not None:
            save_search(saved.path, runs, comparisons)
        return search, runs, comparisons

    def run(self, number: int, found: TreeRun) -> TreeRun:
        """Make passes over all samples from what the search has found for a member."""
        fit, limits = self._fit, find_limits(self._fit)
        if self.judge is None:
            # what was best for the samples held out of the search takes few passes more
            limits = limits._replace(max_passes=min(REFIT_PASSES, limits.max_passes))
        samples, singles = StoredTreeSamples(self._training), fit.estimate_singles(self._counts)
        saved = Saved.make(fit, f"{number}", *self._parts)
        name = f"forests {number}"
        return run_saved(fit, name, samples, singles, found, self.judge, limits, saved)

    @property
    def _n_judges(self) -> int:
        """Held-out samples of the search."""
        return min(self.judge.n_rows, self.n_search) if self.judge else 0
