import pytest

import pmflib as pmf
from pmflib.core.comparison import compare_candidates
from pmflib.fitting.ranks.choice import describe_decision


def make_choice(chosen, ranks):
    scores = [-1.0 - (rank != chosen) for rank in ranks]
    compared = compare_candidates("sample", [{"rank": rank} for rank in ranks], scores)
    return pmf.RankChoice(chosen, 1.0, compared)


@pytest.mark.parametrize(
    ("by_pairs", "by_samples", "start"),
    [
        (
            20,
            (160, [20, 40, 80, 160, 320, 640]),
            "rank 160 is fine: ranks up to 640 were no better",
        ),
        (4, (4, [4, 8]), "rank 4 is fine as far as was looked: one rank above it, 8,"),
        (4, (8, [4, 8]), "rank 8 is the largest that was tried"),
        (4, None, "rank 4 is what the pairs of variables show; no samples were held out"),
    ],
)
def test_describe_decision__one_sentence(by_pairs, by_samples, start):
    samples = None if by_samples is None else make_choice(*by_samples)
    decision = describe_decision(make_choice(by_pairs, [by_pairs]), samples)
    assert decision.startswith(start)
    assert "\n" not in decision
    assert ("pairs alone show" in decision) == (by_samples is not None and by_samples[0] == 160)
