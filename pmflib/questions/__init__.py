"""Questions to a model, labels in and labels out: in words, and as functions.

>>> import pmflib as pmf
>>> table = {"smokes": ["yes", "no", "no"] * 40, "coughs": ["yes", "no", "yes"] * 40}
>>> counts = pmf.count_pairs(table, pmf.Schema.infer(table))
>>> model = pmf.fit(counts, rank=2, method="opt", rng=0).model
>>> round(model.ask("P(coughs=yes | smokes=no)").value, 2)
0.5
"""

from pmflib.questions.answer_comparison import AnswerComparison, compare_answers
from pmflib.questions.answering import ask
from pmflib.questions.answers import Answer
from pmflib.questions.completions import most_likely
from pmflib.questions.information import (
    conditional_distance,
    entropy,
    mutual_information,
    total_variation,
)
from pmflib.questions.levels_in_order import expected, odds, odds_ratio, quantile

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
]
