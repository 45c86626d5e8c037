"""Passes along chains of latent states: smoothing forward and backward, expected counts, the most probable paths.

A row is a person, whose observed levels are grouped by wave. Levels of a wave are independent given the state in that
wave, and the states form a Markov chain. A wave in which nothing is observed has likelihood 1 in every state.
"""

import math

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.kernels.llvm.saved_code import compile_kernel

LEAST_SUM = 1e-200
"""Sums of scaled probabilities below which logarithms are summed: terms that `FLOOR` or rounding to 0 leave out of
larger ones are below 1e-100 of them."""


@compile_kernel()
def weigh_states(
    chances: FloatArray, scores: FloatArray, scaled: FloatArray, pmf: FloatArray
) -> float:
    """Fill in a PMF in proportion to ``chances * exp(scores)``, and return the logarithm of the sum, nats.

    Parameters
    ----------
    chances
        Shape (n_states,): probabilities, which count as at least `FLOOR`.
    scores, scaled
        Shape (n_states,): logarithms, the largest of which is 0, and their exponentials.
    pmf
        Shape (n_states,), overwritten.
    """
    total, top = 0.0, 0.0
    for s in range(pmf.size):
        pmf[s] = chances[s] * scaled[s]
        total += pmf[s]
    if total < LEAST_SUM:
        total, top = 0.0, -math.inf
        for s in range(pmf.size):
            pmf[s] = math.log(max(chances[s], FLOOR)) + scores[s]
            top = max(top, pmf[s])
        for s in range(pmf.size):
            pmf[s] = math.exp(pmf[s] - top)
            total += pmf[s]
    for s in range(pmf.size):
        pmf[s] /= total
    return top + math.log(total)


@compile_kernel()
def smooth_row(
    levels: IntArray,
    waves: IntArray,
    n_least: int,
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
) -> tuple[float, int]:
    """Compute the log-probability of a row and the posteriors of its states, up to the last wave with an answer.

    Backward first: ``scores[w, s]`` is the logarithm of the probability of the answers of wave w and later given state
    s in wave w, up to a constant; it gives the transitions given all answers, which run forward from the first wave.

    Parameters
    ----------
    levels
        Level indices that are observed, in any order.
    waves
        Shape (n_levels,): wave of each level.
    n_least
        Number of waves that are passed through at least, with or without answers.
    chain
        Initial shares, transitions and logarithms of emissions: shapes (n_states,), (n_waves - 1, n_states, n_states)
        and (n_levels, n_states). Zeros count as `FLOOR`, so that no row is impossible.
    work
        Scores, transitions given all answers, and posteriors, shapes (n_waves, n_states), (n_waves - 1, n_states,
        n_states) and (n_waves, n_states), and a row (n_states,); overwritten.

    Returns
    -------
    Log-probability, nats, and the last wave that was passed through: 0 and -1 if there is none.
    """
    initial, transitions, log_emissions = chain
    scores, moves, gammas, scaled = work
    last, log_prob = n_least - 1, 0.0
    for level in levels:
        last = max(last, waves[level])
    scores[: last + 1] = 0.0
    for level in levels:
        for s in range(initial.size):
            scores[waves[level], s] += log_emissions[level, s]
    for w in range(last, -1, -1):
        top = scores[w].max()
        log_prob += top
        for s in range(initial.size):
            scores[w, s] -= top
            scaled[s] = math.exp(scores[w, s])
        if w == 0:
            log_prob += weigh_states(initial, scores[0], scaled, gammas[0])
        else:
            for s in range(initial.size):
                own = weigh_states(transitions[w - 1, s], scores[w], scaled, moves[w - 1, s])
                scores[w - 1, s] += own
    for w in range(last):
        gammas[w + 1] = 0.0
        for s in range(initial.size):
            for t in range(initial.size):
                gammas[w + 1, t] += gammas[w, s] * moves[w, s, t]
    return log_prob, last


@compile_kernel()
def add_paths(
    rows: tuple[IntArray, IntArray, FloatArray],
    layout: tuple[IntArray, IntArray, IntArray],
    n_least: int,
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
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
    moves, gammas = work[1], work[2]
    rank, log_likelihood = chain[0].size, 0.0
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
                held = weight * gammas[w, s]
                for t in range(rank):
                    table_mass[out, steps[w] + t, s] += held * moves[w, s, t]
    return log_likelihood


@compile_kernel()
def score_paths(
    rows: tuple[IntArray, IntArray],
    waves: IntArray,
    chain: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
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
