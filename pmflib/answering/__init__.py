"""Questions to a model, as text or as function calls, with labels as input and output.

>>> import pmflib as pmf
>>> table = {"smokes": ["yes", "no", "no"] * 40, "coughs": ["yes", "no", "yes"] * 40}
>>> counts = pmf.count_pairs(table, pmf.Schema.infer(table))
>>> model = pmf.fit(counts, rank=2, method="opt", rng=0).model
>>> round(model.ask("P(coughs=yes | smokes=no)").value, 2)
0.5
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.answering.answering import ask
    from pmflib.answering.answers import Answer
    from pmflib.answering.comparison import AnswerComparison, compare_answers
    from pmflib.answering.completions import most_likely
    from pmflib.answering.information import (
        conditional_distance,
        entropy,
        expected,
        mutual_information,
        odds,
        odds_ratio,
        quantile,
        total_variation,
    )
    from pmflib.answering.weighing import weigh_model

_HOMES = {
    "Answer": "pmflib.answering.answers",
    "AnswerComparison": "pmflib.answering.comparison",
    "ask": "pmflib.answering.answering",
    "compare_answers": "pmflib.answering.comparison",
    "conditional_distance": "pmflib.answering.information",
    "entropy": "pmflib.answering.information",
    "expected": "pmflib.answering.information",
    "most_likely": "pmflib.answering.completions",
    "mutual_information": "pmflib.answering.information",
    "odds": "pmflib.answering.information",
    "odds_ratio": "pmflib.answering.information",
    "quantile": "pmflib.answering.information",
    "total_variation": "pmflib.answering.information",
    "weigh_model": "pmflib.answering.weighing",
}

__all__ = [
    "Answer",
    "AnswerComparison",
    "ask",
    "compare_answers",
    "conditional_distance",
    "entropy",
    "expected",
    "most_likely",
    "mutual_information",
    "odds",
    "odds_ratio",
    "quantile",
    "total_variation",
    "weigh_model",
]

__getattr__, __dir__ = make_face(__name__, _HOMES)
