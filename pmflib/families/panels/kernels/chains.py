"""Passes along chains of latent states: smoothing forward and backward, expected counts, the most probable paths.

A row is a person, whose observed levels are grouped by wave. Levels of a wave are independent given the state in that
wave, and the states form a Markov chain. A wave in which nothing is observed has likelihood 1 in every state.
"""

import math

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.compiled.saved_code import compile_kernel

LEAST_SUM = 1e-200
"""Sums of scaled probabilities below which logarithms are summed: terms that `FLOOR` or rounding to 0 leave out of
larger ones are below 1e-100 of them."""


@compile_kernel()
def score_answers(
    levels: IntArray, waves: IntArray, log_emissions: FloatArray, scores: FloatArray
) -> int:
    """Sum the logarithms of a row's answers by wave and state, and return the last wave with an answer, -1 if none.

    Parameters
    ----------
    levels
        Level indices that are observed, in any order.
    waves
        Shape (n_levels,): wave of each level.
    log_emissions
        Shape (n_levels, n_states).
    scores
        Shape (n_waves or more, n_states), overwritten.
    """
    last = -1
    scores[:] = 0.0
    for level in levels:
        last = max(last, waves[level])
        for s in range(scores.shape[1]):
            scores[waves[level], s] += log_emissions[level, s]
    return last


@compile_kernel()
def smooth_row(
    levels: IntArray,
    waves: IntArray,
    n_least: int,
    chain: tuple[FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[float, int]:
    """Compute the log-probability of a row and the posteriors of its states, up to the last wave with an answer.

    Backward first: ``scores[w, s]`` is the logarithm of the probability of the answers of wave w and later given state
    s in wave w, up to a constant; it gives the transitions given all answers, which run forward from the first wave.

    Parameters
    ----------
    levels, waves
        As for `score_answers`.
    n_least
        Number of waves that are passed through at least, with or without answers.
    chain
        Moves into each wave, shape (n_waves, n_states, n_states): initial shares in the first row of the first matrix,
        and transitions; and logarithms of emissions, shape (n_levels, n_states). Zeros count as `FLOOR`, so that no row
        is impossible.
    work
        Scores, (n_waves + 1, n_states), whose last row has the exponentials of a wave; moves given all answers, of the
        shape of the moves; and posteriors, (n_waves, n_states); overwritten.

    Returns
    -------
    Log-probability, nats, and the last wave that was passed through: 0 and -1 if there is none.
    """
    moves, log_emissions = chain
    scores, held, gammas = work
    rank, scaled = gammas.shape[1], len(gammas)
    log_prob = 0.0
    last = max(score_answers(levels, waves, log_emissions, scores), n_least - 1)
    for w in range(last, -1, -1):
        top = -math.inf
        for s in range(rank):
            top = max(top, scores[w, s])
        log_prob += top
        for s in range(rank):
            scores[w, s] -= top
            scores[scaled, s] = math.exp(scores[w, s])
        for s in range(rank if w else 1):
            total, top = 0.0, 0.0
            for t in range(rank):
                held[w, s, t] = moves[w, s, t] * scores[scaled, t]
                total += held[w, s, t]
            if total < LEAST_SUM:
                total, top = 0.0, -math.inf
                for t in range(rank):
                    held[w, s, t] = math.log(max(moves[w, s, t], FLOOR)) + scores[w, t]
                    top = max(top, held[w, s, t])
                for t in range(rank):
                    held[w, s, t] = math.exp(held[w, s, t] - top)
                    total += held[w, s, t]
            for t in range(rank):
                held[w, s, t] /= total
            if w:
                scores[w - 1, s] += top + math.log(total)
            else:
                log_prob += top + math.log(total)
    gammas[: last + 1] = 0.0
    gammas[0] = held[0, 0]
    for w in range(1, last + 1):
        for s in range(rank):
            for t in range(rank):
                gammas[w, t] += gammas[w - 1, s] * held[w, s, t]
    return log_prob, last


@compile_kernel()
def add_paths(
    rows: tuple[IntArray, IntArray, FloatArray],
    layout: tuple[IntArray, IntArray, IntArray],
    n_least: int,
    chain: tuple[FloatArray, FloatArray],
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
    n_least, chain, work
        As for `smooth_row`; transitions up to wave ``n_least - 1``, or the last answer if it is later, are counted.
    state_mass, table_mass
        Shapes (n_sums, n_states) and (n_sums, n_table_rows, n_states), grow: of all rows with ``n_sums`` of 1, and of
        each row with n_rows. Rows with nothing observed add nothing.

    Returns
    -------
    Log-likelihood, nats.
    """
    indptr, indices, weights = rows
    waves, ties, steps = layout
    held, gammas = work[1], work[2]
    rank, log_likelihood = gammas.shape[1], 0.0
    for row in range(weights.size):
        levels, weight = indices[indptr[row] : indptr[row + 1]], weights[row]
        if not levels.size:
            continue
        out = min(row, len(state_mass) - 1)
        log_prob, last = smooth_row(levels, waves, n_least, chain, work)
        log_likelihood += weight * log_prob
        for s in range(rank):
            state_mass[out, s] += weight * gammas[0, s]
        for level in levels:
            for s in range(rank):
                table_mass[out, ties[level], s] += weight * gammas[waves[level], s]
        for w in range(last):
            for s in range(rank):
                mass = weight * gammas[w, s]
                for t in range(rank):
                    table_mass[out, steps[w] + t, s] += mass * held[w + 1, s, t]
    return log_likelihood


@compile_kernel()
def score_paths(
    rows: tuple[IntArray, IntArray],
    waves: IntArray,
    chain: tuple[FloatArray, FloatArray],
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
        As for `smooth_row`.
    log_probs
        Shape (n_rows,), overwritten.
    posteriors
        Shape (n_rows, n_waves, n_states), overwritten, or (0, n_waves, n_states) to skip them.
    """
    indptr, indices = rows
    n_least = posteriors.shape[1] if len(posteriors) else 0
    for row in range(log_probs.size):
        levels = indices[indptr[row] : indptr[row + 1]]
        log_prob, _ = smooth_row(levels, waves, n_least, chain, work)
        log_probs[row] = log_prob if levels.size else 0.0
        if len(posteriors):
            posteriors[row] = work[2]


@compile_kernel()
def find_paths(
    rows: tuple[IntArray, IntArray],
    waves: IntArray,
    logs: tuple[FloatArray, FloatArray],
    work: tuple[FloatArray, IntArray],
    paths: IntArray,
) -> None:
    """Find the most probable path of states of every row, by Viterbi's algorithm; the lowest states if tied.

    Parameters
    ----------
    rows, waves
        As for `score_paths`.
    logs
        Logarithms of moves and emissions, both as for `smooth_row`.
    work
        float64 and int64 of shape (n_waves + 1, n_states), overwritten.
    paths
        Shape (n_rows, n_waves), overwritten.
    """
    indptr, indices = rows
    log_moves, log_emissions = logs
    scores, came_from = work
    n_waves, rank, _ = log_moves.shape
    for row in range(len(paths)):
        score_answers(indices[indptr[row] : indptr[row + 1]], waves, log_emissions, scores)
        scores[0] += log_moves[0, 0]
        for w in range(1, n_waves):
            for t in range(rank):
                best = 0
                highest = scores[w - 1, 0] + log_moves[w, 0, t]
                for s in range(1, rank):
                    score = scores[w - 1, s] + log_moves[w, s, t]
                    if score > highest:
                        best, highest = s, score
                came_from[w, t] = best
                scores[w, t] += highest
        state = scores[n_waves - 1].argmax()
        for w in range(n_waves - 1, -1, -1):
            paths[row, w] = state
            state = came_from[w, state]
