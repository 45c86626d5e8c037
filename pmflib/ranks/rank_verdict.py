"""A choice of the rank in one sentence: whether the model is fine, and what to do if it may not be."""

from __future__ import annotations

from pmflib.ranks.choice import RankChoice


def give_verdict(by_pairs: RankChoice, by_samples: RankChoice | None) -> str:
    """Say whether the rank that was chosen is fine.

    Parameters
    ----------
    by_pairs
        What pairs chose.
    by_samples
        What held-out samples chose, beginning there; None where there were none.
    """
    if by_samples is None:
        return (
            f"rank {by_pairs.rank} is what the pairs of variables show; no samples were held out, and these might want "
            "more: set evaluate.validation_folds to at least 1"
        )
    rank, ranks = by_samples.rank, sorted({int(p.settings["rank"]) for p in by_samples.curve})
    above = [each for each in ranks if each > rank]
    if not above:
        return (
            f"rank {rank} is the largest that was tried, and larger ones may be better: the reason below says what "
            "stopped at it"
        )
    if len(above) == 1:
        tried = f"one rank above it, {above[0]}, was no better on held-out samples, and no other was tried"
        return f"rank {rank} is fine as far as was looked: {tried}"
    verdict = f"rank {rank} is fine: ranks up to {above[-1]} were no better on held-out samples"
    if rank > by_pairs.rank:
        verdict += f"; pairs alone show {by_pairs.rank}, and the rest is in more variables at once"
    return verdict
