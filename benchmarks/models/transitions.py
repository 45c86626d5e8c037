"""Latent transition models: next to hmmlearn's, and in predicting the answers of a panel's last wave.

    python -m benchmarks.models.transitions peer [PEOPLE]
    python -m benchmarks.models.transitions next [SEEDS] [PEOPLE]

``peer`` draws one variable of five levels in eight waves, without gaps, which is all that `hmmlearn.CategoricalHMM`
takes: the likelihood of equal parameters, seconds per pass of EM, and the best of three starts of each (pseudo-count 0;
hmmlearn ends after 200 passes). ``next`` draws panels of six questions and five waves, with a tenth of answers and of
waves missing. Only the first design is a latent Markov chain: of "stayers", half of the people never move; "traits" has
answers by a continuous trait that drifts; in "copies", people repeat their own last answer with probability .6. Models
are fitted to four fifths of the people (``n_states="auto"``); the answers of the others in the last wave are predicted
given those before. A line has nats per answer (lower is better) and the share that is predicted right: of the
transition model, of counted tables of neighbouring waves (by question, one pseudo-count a level), of the last answer
carried forward (right only), and of `pmflib.fit_em` on the wide table; and the gain on the tables with its standard
error over people.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np

import pmflib as pmf
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.em.block_source import BlocksInMemory
from pmflib.families.panels.fit import Transitions
from pmflib.families.panels.model import TransitionModel
from pmflib.families.panels.waves import Waves

N_WAVES, N_QUESTIONS, N_LEVELS = 5, 6, 3


def compare_peer(n_people: int) -> None:
    """Print likelihoods, times and optima next to hmmlearn."""
    from hmmlearn.hmm import CategoricalHMM

    n_waves, n_levels, rank = 8, 5, 3
    model = draw_model(0, 1, n_levels, n_waves, rank)
    codes = model.sample(n_people, 0)
    lengths, flat = [n_waves] * n_people, codes.reshape(-1, 1).astype(int)
    layout, schema = model.layout, model.schema
    source = BlocksInMemory.cut(codes, schema.offsets, rank)
    singles = np.bincount(flat[:, 0], minlength=n_levels) / flat.size
    family = Transitions.make(layout, singles, rank)
    state = family.draw(singles, rank, np.random.default_rng(1))

    def open_peer(n_iter: int, seed: int, start: bool = False) -> CategoricalHMM:
        peer = CategoricalHMM(rank, n_iter=n_iter, tol=1e-9 * n_people, random_state=seed)
        if start:
            peer.init_params = ""
            peer.n_features = n_levels
            chain = layout.split(state.parameters)
            peer.startprob_, peer.transmat_ = chain.initial, chain.transitions[0]
            peer.emissionprob_ = chain.emissions[:n_levels].T
        return peer

    peer = open_peer(0, 0, start=True)
    found = family.start(source, state)().log_likelihood
    print(
        f"log-likelihood of equal parameters: {found:.6f}, hmmlearn {peer.score(flat, lengths):.6f}"
    )
    distinct = sum(block.n_rows for block in source.blocks)
    started = time.perf_counter()
    for _ in range(10):
        family.start(source, state)()
    seconds = (time.perf_counter() - started) / 10
    peer = open_peer(10, 0, start=True)
    peer.tol = -np.inf
    started = time.perf_counter()
    peer.fit(flat, lengths)
    of_peer = (time.perf_counter() - started) / 10
    print(
        f"seconds per pass: {seconds:.4f} ({distinct} distinct rows of {n_people}), hmmlearn {of_peer:.4f}"
    )
    started = time.perf_counter()
    options: dict[str, Any] = {
        "waves": n_waves,
        "schema": schema,
        "pseudo_count": 0.0,
        "n_starts": 3,
    }
    result = pmf.families.fit_transitions(codes, rank, tol=1e-9, **options)
    own = time.perf_counter() - started
    started = time.perf_counter()
    best = max(open_peer(200, seed).fit(flat, lengths).score(flat, lengths) for seed in range(3))
    print(
        f"best of three starts: {result.training.log_likelihood:.4f} in {own:.1f} s, hmmlearn {best:.4f} in "
        f"{time.perf_counter() - started:.1f} s"
    )


def draw_model(
    seed: int, n_questions: int, n_levels: int, n_waves: int, rank: int
) -> TransitionModel:
    """Draw a chain whose states differ and mostly stay."""
    rng = np.random.default_rng([seed, 7])
    schema = pmf.Schema.from_cardinalities([n_levels] * n_questions * n_waves)
    moves = 0.75 * np.eye(rank) + 0.25 * rng.dirichlet(np.ones(rank), rank)
    tables = [rng.dirichlet(np.full(n_levels, 0.5), rank).T for _ in range(n_questions)]
    emissions = np.concatenate(tables * n_waves)
    initial = rng.dirichlet(np.full(rank, 5.0))
    transitions = np.array([moves] * (n_waves - 1))
    return TransitionModel(initial, transitions, emissions, schema, Waves.find(schema, n_waves))


def draw_panel(design: str, n_people: int, seed: int) -> IntArray:
    """Draw codes of shape (n_people, n_waves * n_questions), -1 missing."""
    rng = np.random.default_rng([seed, 11])
    shape = n_people, N_WAVES, N_QUESTIONS
    if design == "traits":
        trait = rng.normal(size=(n_people, N_WAVES))
        for wave in range(1, N_WAVES):
            trait[:, wave] = 0.9 * trait[:, wave - 1] + np.sqrt(1 - 0.81) * trait[:, wave]
        slopes, cuts = rng.uniform(0.7, 2.0, N_QUESTIONS), rng.normal(0, 0.7, N_QUESTIONS)
        said = slopes * trait[:, :, None] + cuts + rng.logistic(size=shape)
        codes = np.digitize(said, [-1.0, 1.0])
    else:
        model = draw_model(seed, N_QUESTIONS, N_LEVELS, N_WAVES, 3)
        codes = model.sample(n_people, rng).reshape(shape).astype(np.int64)
        if design == "stayers":
            first = rng.choice(3, n_people, p=model.initial)
            still = rng.random(n_people) < 0.5
            for j in range(N_QUESTIONS):
                table = model.emissions[model.schema.rows_of(j)].T[first].cumsum(axis=1)
                drawn = (rng.random((n_people, N_WAVES, 1)) > table[:, None]).sum(axis=2)
                codes[still, :, j] = drawn[still]
        if design == "copies":
            for wave in range(1, N_WAVES):
                again = rng.random((n_people, N_QUESTIONS)) < 0.6
                codes[:, wave] = np.where(again, codes[:, wave - 1], codes[:, wave])
    codes = np.clip(codes, 0, N_LEVELS - 1)
    codes[rng.random(shape) < 0.1] = -1
    codes[rng.random(shape[:2]) < 0.1] = -1
    return codes.reshape(n_people, -1).astype(np.int8)


def predict_by_tables(training: IntArray, shown: IntArray) -> FloatArray:
    """Predict the last wave by counts of neighbouring waves: (n_people, n_questions, n_levels)."""
    waves = training.reshape(len(training), N_WAVES, N_QUESTIONS)
    last = shown.reshape(len(shown), N_WAVES, N_QUESTIONS)[:, -2]
    found = np.empty((len(shown), N_QUESTIONS, N_LEVELS))
    for j in range(N_QUESTIONS):
        counts = np.ones((N_LEVELS + 1, N_LEVELS))
        before, after = waves[:, :-1, j].ravel(), waves[:, 1:, j].ravel()
        # the row -1 is of those whose answer before is missing
        np.add.at(counts, (before[after >= 0], after[after >= 0]), 1.0)
        found[:, j] = (counts / counts.sum(axis=1, keepdims=True))[last[:, j]]
    return found


def predict_last(design: str, n_people: int, seed: int) -> dict[str, FloatArray]:
    """Log-probabilities and hits of the observed answers of held-out people: (2, n_people) sums, by method."""
    codes = draw_panel(design, n_people, seed)
    training, held_out = codes[: 4 * n_people // 5], codes[4 * n_people // 5 :]
    target = held_out.reshape(-1, N_WAVES, N_QUESTIONS)[:, -1].astype(np.int64)
    shown = held_out.copy()
    shown[:, -N_QUESTIONS:] = -1
    schema = pmf.Schema.from_cardinalities([N_LEVELS] * codes.shape[1])
    names = schema.names[-N_QUESTIONS:]
    fitted = pmf.families.fit_transitions(
        training, "auto", waves=N_WAVES, schema=schema, n_starts=4
    )
    ahead = fitted.model.forecast(shown, N_WAVES - 1)
    wide = pmf.fit_em(training, rank="auto", schema=schema).model
    past = shown.reshape(-1, N_WAVES, N_QUESTIONS)
    by_tables = predict_by_tables(training, shown)
    last = by_tables.argmax(axis=2)
    for wave in range(N_WAVES - 1):
        last = np.where(past[:, wave] >= 0, past[:, wave], last)
    carried = np.eye(N_LEVELS)[last]
    methods = {
        "transitions": np.stack([ahead[name] for name in names], axis=1),
        "tables": by_tables,
        "carried": carried,
        "fit_em": np.stack([wide.predict_proba(shown, name) for name in names], axis=1),
    }
    seen = target >= 0
    sums = {}
    for name, chances in methods.items():
        own = np.take_along_axis(chances, np.maximum(target, 0)[:, :, None], axis=2)[:, :, 0]
        logs = np.where(seen, -np.log(np.maximum(own, 1e-300)), 0.0).sum(axis=1)
        hits = (seen & (chances.argmax(axis=2) == target)).sum(axis=1)
        sums[name] = np.array([logs, hits, seen.sum(axis=1)])
    sums["n_states"] = np.array([[fitted.model.n_states], [wide.rank], [1]], float)
    return sums


def compare_next(n_seeds: int, n_people: int) -> None:
    """Print nats per answer and shares predicted right, by design."""
    print(
        "design     nats: transitions  tables  fit_em   right: transitions  tables  carried  fit_em   "
        "gain on tables   states"
    )
    for design in ("chain", "stayers", "traits", "copies"):
        runs = [predict_last(design, n_people, seed) for seed in range(n_seeds)]
        joined = {name: np.concatenate([run[name] for run in runs], axis=1) for name in runs[0]}
        nats, right = (
            {name: each[row].sum() / each[2].sum() for name, each in joined.items()}
            for row in (0, 1)
        )
        gains = joined["tables"][0] - joined["transitions"][0]
        n_answers = joined["tables"][2].sum()
        error = np.sqrt(gains.size) * gains.std() / n_answers
        states = joined["n_states"][0].astype(int).tolist()
        print(
            f"{design:9} {nats['transitions']:18.4f} {nats['tables']:7.4f} {nats['fit_em']:7.4f} "
            f"{right['transitions']:20.3f} {right['tables']:7.3f} {right['carried']:8.3f} {right['fit_em']:7.3f}   "
            f"{gains.sum() / n_answers:.4f} +- {error:.4f}   {states}"
        )


def main(words: list[str]) -> None:
    """Run the named comparison."""
    warnings.simplefilter("ignore")
    numbers = [int(word) for word in words[1:]]
    if words[:1] == ["peer"]:
        compare_peer(*(numbers or [500]))
    elif words[:1] == ["next"]:
        compare_next(*(numbers + [3, 1500][len(numbers) :]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
