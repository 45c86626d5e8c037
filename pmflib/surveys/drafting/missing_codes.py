"""Detect missing codes, texts or numbers that mean "not given", in the columns of a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.schema.intervals import read_interval
from pmflib.schema.value_counts import ValueCounts, find_strays
from pmflib.schema.variable import as_text, read_number
from pmflib.surveys.drafting.level_order import (
    ABSENT,
    find_level_order,
    is_no_answer,
    normalise_word,
)

HIGH_CODES = (
    *(7.0, 8.0, 9.0, 66.0, 77.0, 88.0, 95.0, 96.0, 97.0, 98.0, 99.0),
    *(
        float(code)
        for base in (1_000, 10_000, 100_000, 1_000_000)
        for code in (*range(base - 10, base), (base - 1) // 9 * 8, (base - 1) // 9 * 7)
    ),
)
"""Missing codes above the scale in surveys and registers."""
LOW_CODES = (
    *(-float(code) for code in range(1, 10)),
    *(-float(code) for code in (66, 77, 88, 97, 98, 99, 666, 777, 888, 997, 998, 999, 9997, 9998)),
    *(-9999.0, -99999.0, -999999.0),
)
"""Missing codes below the scale."""
SHARED = 3
"""Least number of columns with an outlying number for it to be a shared code."""
FEW_DISTINCT = 4
"""Least number of other distinct values for a single column to be evidence of an outlying code."""
SHORT_SCALE = 12
"""Largest number of other distinct values of a scale, on which codes may be rare."""
LEAST_SUPPORT = 50
"""Least number of other values for a number to be called outlying."""
HEAPED = 20.0
"""Least ratio of a code's count to those near the end of the scale if only one number separates them."""
LARGEST_SCALE = 100
"""Largest number of levels among which an order is looked for."""
LEAST_NUMBERS = 10
"""Least number of distinct numbers for a single word among them to be a missing code."""


@dataclass(frozen=True)
class CodeProposal:
    """Proposed missing code of a column.

    Parameters
    ----------
    text
        The code; numbers in their shortest form.
    count
        Number of values.
    evidence
        Reason for the proposal.
    """

    text: str
    count: int
    evidence: str


@dataclass(frozen=True)
class _Outlier:
    """A candidate code outside the other numbers, with distances and frequencies."""

    text: str
    number: float
    count: int
    gap: float
    span: float
    step: float
    heap: float
    share: float
    support: int
    n_others: int
    nearest: float


def propose_codes(
    column_counts: Mapping[str, ValueCounts], known: Sequence[str]
) -> dict[str, list[CodeProposal]]:
    """Propose the missing codes of every column with their evidence.

    Words such as "unknown" are codes if at least two other levels remain, and signs such as "?" if one remains.
    Refusals such as "don't know" are codes if two columns with different levels share them, or beside numbers,
    intervals or a known scale; beside other names in a single column, they may be answers. A single word among numbers
    is a code. Numbers such as 999 are codes if they lie outside the other values by more than the range of these and
    are more frequent than values near the end, or if they are outside in `SHARED` columns. Numbers adjacent to the
    others, such as 99 in ages up to 98, are data.

    Parameters
    ----------
    column_counts
        Values of every column.
    known
        Common missing codes.

    Returns
    -------
    Proposals by column, in the order of the columns, without empty ones.
    """
    absent = {text.strip() for text in known}
    columns = {
        name: {text: n for text, n in value_counts.counts.items() if text not in absent and n}
        for name, value_counts in column_counts.items()
    }
    proposals: dict[str, list[CodeProposal]] = {name: [] for name in columns}
    refusals = _count_refusals(columns)
    outliers: dict[str, list[_Outlier]] = {}
    for name, seen in columns.items():
        proposals[name] = _propose_words(seen, refusals)
        words = {proposal.text for proposal in proposals[name]}
        numbers = {
            text: number
            for text, n in seen.items()
            if text not in words and (number := read_number(text)) is not None
        }
        astray = find_strays({text: n for text, n in seen.items() if text not in words})
        if len(numbers) == len(seen) - len(words) - len(astray) and len(numbers) > 1:
            outliers[name] = _find_outliers(numbers, seen)
    shared = Counter(
        found.number for each in outliers.values() for found in each if _is_apart(found)
    )
    # a number is data if it lies within the values of more columns
    for number, n_columns in _count_holders(columns, set(shared)).items():
        if n_columns - shared[number] > shared[number]:
            shared[number] = 0
    accepted_codes = {
        name: {
            found.text: CodeProposal(found.text, found.count, evidence)
            for found in each
            if (evidence := _assess(found, shared[found.number]))
        }
        for name, each in outliers.items()
    }
    _accept_low_codes(outliers, accepted_codes)
    for name, each in outliers.items():
        accepted = accepted_codes[name]
        _accept_between(each, accepted)
        left = len(columns[name]) - len(proposals[name]) - len(accepted)
        if left >= 2:
            proposals[name] += accepted.values()
    return {name: found for name, found in proposals.items() if found}


def _accept_low_codes(
    outliers: Mapping[str, Sequence[_Outlier]], accepted: Mapping[str, dict[str, CodeProposal]]
) -> None:
    """Accept codes such as -1 below only a few levels if they are codes of other columns."""
    low = {
        name: [found for found in each if found.number < 0 <= found.nearest and found.count > 1]
        for name, each in outliers.items()
    }
    holders = Counter(found.text for each in low.values() for found in each)
    known = Counter(text for each in accepted.values() for text in each if text.startswith("-"))
    for name, each in low.items():
        for found in each:
            # -1 with only 0 and 1 may be one of three answers
            is_enough = found.n_others >= FEW_DISTINCT - 1 or holders[found.text] >= SHARED
            if known[found.text] and found.text not in accepted[name] and is_enough:
                evidence = f"the only value below {found.nearest:g}, and a code in other columns"
                accepted[name][found.text] = CodeProposal(found.text, found.count, evidence)


def _accept_between(outliers: Sequence[_Outlier], accepted: dict[str, CodeProposal]) -> None:
    """Accept numbers between two codes, such as 998."""
    numbers = {found.number for found in outliers if found.text in accepted}
    for found in outliers:
        if found.text not in accepted and numbers >= {found.number - 1, found.number + 1}:
            accepted[found.text] = CodeProposal(
                found.text, found.count, f"{found.text} stands between two codes"
            )


def _count_refusals(columns: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Number of different sets of other levels with which each refusal occurs."""
    company: dict[str, set[frozenset[str]]] = {}
    for seen in columns.values():
        if len(seen) > 1000:
            continue
        words = {normalise_word(text) for text in seen}
        refusals = {word for word in words if is_no_answer(word)}
        for word in refusals:
            company.setdefault(word, set()).add(frozenset(words - refusals))
    return Counter({word: len(others) for word, others in company.items()})


def _propose_words(seen: Mapping[str, int], refusals: Counter[str]) -> list[CodeProposal]:
    found = []
    texts = seen if len(seen) <= 2000 else [t for t, _ in Counter(seen).most_common(2000)]
    lone = [text for text in texts if read_number(text) is None]
    order = _describe_scale(texts)
    for text in lone:
        if len(text) > 40:
            continue
        word = normalise_word(text) or text.casefold()
        if word in ABSENT or text.casefold() in ABSENT:
            if text in ("-", "--") and seen.keys() & {"+", "++", "+-", "+/-"}:
                continue
            found.append(CodeProposal(text, seen[text], "says that nothing is known"))
        elif refusals[word] > 1:
            evidence = f"a refusal that columns with {refusals[word]} sets of levels share"
            found.append(CodeProposal(text, seen[text], evidence))
        elif order and is_no_answer(word):
            found.append(CodeProposal(text, seen[text], f"a refusal beside {order}"))
    named = {proposal.text for proposal in found}
    odd = [text for text in lone if text not in named]
    n_numbers = len(seen) - len(lone)
    if 0 < len(odd) <= 2 and n_numbers >= LEAST_NUMBERS:
        total = sum(seen.values())
        for text in odd:
            # ">100" and "10+" are censored numbers
            if (
                not re.search(r"\d", text)
                and read_interval(text) is None
                and seen[text] < total / 2
            ):
                evidence = f"the only word among {n_numbers} numbers"
                found.append(CodeProposal(text, seen[text], evidence))
    if len(seen) - len(found) == 1:
        # with one other level, a word may be an answer ("yes" or "unknown"), but a sign cannot
        found = [each for each in found if not any(map(str.isalpha, each.text))]
    return found if len(found) < len(seen) else []


def _describe_scale(texts: Collection[str]) -> str:
    """Describe the numbers or the order of all levels but refusals and words for missing; "" if there is none."""
    words = {text: normalise_word(text) for text in texts} if len(texts) <= LARGEST_SCALE else {}
    rest = [text for text, word in words.items() if word not in ABSENT and not is_no_answer(word)]
    if len(rest) < FEW_DISTINCT - 1 or len(rest) == len(words):
        return ""
    if all(read_number(text) is not None for text in rest):
        return f"{len(rest)} numbers"
    found = find_level_order(rest)
    return "" if found.values is None else f"an order, {found.levels[0]!r} to {found.levels[-1]!r}"


def _find_outliers(numbers: Mapping[str, float], seen: Mapping[str, int]) -> list[_Outlier]:
    """Candidate codes outside all other values, on either side."""
    by_number: Counter[float] = Counter()
    for text, number in numbers.items():
        by_number[number] += seen[text]
    points = np.array(sorted(by_number))
    high = _outside(points, by_number, HIGH_CODES, 1)
    return high + _outside(points, by_number, LOW_CODES, -1)


def _outside(
    points: FloatArray,
    by_number: Mapping[float, int],
    codes: Sequence[float],
    side: int,
) -> list[_Outlier]:
    """Candidate codes beyond the last other value on one side."""
    known = set(codes)
    ordered = points[::side]
    last = len(ordered)
    while last > 0 and float(ordered[last - 1]) in known:
        last -= 1
    candidates, others = ordered[last:], ordered[:last]
    if side < 0:
        # codes on the other side must not widen the range of the others
        others = np.array([x for x in others if float(x) not in HIGH_CODES]) if last else others
    elif last:
        others = np.array([x for x in others if float(x) not in LOW_CODES])
    if not candidates.size or others.size < 2:
        return []
    # codes adjacent to the others belong to them: a count up to 98 may reach 99
    steps = np.abs(np.diff(others))
    step = float(np.median(steps))
    span = float(others.max() - others.min())
    total = sum(by_number.values())
    support = sum(by_number[float(x)] for x in others)
    tail = [by_number[float(x)] for x in others[-5:]]
    out = []
    end = float(others[-1])
    for number in map(float, candidates):
        count = by_number[number]
        gap = side * (number - end)
        heap = count / (sum(tail) / len(tail))
        # if a scale is censored at a value, the value before it occurs as well
        is_heaped = gap >= 2 * step > 0 and heap >= HEAPED and count >= 0.01 * total
        if gap <= max(2 * step, 1e-12) and side > 0 and not is_heaped:
            end = number
            continue
        out.append(
            _Outlier(
                as_text(number),
                number,
                count,
                gap,
                span,
                step,
                heap,
                count / total,
                support,
                others.size,
                end,
            )
        )
    return out


def _is_apart(found: _Outlier) -> bool:
    """Whether a number is far enough above enough others to be a shared code."""
    return found.support >= LEAST_SUPPORT and found.gap >= max(2 * found.step, 0.1 * found.span)


def _count_holders(columns: Mapping[str, Mapping[str, int]], numbers: set[float]) -> Counter[float]:
    """Number of columns with each number."""
    texts = {as_text(number): number for number in numbers}
    return Counter(
        number
        for seen in columns.values()
        for text, number in texts.items()
        if text in seen or f"{text}.0" in seen
    )


def _assess(found: _Outlier, n_columns: int) -> str:
    """Evidence for a code; "" if there is too little."""
    text, count = found.text, found.count
    if found.support < LEAST_SUPPORT:
        # one of few values may be outlying by chance
        return ""
    if found.number < 0:
        if found.nearest < 0 or (found.n_others < FEW_DISTINCT and n_columns < SHARED):
            return ""
        if count < 2 and n_columns < SHARED:
            return ""
        return f"the only value below {found.nearest:g}, {count} times"
    is_far = found.gap > found.span and found.n_others >= FEW_DISTINCT
    is_digit = found.number < 10
    is_often = found.heap >= 1 and count >= 3
    if is_far and not is_digit and (is_often or found.gap > 4 * found.span):
        return f"{text} is far above the others, which end at {found.nearest:g}, {count} times"
    if not is_digit and found.n_others > SHORT_SCALE and found.share >= 0.01 and found.heap >= 3:
        if found.gap >= max(10 * found.step, 0.1 * found.span):
            return (
                f"{text} stands apart: {count} times, and no value between {found.nearest:g} and it"
            )
    if (
        not is_digit
        and found.n_others > SHORT_SCALE
        and found.share >= 0.01
        and found.heap >= HEAPED
    ):
        return f"{text} is {found.heap:.0f} times as frequent as the values up to {found.nearest:g}, and a gap below it"
    frequent = found.heap >= 0.5 or found.gap > found.span or found.n_others <= SHORT_SCALE
    if n_columns >= SHARED and _is_apart(found) and frequent:
        return f"{text} is above the others, which end at {found.nearest:g}, in {n_columns} columns"
    return ""
