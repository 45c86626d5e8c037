"""Message passing in forests of variables, one per latent state or one shared by all states.

A forest is given by the arrays ``(parents, order, starts)``: parents int32 (rank, n_variables), -1 at a root; order
int32 of the same shape, variables sorted so that parents precede their children; starts int64 of the same shape, first
entry of a variable's table. Tables are flat: entry ``starts[f, n] + i * cardinality + j`` is that of level j of
variable n and level i of its parent, i = 0 at a root. Rows are codes, int8 or int16 (n_rows, n_variables), -1 missing.
Missing variables with nothing observed below them in a state's forest are skipped: they sum to 1.

These kernels process one row and one state at a time, in the log domain. They are used for nearly impossible rows and
for PMFs of missing variables; all other rows use `pmflib.families.forests.kernels.star_passes`.
"""

import math

from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, OUTER

LEAST_POSTERIOR = 1e-12
"""Posteriors below this are not added to masses: over 1e9 samples the sum would miss less than a hundredth of one
sample.
"""
SMALL = 1e-100
"""Messages whose largest entry is below this are rescaled, to prevent underflow."""
SAFE = 1e-30
"""Smallest conditional probability and message that are divided by: see `pmflib.model.kernels.row_surprises`."""


@compile_kernel(saved=False, **INNER)
def _add_logs(codes, r, parents, starts, offsets, logs):  # type: ignore[no-untyped-def]
    """Compute the log-probability of a fully observed row under the forest of a state."""
    total = 0.0
    for n in range(codes.shape[1]):
        entry = starts[n] + codes[r, n]
        parent = parents[n]
        if parent >= 0:
            entry += codes[r, parent] * (offsets[n + 1] - offsets[n])
        total += logs[entry]
    return total


@compile_kernel(saved=False, **INNER)
def _receive(messages, evidence, offsets, parent):  # type: ignore[no-untyped-def]
    """Prepare a variable to receive its first message from below."""
    if evidence[parent] == 0:
        evidence[parent] = 1
        for i in range(offsets[parent], offsets[parent + 1]):
            messages[i] = 1.0


@compile_kernel(saved=False, **INNER)
def _scale(messages, first, stop):  # type: ignore[no-untyped-def]
    """Rescale a message with small entries to a maximum of 1; returns the logarithm of the factor removed."""
    most = 0.0
    for i in range(first, stop):
        most = max(most, messages[i])
    if most >= SMALL or most == 0.0:
        return 0.0
    for i in range(first, stop):
        messages[i] /= most
    return math.log(most)


@compile_kernel(saved=False, **INNER)
def _go_up(codes, r, parents, order, starts, offsets, logs, tables, messages, evidence, gaps):  # type: ignore[no-untyped-def]
    """Compute the log-probability of the observed cells of a row by an upward pass, from leaves to roots.

    Filled are messages (n_levels,): for a missing variable with observed descendants, the scaled probability of these
    given its level; evidence (n_variables,): whether the variable or a descendant is observed; and gaps (n_variables,):
    the variables that are missing or have a missing parent, parents first. The number of gaps is returned as well.
    """
    total, n_gaps = 0.0, 0
    for k in range(codes.shape[1]):
        n = order[k]
        parent, code, entry = parents[n], codes[r, n], starts[n]
        evidence[n] = code >= 0
        if code < 0 or (parent >= 0 and codes[r, parent] < 0):
            gaps[n_gaps] = n
            n_gaps += 1
            continue
        if parent >= 0:
            entry += codes[r, parent] * (offsets[n + 1] - offsets[n])
        total += logs[entry + code]
    for k in range(n_gaps - 1, -1, -1):
        n = gaps[k]
        if evidence[n] == 0:
            continue
        parent, code, start = parents[n], codes[r, n], starts[n]
        first, size = offsets[n], offsets[n + 1] - offsets[n]
        if code < 0:
            total += _scale(messages, first, first + size)
            if parent < 0 or codes[r, parent] >= 0:
                if parent >= 0:
                    start += codes[r, parent] * size
                chance = 0.0
                for j in range(size):
                    chance += tables[start + j] * messages[first + j]
                total += math.log(max(chance, 1e-300))
                continue
        _receive(messages, evidence, offsets, parent)
        above = offsets[parent]
        for i in range(offsets[parent + 1] - above):
            if code >= 0:
                messages[above + i] *= tables[start + i * size + code]
            else:
                chance = 0.0
                for j in range(size):
                    chance += tables[start + i * size + j] * messages[first + j]
                messages[above + i] *= chance
    return total, n_gaps


@compile_kernel(saved=False, **INNER)
def _go_down(  # type: ignore[no-untyped-def]
    codes,
    r,
    parents,
    starts,
    offsets,
    tables,
    messages,
    evidence,
    gaps,
    n_gaps,
    beliefs,
    weight,
    mass,
):
    """Compute beliefs of missing variables and masses of tables by a downward pass, from roots to leaves.

    messages, evidence and gaps come from `_go_up`. Filled are beliefs (n_levels,): the PMF of every missing variable
    given the observed cells. Masses of observed cells, times weight, are added unless weight is 0, except for variables
    outside the gaps.
    """
    for k in range(n_gaps):
        n = gaps[k]
        if weight > 0.0 and evidence[n] == 0:
            continue
        parent, code = parents[n], codes[r, n]
        first, size = offsets[n], offsets[n + 1] - offsets[n]
        start = starts[n]
        if code < 0 and (parent < 0 or codes[r, parent] >= 0):
            if parent >= 0:
                start += codes[r, parent] * size
            total = 0.0
            for j in range(size):
                beliefs[first + j] = tables[start + j] * (
                    messages[first + j] if evidence[n] else 1.0
                )
                total += beliefs[first + j]
            for j in range(size):
                beliefs[first + j] /= max(total, 1e-300)
                if evidence[n] and weight > 0.0:
                    mass[start + j] += weight * beliefs[first + j]
            continue
        above = offsets[parent]
        n_above = offsets[parent + 1] - above
        if code >= 0:
            if weight > 0.0:
                for i in range(n_above):
                    mass[start + i * size + code] += weight * beliefs[above + i]
            continue
        for j in range(size):
            beliefs[first + j] = 0.0
        for i in range(n_above):
            row = start + i * size
            total = 0.0
            for j in range(size):
                total += tables[row + j] * (messages[first + j] if evidence[n] else 1.0)
            share = beliefs[above + i] / max(total, 1e-300)
            for j in range(size):
                found = share * tables[row + j] * (messages[first + j] if evidence[n] else 1.0)
                beliefs[first + j] += found
                if evidence[n] and weight > 0.0:
                    mass[row + j] += weight * found


@compile_kernel(saved=False, **INNER)
def _pass_both(codes, r, f, forest, offsets, logs, tables, work, weight, mass):  # type: ignore[no-untyped-def]
    """Run the upward and the downward pass of one state; see `_go_down`."""
    parents, order, starts = forest
    vectors, evidence, gaps = work
    _, n_gaps = _go_up(
        codes,
        r,
        parents[f],
        order[f],
        starts[f],
        offsets,
        logs,
        tables,
        vectors[0],
        evidence,
        gaps,
    )
    _go_down(
        codes,
        r,
        parents[f],
        starts[f],
        offsets,
        tables,
        vectors[0],
        evidence,
        gaps,
        n_gaps,
        vectors[1],
        weight,
        mass,
    )


@compile_kernel(**OUTER)
def find_posteriors(codes, forest, offsets, log_prior, logs, tables, work, posteriors, log_probs):  # type: ignore[no-untyped-def]
    """Compute the posterior of the latent states of every row, and its log-probability.

    forest: as above. offsets: int64 (n_variables + 1,). log_prior: float64 (rank,). logs, tables: float64 (n_entries,),
    tables and their logarithms, finite. work: a float64 (n_levels,), a uint8 and an int32 (n_variables,). Filled are
    posteriors (n_rows, rank), float64, the prior where nothing is observed; and log_probs (n_rows,), nats, 0 there.
    """
    parents, order, starts = forest
    messages, evidence, gaps = work
    n_rows, n_variables = codes.shape
    for r in range(n_rows):
        n_observed = 0
        for n in range(n_variables):
            n_observed += codes[r, n] >= 0
        log_probs[r] = n_observed
    for f in range(log_prior.size):
        for r in range(n_rows):
            found = log_prior[f]
            if log_probs[r] == n_variables:
                found += _add_logs(codes, r, parents[f], starts[f], offsets, logs)
            elif log_probs[r] > 0:
                found += _go_up(
                    codes,
                    r,
                    parents[f],
                    order[f],
                    starts[f],
                    offsets,
                    logs,
                    tables,
                    messages,
                    evidence,
                    gaps,
                )[0]
            posteriors[r, f] = found
    for r in range(n_rows):
        most = posteriors[r, 0]
        for f in range(1, log_prior.size):
            most = max(most, posteriors[r, f])
        total = 0.0
        for f in range(log_prior.size):
            posteriors[r, f] = math.exp(posteriors[r, f] - most)
            total += posteriors[r, f]
        for f in range(log_prior.size):
            posteriors[r, f] /= total
        log_probs[r] = most + math.log(total) if log_probs[r] > 0 else 0.0


@compile_kernel(**OUTER)
def add_masses(codes, weights, posteriors, forest, offsets, logs, tables, work, mass, state_mass):  # type: ignore[no-untyped-def]
    """Add the masses of rows to the table masses (n_entries,) and the state masses (rank,).

    weights: float64 (n_rows,). posteriors: from `find_posteriors`. work: float64 (2, n_levels), and uint8 and int32
    (n_variables,). Rows with nothing observed add nothing.
    """
    parents, _, starts = forest
    n_rows, n_variables = codes.shape
    for r in range(n_rows):
        n_observed = 0
        for n in range(n_variables):
            n_observed += codes[r, n] >= 0
        if n_observed == 0:
            continue
        for f in range(state_mass.size):
            if posteriors[r, f] < LEAST_POSTERIOR:
                continue
            weight = weights[r] * posteriors[r, f]
            state_mass[f] += weight
            for n in range(n_variables):
                parent, code, entry = parents[f, n], codes[r, n], starts[f, n]
                if code < 0 or (parent >= 0 and codes[r, parent] < 0):
                    continue
                if parent >= 0:
                    entry += codes[r, parent] * (offsets[n + 1] - offsets[n])
                mass[entry + code] += weight
            if n_observed < n_variables:
                _pass_both(codes, r, f, forest, offsets, logs, tables, work, weight, mass)


@compile_kernel(**OUTER)
def find_beliefs(codes, posteriors, forest, offsets, logs, tables, work, chances):  # type: ignore[no-untyped-def]
    """Compute the PMF of every missing variable given its row: float64 (n_rows, n_levels), 0 where observed.

    posteriors and work: as for `add_masses`.
    """
    beliefs = work[0][1]
    for r in range(codes.shape[0]):
        for level in range(chances.shape[1]):
            chances[r, level] = 0.0
        for f in range(posteriors.shape[1]):
            if posteriors[r, f] < LEAST_POSTERIOR:
                continue
            # weight 0 adds nothing, which matters because the tables may be read-only memory
            _pass_both(codes, r, f, forest, offsets, logs, tables, work, 0.0, chances[r])
            for n in range(codes.shape[1]):
                if codes[r, n] < 0:
                    for level in range(offsets[n], offsets[n + 1]):
                        chances[r, level] += posteriors[r, f] * beliefs[level]


@compile_kernel(saved=False, **INNER)
def _send_up(codes, r, f, forest, offsets, tables, messages, sent, evidence):  # type: ignore[no-untyped-def]
    """Fill messages (n_levels,): of each variable, the scaled probability of what is observed below it, by its level.

    Unlike in `_go_up`, a variable's own code has no part in its messages. Filled are also sent (n_variables, most
    levels), what each variable contributed to the messages of its parent, and evidence, as there. Returns whether all
    that may be divided by is at least ``SAFE``.
    """
    parents, order, starts = forest
    is_safe = True
    for n in range(codes.shape[1]):
        evidence[n] = codes[r, n] >= 0
    for level in range(messages.size):
        messages[level] = 1.0
    for k in range(codes.shape[1] - 1, -1, -1):
        n = order[f, k]
        parent, code, start = parents[f, n], codes[r, n], starts[f, n]
        if parent < 0 or evidence[n] == 0:
            continue
        evidence[parent] = 1
        first, size, above = offsets[n], offsets[n + 1] - offsets[n], offsets[parent]
        for i in range(offsets[parent + 1] - above):
            if code >= 0:
                chance = tables[start + i * size + code]
            else:
                chance = 0.0
                for j in range(size):
                    chance += tables[start + i * size + j] * messages[first + j]
            sent[n, i] = chance
            messages[above + i] *= chance
            is_safe = is_safe and (chance >= SAFE or codes[r, parent] >= 0)
        _scale(messages, above, offsets[parent + 1])
    return is_safe


@compile_kernel(saved=False, **INNER)
def _receive_above(codes, r, n, parent, start, offsets, tables, messages, sent, above):  # type: ignore[no-untyped-def]
    """Fill above (n_levels,) for a variable: the scaled probability of its levels and of all that is not below it."""
    first, size = offsets[n], offsets[n + 1] - offsets[n]
    if parent < 0 or codes[r, parent] >= 0:
        row = start if parent < 0 else start + codes[r, parent] * size
        for j in range(size):
            above[first + j] = tables[row + j]
        return
    for j in range(size):
        above[first + j] = 0.0
    for i in range(offsets[parent + 1] - offsets[parent]):
        level = offsets[parent] + i
        share = above[level] * messages[level] / sent[n, i]
        for j in range(size):
            above[first + j] += share * tables[start + i * size + j]
    _scale(above, first, first + size)


@compile_kernel(**OUTER)
def add_inverses(codes, posteriors, forest, offsets, tables, work, inverses, safe):  # type: ignore[no-untyped-def]
    """Add to inverses (n_rows, n_variables) that of the probability of each observed cell given all others of its row.

    posteriors: float64 (n_rows, rank), given all observed cells. work: float64 (2, n_levels) and (n_variables, most
    levels), and uint8 (n_variables,). The inverse is ``sum_f posterior_f / P(cell | the others, f)``, one upward and
    one downward pass for all cells. safe, uint8 (n_rows,), becomes 0 where a probability is too small to divide by.
    """
    parents, order, starts = forest
    vectors, sent, evidence = work
    messages, above = vectors[0], vectors[1]
    for r in range(codes.shape[0]):
        for f in range(posteriors.shape[1]):
            weight = posteriors[r, f]
            if weight == 0.0:
                continue
            if not _send_up(codes, r, f, forest, offsets, tables, messages, sent, evidence):
                safe[r] = 0
                break
            for k in range(codes.shape[1]):
                n = order[f, k]
                if evidence[n] == 0:
                    continue
                _receive_above(
                    codes,
                    r,
                    n,
                    parents[f, n],
                    starts[f, n],
                    offsets,
                    tables,
                    messages,
                    sent,
                    above,
                )
                if codes[r, n] < 0:
                    continue
                total = 0.0
                for level in range(offsets[n], offsets[n + 1]):
                    total += above[level] * messages[level]
                level = offsets[n] + codes[r, n]
                chance = above[level] * messages[level]
                if chance < SAFE * total:
                    safe[r] = 0
                    break
                inverses[r, n] += weight * total / chance


@compile_kernel(**OUTER)
def add_pair_masses(codes, weights, posteriors, first, offsets, levels, mass):  # type: ignore[no-untyped-def]
    """Add posterior-weighted counts of all pairs of observed levels, for some states.

    weights: float64 (n_rows,). posteriors: (n_rows, rank). first: index of the first of these states. levels: int64
    (n_variables,), work space. mass: float64 (n_states, n_levels, n_levels); its upper triangle is added to, with
    single counts on the diagonal.
    """
    # one state at a time, so that its counts stay in cache
    for k in range(mass.shape[0]):
        for r in range(codes.shape[0]):
            if posteriors[r, first + k] < 1e-6:
                continue
            n_observed = 0
            for n in range(codes.shape[1]):
                if codes[r, n] >= 0:
                    levels[n_observed] = offsets[n] + codes[r, n]
                    n_observed += 1
            weight = weights[r] * posteriors[r, first + k]
            for i in range(n_observed):
                row = mass[k, levels[i]]
                for j in range(i, n_observed):
                    row[levels[j]] += weight
