import pytest

import pmflib as pmf
from pmflib.core.comparison import compare_candidates
from pmflib.fitting.ranks.choice import describe_decision


def make_choice(chosen, ranks):
    scores = [-1.0 - (rank != chosen) for rank in ranks]
    compared = compare_candidates("sample", [{"rank": rank} for rank in ranks], scores)
    return pmf.RankChoice(chosen, 1.0, compared)


@pytest.mark.parametrize(
    ("chosen", "ranks", "by_samples", "start"),
    [
        (160, [80, 160, 320, 640], True, "rank 160 is fine: ranks up to 640 were no better"),
        (4, [4, 8], True, "rank 4 is fine as far as was looked: one rank above it, 8,"),
        (8, [4, 8], True, "rank 8 is the largest that was tried"),
        (4, [4], False, "rank 4 is what the pairs of variables show; no samples were held out"),
    ],
)
def test_describe_decision__one_sentence(chosen, ranks, by_samples, start):
    decision = describe_decision(make_choice(chosen, ranks), by_samples=by_samples)
    assert decision.startswith(start)
    assert "\n" not in decision
