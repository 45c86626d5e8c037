"""Posteriors under a forest that all latent states share: what a row needs is worked out once, for all states together.

Parents, order and starts are as in `pmflib.kernels.tree_passes`, of one state: int32 (n_variables,), int32 and int64. A
table's entry is a vector over the states: tables are (n_entries, rank).
"""

import math

from pmflib.kernels.em_segments import INNER, OUTER
from pmflib.kernels.llvm.saved_code import compile_kernel
from pmflib.kernels.tree_passes import SMALL


@compile_kernel(saved=False, **INNER)
def _scale(messages, first, stop, peaks, found):  # type: ignore[no-untyped-def]
    """Scale a message, in the states where it is small, to a largest entry of 1, and add what was taken out."""
    is_small = False
    for f in range(found.size):
        peaks[f] = 0.0
    for i in range(first, stop):
        for f in range(found.size):
            peaks[f] = max(peaks[f], messages[i, f])
    for f in range(found.size):
        is_small |= peaks[f] < SMALL
    if not is_small:
        return
    for f in range(found.size):
        if 0.0 < peaks[f] < SMALL:
            for i in range(first, stop):
                messages[i, f] /= peaks[f]
            found[f] += math.log(peaks[f])


@compile_kernel(saved=False, **INNER)
def _add_gaps(codes, r, parents, order, starts, offsets, tables, messages, held, chances, found):  # type: ignore[no-untyped-def]
    """Add what variables without a parent's level, or without their own, say: from the leaves to the roots.

    What both levels are observed of has been added to found (rank,) already.
    """
    for n in range(codes.shape[1]):
        held[n] = codes[r, n] >= 0
    for k in range(codes.shape[1] - 1, -1, -1):
        n = order[k]
        parent, code, start = parents[n], codes[r, n], starts[n]
        is_above = parent < 0 or codes[r, parent] >= 0
        if held[n] == 0 or (code >= 0 and is_above):
            continue
        first, size = offsets[n], offsets[n + 1] - offsets[n]
        if code < 0:
            _scale(messages, first, first + size, chances, found)
        n_above, above = 1, 0
        if parent >= 0 and is_above:
            start += codes[r, parent] * size
        elif parent >= 0:
            above = offsets[parent]
            n_above = offsets[parent + 1] - above
            if held[parent] == 0:
                held[parent] = 1
                for i in range(above, above + n_above):
                    for f in range(found.size):
                        messages[i, f] = 1.0
        for i in range(n_above):
            entry = start + i * size
            if code >= 0:
                for f in range(found.size):
                    messages[above + i, f] *= tables[entry + code, f]
                continue
            for f in range(found.size):
                chances[f] = 0.0
            for j in range(size):
                for f in range(found.size):
                    chances[f] += tables[entry + j, f] * messages[first + j, f]
            if is_above:
                for f in range(found.size):
                    found[f] += math.log(max(chances[f], 1e-300))
            else:
                for f in range(found.size):
                    messages[above + i, f] *= chances[f]


@compile_kernel(**OUTER)
def find_shared_posteriors(  # type: ignore[no-untyped-def]
    codes, forest, offsets, log_prior, logs, tables, work, posteriors, log_probs
):
    """Posterior of the latent states of every row, and its log-probability: see `tree_passes.find_posteriors`.

    forest: parents, order and starts of a state. logs, tables: float64 (n_entries, rank), tables of a state and their
    logarithms, finite. work: float64 (n_levels + 1, rank), and uint8 (n_variables,).
    """
    parents, order, starts = forest
    vectors, held = work
    messages, chances = vectors[1:], vectors[0]
    n_rows, n_variables = codes.shape
    for r in range(n_rows):
        found = posteriors[r]
        for f in range(found.size):
            found[f] = log_prior[f]
        n_held = 0
        for n in range(n_variables):
            code, parent = codes[r, n], parents[n]
            n_held += code >= 0
            if code < 0 or (parent >= 0 and codes[r, parent] < 0):
                continue
            entry = starts[n] + code
            if parent >= 0:
                entry += codes[r, parent] * (offsets[n + 1] - offsets[n])
            for f in range(found.size):
                found[f] += logs[entry, f]
        if 0 < n_held < n_variables:
            _add_gaps(
                codes, r, parents, order, starts, offsets, tables, messages, held, chances, found
            )
        most, total = found[0], 0.0
        for f in range(1, found.size):
            most = max(most, found[f])
        for f in range(found.size):
            found[f] = math.exp(found[f] - most)
            total += found[f]
        for f in range(found.size):
            found[f] /= total
        log_probs[r] = most + math.log(total) if n_held > 0 else 0.0
