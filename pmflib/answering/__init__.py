"""Questions to a model, as text or as function calls, with labels as input and output.

>>> import pmflib as pmf
>>> table = {"smokes": ["yes", "no", "no"] * 40, "coughs": ["yes", "no", "yes"] * 40}
>>> counts = pmf.count_pairs(table, pmf.Schema.infer(table))
>>> model = pmf.fit(counts, rank=2, method="opt", rng=0).model
>>> round(model.ask("P(coughs=yes | smokes=no)").value, 2)
0.5
"""

from pmflib.base.faces import make_face

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

__getattr__, __dir__ = make_face(__name__)
