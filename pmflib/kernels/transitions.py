"""Passes along chains of latent states: smoothing forward and backward, expected counts, the most probable paths.

A row is a person, whose observed levels are grouped by wave. Levels of a wave are independent given the state in that
wave, and the states form a Markov chain. A wave in which nothing is observed has likelihood 1 in every state.
"""

import math

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.kernels.llvm.saved_code import compile_kernel


@compile_kernel()
def smooth_row(
    levels: IntArray,
    waves: IntArray,
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[float, int]:
    """Compute the log-probability of a row and the posteriors of its states, up to the last wave with an answer.

    Backward first: ``betas[w, s]`` is proportional to the probability of all later answers given state s in wave w, and
    ``likelihoods[w, s]`` to that of the answers of wave w and later. Forward then, transitions given all answers are
    ``transitions[w, s, t] * likelihoods[w + 1, t] / betas[w, s]``.

    Parameters
    ----------
    levels
        Level indices that are observed, in any order.
    waves
        Shape (n_levels,): wave of each level.
    chain
        Initial shares, transitions and logarithms of emissions: shapes (n_states,), (n_waves - 1, n_states, n_states)
        and (n_levels, n_states).
    work
        Likelihoods, betas and posteriors: three arrays of shape (n_waves, n_states), overwritten.

    Returns
    -------
    Log-probability, nats, and the last wave with an answer: 0 and -1 if there is none. -inf if the row is impossible.
    """
    initial, transitions, log_emissions = chain
    likelihoods, betas, gammas = work
    rank, last = initial.size, -1
    for level in levels:
        last = max(last, waves[level])
    if last < 0:
        return 0.0, last
    likelihoods[: last + 1] = 0.0
    for level in levels:
        for s in range(rank):
            likelihoods[waves[level], s] += log_emissions[level, s]
    total = 0.0
    betas[last] = 1.0
    for w in range(last, -1, -1):
        top = likelihoods[w].max()
        largest = 0.0
        for s in range(rank):
            likelihoods[w, s] = math.exp(likelihoods[w, s] - top) * betas[w, s]
            largest = max(largest, likelihoods[w, s])
        if largest == 0.0:
            return -math.inf, last
        total += top + math.log(largest)
        for s in range(rank):
            likelihoods[w, s] /= largest
        if w:
            for s in range(rank):
                chance = 0.0
                for t in range(rank):
                    chance += transitions[w - 1, s, t] * likelihoods[w, t]
                betas[w - 1, s] = chance
    chance = 0.0
    for s in range(rank):
        gammas[0, s] = initial[s] * likelihoods[0, s]
        chance += gammas[0, s]
    if chance == 0.0:
        return -math.inf, last
    gammas[0] /= chance
    for w in range(last):
        gammas[w + 1] = 0.0
        for s in range(rank):
            if gammas[w, s] > 0.0:
                ratio = gammas[w, s] / betas[w, s]
                for t in range(rank):
                    gammas[w + 1, t] += ratio * transitions[w, s, t] * likelihoods[w + 1, t]
    return total + math.log(chance), last


@compile_kernel()
def add_paths(
    rows: tuple[IntArray, IntArray, FloatArray],
    layout: tuple[IntArray, IntArray, IntArray],
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray],
    state_mass: FloatArray,
    table_mass: FloatArray,
) -> float:
    """Add the expected counts of rows: of initial states, of levels by state, of transitions.

    Parameters
    ----------
    rows
        ``indptr`` (n_rows + 1,), ``indices`` (n_observed,) as in `SparseBlock`, and ``weights`` (n_rows,).
    layout
        ``waves`` (n_levels,): wave of each level; ``ties`` (n_levels,): its row of the tables; ``steps``
        (n_waves - 1,): first row of the transitions from each wave.
    chain
        Initial shares, transitions and logarithms of emissions, as for `smooth_row`.
    work
        Three arrays of shape (n_waves, n_states), overwritten.
    state_mass, table_mass
        Shapes (n_sums, n_states) and (n_sums, n_table_rows, n_states), grow: of all rows with ``n_sums`` of 1, and of
        each row with n_rows. Rows with nothing observed, or impossible, add nothing.

    Returns
    -------
    Log-likelihood, nats.
    """
    indptr, indices, weights = rows
    waves, ties, steps = layout
    transitions, (likelihoods, betas, gammas) = chain[1], work
    rank, log_likelihood = chain[0].size, 0.0
    for row in range(weights.size):
        levels, weight = indices[indptr[row] : indptr[row + 1]], weights[row]
        out = min(row, len(state_mass) - 1)
        log_prob, last = smooth_row(levels, waves, chain, work)
        if last < 0:
            continue
        log_likelihood += weight * log_prob
        if log_prob == -math.inf:
            continue
        for s in range(rank):
            state_mass[out, s] += weight * gammas[0, s]
        for level in levels:
            for s in range(rank):
                table_mass[out, ties[level], s] += weight * gammas[waves[level], s]
        for w in range(last):
            for s in range(rank):
                if gammas[w, s] > 0.0:
                    ratio = weight * gammas[w, s] / betas[w, s]
                    for t in range(rank):
                        held = ratio * transitions[w, s, t] * likelihoods[w + 1, t]
                        table_mass[out, steps[w] + t, s] += held
    return log_likelihood


@compile_kernel()
def score_paths(
    rows: tuple[IntArray, IntArray],
    waves: IntArray,
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray],
    log_probs: FloatArray,
    posteriors: FloatArray,
) -> None:
    """Fill in the log-probability of every row, and the posteriors of its states in all waves.

    Parameters
    ----------
    rows
        ``indptr`` and ``indices``, as in `SparseBlock`.
    waves, chain, work
        As for `add_paths`.
    log_probs
        Shape (n_rows,), overwritten.
    posteriors
        Shape (n_rows, n_waves, n_states), overwritten, or (0, n_waves, n_states) to skip them. An impossible row has
        those of a row with nothing observed.
    """
    indptr, indices = rows
    initial, transitions, gammas = chain[0], chain[1], work[2]
    for row in range(log_probs.size):
        levels = indices[indptr[row] : indptr[row + 1]]
        log_probs[row], last = smooth_row(levels, waves, chain, work)
        if not len(posteriors):
            continue
        if last < 0 or log_probs[row] == -math.inf:
            gammas[0], last = initial, 0
        for w in range(last, len(transitions)):
            gammas[w + 1] = 0.0
            for s in range(initial.size):
                for t in range(initial.size):
                    gammas[w + 1, t] += gammas[w, s] * transitions[w, s, t]
        posteriors[row] = gammas


@compile_kernel()
def find_paths(
    rows: tuple[IntArray, IntArray],
    waves: IntArray,
    logs: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, IntArray],
    paths: IntArray,
) -> None:
    """Find the most probable path of states of every row, by Viterbi's algorithm; the lowest states if tied.

    Parameters
    ----------
    rows, waves
        As for `score_paths`.
    logs
        Logarithms of initial shares, transitions and emissions.
    work
        float64 and int64 of shape (n_waves, n_states), overwritten.
    paths
        Shape (n_rows, n_waves), overwritten.
    """
    indptr, indices = rows
    log_initial, log_transitions, log_emissions = logs
    scores, came_from = work
    n_waves, rank = scores.shape
    for row in range(len(paths)):
        scores[:] = 0.0
        for level in indices[indptr[row] : indptr[row + 1]]:
            for s in range(rank):
                scores[waves[level], s] += log_emissions[level, s]
        scores[0] += log_initial
        for w in range(1, n_waves):
            for t in range(rank):
                best = 0
                highest = scores[w - 1, 0] + log_transitions[w - 1, 0, t]
                for s in range(1, rank):
                    score = scores[w - 1, s] + log_transitions[w - 1, s, t]
                    if score > highest:
                        best, highest = s, score
                came_from[w, t] = best
                scores[w, t] += highest
        state = scores[n_waves - 1].argmax()
        for w in range(n_waves - 1, -1, -1):
            paths[row, w] = state
            state = came_from[w, state]
