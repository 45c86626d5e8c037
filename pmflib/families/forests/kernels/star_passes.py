"""E-step for models with forests, by stars (`pmflib.families.forests.kernels.stars`): posteriors of rows, and masses.

A batch of rows is processed variable by variable, as many rows at once as a vector holds. The product of a row in a
state never increases along the way: if its sum over states exceeds a bound, the loss by underflow is negligible and the
row is trusted. Other rows, with many hundred variables or nearly impossible, are marked as doubtful and computed in the
log domain by `pmflib.families.forests.kernels.messages`. Sums are taken in row order, so the bits depend only on the
forest, the rank and the rows.
"""

import math
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.families.forests.kernels.messages import LEAST_POSTERIOR
from pmflib.families.forests.kernels.stars import Stars, find_chance
from pmflib.model.kernels.em_arguments import UNCOUNTED

WITHIN = UNCOUNTED | {"no_cpython_wrapper": True}
"""Compiler options of functions called from kernels that allocate nothing."""
LEAST_TOTAL = 1e-250
"""Smallest sum of products at which a row is trusted: the possible loss is below 1e-300."""


class StarModel(NamedTuple):
    """A model with forests, arranged by stars."""

    stars: Stars
    """Filled by `arrange_stars`."""
    is_shared: bool
    """Whether all states share one forest."""
    forest: tuple[IntArray, ...]
    """Parents, order and starts, as in `pmflib.families.forests.kernels.messages`."""
    offsets: IntArray
    """int64 of shape (n_variables + 1,)."""
    prior: FloatArray
    """float64 of shape (rank,), above 0."""
    tables: FloatArray
    """float64 of shape (n_entries,), above 0."""
    values: FloatArray
    """float64 of shape (n_star_entries,): filled by `fill_stars`."""
    log_scales: FloatArray
    """float64 of shape (n_levels,): logarithm of the factor removed from each level, nats."""


class StarWork(NamedTuple):
    """Work space for a batch of rows; columns and keys are unsigned integers that can index the entries of a star."""

    columns: IntArray
    """Shape (n_variables + 1, n_batch)."""
    gaps: tuple[IntArray, IntArray, IntArray]
    """int32 of shapes (n_variables * n_batch,), (n_variables + 1,) and (n_variables, n_batch)."""
    keys: IntArray
    """Shape (n_stars, n_batch), or only the stars of one state if all share a forest."""
    evidence: IntArray
    """uint8 of shape (rank, or 1, n_variables, n_batch)."""
    messages: FloatArray
    """float64 of shape (rank, n_levels * n_batch)."""
    products: FloatArray
    """float64 of shape (rank, n_batch)."""
    totals: FloatArray
    """float64 of shape (n_batch,)."""
    n_observed: IntArray
    """int32 of shape (n_batch,)."""
    sums: FloatArray
    """float64, as long as the largest number of levels."""
    spare: tuple[IntArray, FloatArray]
    """int64 and float64 of shape (n_batch,)."""


@compile_kernel(saved=False, **WITHIN)
def _turn_rows(codes, begin, n_rows, gap, columns, gaps):  # type: ignore[no-untyped-def]
    """Fill columns (n_variables + 1, n_batch) with code + gap, and list the rows where each variable is missing.

    gaps: row numbers, int32 (n_variables * n_batch,), of which variable n owns ``first[n]:first[n + 1]``; and the
    position of each cell in that list, int32 (n_variables, n_batch). Returns the number of missing cells.
    """
    rows, first, positions = gaps
    n_variables = columns.shape[0] - 1
    n_missing = 0
    for n in range(np.uint64(n_variables)):
        column, any_missing = columns[n], False
        # unsigned positions: otherwise numba handles negative ones
        for r in range(np.uint64(n_rows)):
            code = codes[np.uint64(begin) + r, n]
            any_missing |= code < 0
            column[r] = code + gap
        first[n] = n_missing
        if any_missing:
            for r in range(n_rows):
                rows[n_missing] = r
                positions[n, r] = n_missing - first[n]
                n_missing += column[r] == 0
    first[n_variables] = n_missing
    for r in range(n_rows):
        columns[n_variables, r] = gap
    return n_missing


@compile_kernel(saved=False, **WITHIN)
def _find_shift(f, model):  # type: ignore[no-untyped-def]
    """Return the offset from a state's stars to those with keys; a shared forest uses the first state's keys."""
    return model.stars.first_stars[f] if model.is_shared else np.int32(0)


@compile_kernel(saved=False, **WITHIN)
def _multiply_stars(f, n_rows, model, work, products):  # type: ignore[no-untyped-def]
    """Multiply the products of a state, (n_batch,), by the entries of its stars, indexed by their keys."""
    stars, columns, values, shift = model.stars, work.columns, model.values, _find_shift(f, model)
    for k in range(stars.first_outer[f], stars.first_outer[f + 1]):
        centre = columns[stars.outer[k]]
        for s in range(stars.begins[k], stars.ends[k]):
            key = work.keys[s - shift]
            if f == 0 or not model.is_shared:
                for r in range(n_rows):
                    key[r] = centre[r]
                for q in range(stars.first_digits[s], stars.first_digits[s + 1]):
                    digit, step = columns[stars.digits[q]], columns.dtype.type(stars.digit_steps[q])
                    for r in range(n_rows):
                        key[r] += digit[r] * step
            base = np.uint64(stars.bases[s])
            for r in range(n_rows):
                products[r] *= values[base + np.uint64(key[r])]


@compile_kernel(saved=False, **WITHIN)
def _find_evidence(f, n_rows, model, work, evidence):  # type: ignore[no-untyped-def]
    """Fill evidence, uint8 (n_variables, n_batch): whether a variable or any of its descendants is observed."""
    parents, order, _ = model.forest
    n_variables = parents.shape[1]
    for n in range(n_variables):
        for r in range(n_rows):
            evidence[n, r] = work.columns[n, r] > 0
    for k in range(n_variables - 1, -1, -1):
        n = order[f, k]
        parent = parents[f, n]
        if parent >= 0:
            for r in range(n_rows):
                evidence[parent, r] |= evidence[n, r]


@compile_kernel(saved=False, **WITHIN)
def _read_messages(k, shift, rows, model, work, messages):  # type: ignore[no-untyped-def]
    """Fill the messages of a centre with entries of its stars, for the rows in which it is missing."""
    stars, values, n = model.stars, model.values, model.stars.outer[k]
    at = model.offsets[n] * work.columns.shape[1]
    for s in range(stars.begins[k], stars.ends[k]):
        key, is_first = work.keys[s - shift], s == stars.begins[k]
        for j in range(model.offsets[n + 1] - model.offsets[n]):
            base, to = np.uint64(stars.bases[s] + 1 + j), np.uint64(at + j * rows.size)
            if is_first:
                for i in range(np.uint64(rows.size)):
                    messages[to + i] = values[base + np.uint64(key[rows[i]])]
            else:
                for i in range(np.uint64(rows.size)):
                    messages[to + i] *= values[base + np.uint64(key[rows[i]])]


@compile_kernel(saved=False, **WITHIN)
def _find_chances(tables, start, size, above, rows, messages, at, places, chances):  # type: ignore[no-untyped-def]
    """Compute probabilities of the observed descendants of a missing variable given its parent's level."""
    for i in range(np.uint64(rows.size)):
        places[i] = start + max(np.int64(above[rows[i]]) - 1, 0) * size
        chances[i] = 0.0
    for j in range(size):
        level, message = np.uint64(j), np.uint64(at + j * rows.size)
        for i in range(np.uint64(rows.size)):
            chances[i] += tables[np.uint64(places[i]) + level] * messages[message + i]


@compile_kernel(saved=False, **WITHIN)
def _send_up(f, model, work, evidence, messages, products):  # type: ignore[no-untyped-def]
    """Multiply the products of a state by the messages of missing centres, from leaves to roots.

    Filled are messages, (n_levels * n_batch,), for missing centres only: the probability of their observed descendants
    given each level. Those of variable n start at ``offsets[n] * n_batch``, level after level.
    """
    stars, offsets, tables, columns = model.stars, model.offsets, model.tables, work.columns
    parents, _, starts = model.forest
    all_rows, first, positions = work.gaps
    shift, n_batch = _find_shift(f, model), columns.shape[1]
    # the last centre is the constant variable
    begin, stop = stars.first_outer[f], stars.first_outer[f + 1] - 1
    for k in range(begin, stop):
        n = stars.outer[k]
        _read_messages(k, shift, all_rows[first[n] : first[n + 1]], model, work, messages)
    for k in range(begin, stop):
        n = stars.outer[k]
        rows, below, parent = all_rows[first[n] : first[n + 1]], evidence[n], parents[f, n]
        size, at, start = offsets[n + 1] - offsets[n], offsets[n] * n_batch, starts[f, n]
        above = columns[parent] if parent >= 0 else columns[parents.shape[1]]
        places, chances = work.spare
        _find_chances(tables, start, size, above, rows, messages, at, places, chances)
        for i in range(np.uint64(rows.size)):
            r = rows[i]
            products[r] *= chances[i] if below[r] and above[r] else 1.0
        if parent < 0:
            continue
        n_gaps, to = first[parent + 1] - first[parent], offsets[parent] * n_batch
        for i in range(rows.size):
            r = rows[i]
            if above[r] or not below[r]:
                continue
            for j in range(offsets[parent + 1] - offsets[parent]):
                chance = find_chance(tables, start + j * size, size, messages, at + i, rows.size)
                messages[to + positions[parent, r] + j * n_gaps] *= chance


@compile_kernel(saved=False, **WITHIN)
def _add_stars(f, n_rows, model, work, weights, by_entry):  # type: ignore[no-untyped-def]
    """Add the weights of rows, (n_batch,), to the masses of a state's entries."""
    stars, shift = model.stars, _find_shift(f, model)
    for k in range(stars.first_outer[f], stars.first_outer[f + 1]):
        for s in range(stars.begins[k], stars.ends[k]):
            base, key = np.uint64(stars.bases[s]), work.keys[s - shift]
            for r in range(n_rows):
                by_entry[base + np.uint64(key[r])] += weights[r]


@compile_kernel(saved=False, **WITHIN)
def _split_weight(  # type: ignore[no-untyped-def]
    tables, start, size, messages, here, n_gaps, weights, above, n_gaps_above, n_above, sums, mass
):
    """Replace the message of a missing variable by weights of its levels, given those of its missing parent."""
    for j in range(size):
        sums[j] = 0.0
    for i in range(n_above):
        row = start + i * size
        chance = find_chance(tables, row, size, messages, here, n_gaps)
        share = weights[above + i * n_gaps_above] / max(chance, 1e-300)
        for j in range(size):
            found = share * tables[row + j] * messages[here + j * n_gaps]
            sums[j] += found
            mass[row + j] += found
    for j in range(size):
        messages[here + j * n_gaps] = sums[j]


@compile_kernel(saved=False, **WITHIN)
def _send_down(f, model, work, evidence, messages, weights, by_entry, mass):  # type: ignore[no-untyped-def]
    """Add the masses of missing centres with observed descendants, from roots to leaves.

    messages from `_send_up` become the weights of the levels of these centres. The joint weights with parents' levels
    are added to mass, (n_entries,), and those with children's levels to by_entry.
    """
    stars, offsets, tables, columns = model.stars, model.offsets, model.tables, work.columns
    parents, _, starts = model.forest
    all_rows, first, positions = work.gaps
    shift, n_batch = _find_shift(f, model), columns.shape[1]
    for k in range(stars.first_outer[f + 1] - 2, stars.first_outer[f] - 1, -1):
        n = stars.outer[k]
        rows, below, parent = all_rows[first[n] : first[n + 1]], evidence[n], parents[f, n]
        size, start, n_gaps = offsets[n + 1] - offsets[n], starts[f, n], rows.size
        above = columns[parent] if parent >= 0 else columns[parents.shape[1]]
        for i in range(n_gaps):
            r, here = rows[i], offsets[n] * n_batch + i
            if weights[r] == 0.0 or not below[r]:
                continue
            if above[r]:
                row = start + (np.int64(above[r]) - 1) * size
                chance = find_chance(tables, row, size, messages, here, n_gaps)
                share = weights[r] / max(chance, 1e-300)
                for j in range(size):
                    messages[here + j * n_gaps] *= tables[row + j] * share
                    mass[row + j] += messages[here + j * n_gaps]
            else:
                _split_weight(
                    tables, start, size, messages, here, n_gaps,
                    messages, offsets[parent] * n_batch + positions[parent, r], first[parent + 1] - first[parent],
                    offsets[parent + 1] - offsets[parent], work.sums, mass,
                )  # fmt: skip
            for s in range(stars.begins[k], stars.ends[k]):
                entry = stars.bases[s] + np.int64(work.keys[s - shift, r]) + 1
                for j in range(size):
                    by_entry[entry + j] += messages[here + j * n_gaps]


@compile_kernel(saved=False, **WITHIN)
def _multiply_batch(codes, begin, n_rows, model, work):  # type: ignore[no-untyped-def]
    """Fill products (rank, n_batch), totals, and numbers of observed cells; returns whether any cell is missing."""
    columns, totals, n_observed, first = work.columns, work.totals, work.n_observed, work.gaps[1]
    any_missing = _turn_rows(codes, begin, n_rows, model.stars.gap, columns, work.gaps) > 0
    for r in range(n_rows):
        n_observed[r] = codes.shape[1]
        totals[r] = 0.0
    for n in range(codes.shape[1]):
        if first[n + 1] > first[n]:
            for r in range(n_rows):
                n_observed[r] -= columns[n, r] == 0
    for f in range(model.prior.size):
        products = work.products[f]
        for r in range(n_rows):
            products[r] = model.prior[f]
        _multiply_stars(f, n_rows, model, work, products)
        if any_missing:
            evidence = work.evidence[0 if model.is_shared else f]
            if f == 0 or not model.is_shared:
                _find_evidence(f, n_rows, model, work, evidence)
            _send_up(f, model, work, evidence, work.messages[f], products)
        for r in range(n_rows):
            totals[r] += products[r]
    return any_missing


@compile_kernel(saved=False, **WITHIN)
def _weigh_rows(begin, n_rows, weights, work, is_doubtful):  # type: ignore[no-untyped-def]
    """Convert the totals of a batch to factors for its products, 0 for rows that add nothing.

    Returns the log-likelihood of the other rows, nats.
    """
    log_likelihood, fraction, totals = 0.0, 1.0, work.totals
    for r in range(n_rows):
        total, weight = totals[r], weights[begin + r]
        is_doubtful[begin + r] = not total > LEAST_TOTAL
        if is_doubtful[begin + r] or work.n_observed[r] == 0:
            totals[r] = 0.0
            continue
        totals[r] = weight / total
        if weight != 1.0:
            log_likelihood += weight * math.log(total)
            continue
        # one logarithm for several rows
        fraction *= total
        if fraction < 1e-50:
            log_likelihood += math.log(fraction)
            fraction = 1.0
    return log_likelihood + math.log(fraction)


@compile_kernel(**UNCOUNTED)
def find_star_posteriors(codes, model, work, posteriors, log_probs, is_doubtful):  # type: ignore[no-untyped-def]
    """Compute the posterior of the latent states of every row, and its log-probability.

    codes: int8 or int16 (n_rows, n_variables). model: `StarModel` whose stars allow missing cells. work: `StarWork`.
    Filled are posteriors (n_rows, rank), log_probs (n_rows,), nats, and is_doubtful (n_rows,), uint8: rows that must be
    computed in the log domain.
    """
    columns, totals, n_batch = work.columns, work.totals, work.totals.size
    for begin in range(0, codes.shape[0], n_batch):
        n_rows = min(n_batch, codes.shape[0] - begin)
        _multiply_batch(codes, begin, n_rows, model, work)
        for r in range(n_rows):
            is_doubtful[begin + r] = not totals[r] > LEAST_TOTAL
            log_probs[begin + r] = math.log(totals[r]) if work.n_observed[r] > 0 else 0.0
        for n in range(codes.shape[1]):
            for r in range(n_rows):
                if columns[n, r] > 0:
                    log_probs[begin + r] += model.log_scales[model.offsets[n] + columns[n, r] - 1]
        for r in range(n_rows):
            for f in range(posteriors.shape[1]):
                posteriors[begin + r, f] = work.products[f, r] / totals[r]


@compile_kernel(**UNCOUNTED)
def add_star_masses(codes, weights, model, work, by_entry, mass, is_doubtful):  # type: ignore[no-untyped-def]
    """Add the masses of rows to those of star entries and tables.

    weights: float64 (n_rows,). by_entry: float64 (n_star_entries,); mass: (n_entries,), increased where a centre is
    missing. Rows with nothing observed and doubtful rows (`find_star_posteriors`) add nothing. Returns the
    log-likelihood, nats, without the factors removed from levels.
    """
    log_likelihood, n_batch = 0.0, work.totals.size
    for begin in range(0, codes.shape[0], n_batch):
        n_rows = min(n_batch, codes.shape[0] - begin)
        any_missing = _multiply_batch(codes, begin, n_rows, model, work)
        log_likelihood += _weigh_rows(begin, n_rows, weights, work, is_doubtful)
        for f in range(model.prior.size):
            own = work.products[f]
            for r in range(n_rows):
                own[r] *= work.totals[r]
                if own[r] < LEAST_POSTERIOR * weights[begin + r]:
                    own[r] = 0.0
            _add_stars(f, n_rows, model, work, own, by_entry)
            if any_missing:
                evidence = work.evidence[0 if model.is_shared else f]
                _send_down(f, model, work, evidence, work.messages[f], own, by_entry, mass)
    return log_likelihood
