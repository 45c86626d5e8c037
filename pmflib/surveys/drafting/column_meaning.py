"""Detect identifiers, weights, nominal codes and times among the columns of a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.texts import list_some
from pmflib.schema.value_counts import ValueCounts

Numbers = Mapping[str, float]
"""Numeric value of each text of a column."""

LEAST_DISTINCT = 13
"""Least number of distinct values of an identifier."""
NEARLY_ALL = 0.95
"""Share of distinct values from which nearly all values differ."""
MANY = 0.3
"""Least share of distinct values of a column that is named like an identifier."""
MANY_NAMED = 300
"""Least number of distinct values of a column that is named like an identifier, whatever their share."""
LEAST_PEAKS = 3.0
"""Least total variation of the counts, in units of twice the largest, for numbers to be unordered codes."""
LEAST_LEVELS = 8
"""Least number of distinct numbers for the counts of neighbours to be evidence."""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER_WORDS = frozenset(
    "id ids nbr nr no num number uuid guid key rowid idx index serial row rownum recordid record caseid case seq "
    "sequence ssn phone barcode token hash userid account".split()
)
"""Last words of the names of identifiers."""
_STRONG_WORDS = frozenset(
    "id ids nbr uuid guid rowid recordid caseid userid serial ssn hash token".split()
)
_CODE_WORDS = frozenset(
    "id code codes state states zip zipcode postcode postal plz county country nation region district department "
    "dept province city municipality fips icd diag diagnosis category cat type kind class cluster sector industry "
    "occupation nace isco isced branch store shop product sku model brand species land bundesland provincia pais "
    "stadt ort gemeinde branche beruf".split()
)
_PERSON_WORDS = frozenset(
    "sex gender geschlecht sexe sexo sesso geslacht race races ethnicity ethnic hispanic religion denomination "
    "nationality citizenship birthplace origin marital maritalstatus colour color".split()
)
"""Words in names of columns whose numbers are nominal codes, however few."""
_WEIGHT_NAMES = re.compile(
    r"wgt|wght|^w_?fst|^wt_?(mec|int|saf|ss|fin|per|supp|samp|adj|all)|^(an|d|p|ps|psp)_?weight|"
    r"^(asec|earn|per|hh|fin|nat|rake|post)_?wt|"
    r"(samp|survey|design|final|popul|person|household|replicate|probability|analysis|poststrat|rak)[a-z]*_?(weight|wt)"
)
"""Names of sample weights."""
_REPLICATE_NAMES = re.compile(
    r"^(w_?fstu?r(wt)?|brr(wt|_?w)?|jk_?(w|rep)|rep_?(wt|wgt|w|weight)|srwt|wt_?rep|bs_?w|boot(wt|_?w)?|[ph]?wgtp)_?\d+$"
)
"""Numbered names of replicate weights in PISA, NAEP, TIMSS, MEPS, censuses and others."""
_DESIGN_NAMES = {
    "stratum": re.compile(r"(^|_)[vp]?strat(um|a|id)?(_p)?\d*$|^(sdmvstra|varstr|_ststr|sest)$"),
    "psu": re.compile(r"(^|_)(v|p|mv|sdmv|var)?psu(_?id|_p)?\d*$|^secu$"),
}
"""Names of strata and sampling units in NHANES, GSS, ESS, MEPS, BRFSS, NSFG and others, by the option of each."""
_DIAGNOSES = frozenset("icd diag diagnosis diagnoses".split())


def split_name(name: str) -> tuple[str, ...]:
    """Words of a column's name in lower case, two for ``patientNbr`` or ``patient_nbr``."""
    return tuple(word.lower() for word in _WORDS.findall(name))


def find_identifier(name: str, value_counts: ValueCounts, numbers: Numbers, n_distinct: int) -> str:
    """Reason why a column identifies rows or persons; "" if it does not.

    Parameters
    ----------
    name
        Name of the column.
    value_counts
        Its values.
    numbers
        Its values as numbers; empty unless all are numbers.
    n_distinct
        Number of distinct nonmissing values that were counted.

    Notes
    -----
    A column is an identifier if it has at least `LEAST_DISTINCT` distinct values and either

    * nearly all values differ (`NEARLY_ALL`), and they are texts, few of several words, or integers that are
      consecutive up to small gaps, have the same number of digits (at least six), or are named like an identifier
      (``id``, ``nbr``, ``key``); or
    * the name contains ``id``, ``nbr``, ``uuid`` or the like, and the number of distinct integers or texts is at least
      `MANY_NAMED` or a share `MANY` of the rows.
    """
    share = value_counts.share_distinct
    if n_distinct < LEAST_DISTINCT:
        return ""
    if numbers and not all(map(float.is_integer, numbers.values())):
        return ""
    words = set(split_name(name))
    at_least = "at least " if value_counts.overflowed else ""
    shown = f"{at_least}{n_distinct} distinct values in {value_counts.n_rows} rows"
    if words & _STRONG_WORDS and (share >= MANY or n_distinct >= MANY_NAMED):
        return f"{shown}, and a name like an identifier's"
    if share < NEARLY_ALL:
        return ""
    if not numbers:
        return "" if _are_sentences(value_counts.counts) else shown
    if words and split_name(name)[-1] in _IDENTIFIER_WORDS:
        return f"{shown}, and a name like an identifier's"
    values = np.array(sorted(numbers.values()))
    if len(values) >= 0.9 * (values[-1] - values[0] + 1) and share >= 0.99:
        return f"{shown}, which run on from {values[0]:.0f} to {values[-1]:.0f}"
    widths = {len(text.strip("+-")) for text in numbers}
    if len(widths) == 1 and min(widths) >= 6 and share >= 0.99:
        return f"{shown}, all of {min(widths)} digits"
    return ""


def _are_sentences(texts: Collection[str]) -> bool:
    """Whether many texts have several words: free text."""
    several = sum(len(_LETTERS.findall(text)) > 1 for text in texts)
    return several >= MANY * len(texts)


def find_free_text(name: str, value_counts: ValueCounts, seen: Mapping[str, int]) -> str:
    """Reason why the texts of a column are what people wrote themselves; "" if they are not.

    They are if most differ, and the name says so, or if nearly all differ and many have several words.
    """
    n_values, distinct = sum(seen.values()) + value_counts.uncounted, len(seen)
    is_named = not _TEXT_WORDS.isdisjoint(split_name(name))
    least, share = (LEAST_WRITTEN, MOST_WRITTEN) if is_named else (LEAST_DISTINCT, NEARLY_ALL)
    if value_counts.categories or value_counts.overflowed or distinct < least:
        return ""
    if distinct < share * n_values or not (is_named or _are_sentences(seen)):
        return ""
    return f"free text, {distinct} distinct ones in {n_values} answers"


_LETTERS = re.compile(r"[^\W\d_]{2,}")
_TEXT_WORDS = frozenset(
    "specify comment comments remark remarks verbatim feedback explain describe suggestion suggestions kommentar "
    "bemerkung bemerkungen commentaire precisez".split()
)
LEAST_WRITTEN, MOST_WRITTEN = 5, 0.5
"""Least number of distinct texts, and least share of these, under a name such as "Other (please specify)"."""
_WEIGHT_WORDS = frozenset(
    "weight weights wt wts wgt weighting poids gewicht gewichtung peso pesos".split()
)

LEAST_POSITIVE = 0.9
"""Least share of positive numbers in a column of weights."""


def find_weight(name: str, value_counts: ValueCounts, numbers: Numbers) -> str:
    """Reason why a column contains sample weights; "" if it does not.

    Notes
    -----
    It does if it has at least `LEAST_DISTINCT` distinct positive numbers and either a name that surveys use for weights
    (``wgt``, ``W_FSTUWT``, ``sample_weight``), or the name ``weight`` and nonintegers with a mean of about 1, which
    cannot be body weights.
    """
    if len(numbers) < LEAST_DISTINCT:
        return ""
    counts = np.array([value_counts.counts[text] for text in numbers], np.float64)
    values = np.array(list(numbers.values()))
    at_least = "at least " if value_counts.overflowed else ""
    shown = f"{at_least}{np.count_nonzero(values > 0)} distinct positive numbers"
    # a few nonpositive ones are errors, which go to quarantine
    is_positive = counts[values > 0].sum() >= LEAST_POSITIVE * counts.sum()
    if is_positive and _WEIGHT_NAMES.search(name.lower()):
        return f"{shown}, and a name like a weight's"
    if name.lower() not in ("weight", "weights", "wt") or min(values) <= 0:
        return ""
    is_one = 0.9 <= np.average(values, weights=counts) <= 1.1
    return f"{shown} of mean 1" if is_one and (values != np.round(values)).any() else ""


def may_be_weight(name: str, numbers: Numbers) -> bool:
    """Whether positive numbers, not all of them integers, have a word for weights in their name."""
    values = np.array(list(numbers.values()))
    is_real = values.size >= LEAST_DISTINCT and values.min() > 0 and (values % 1 != 0).any()
    return bool(is_real) and not _WEIGHT_WORDS.isdisjoint(split_name(name))


def is_replicate(name: str, value_counts: ValueCounts, numbers: Numbers) -> bool:
    """Whether a column contains replicate weights: mostly nonnegative numbers, and a numbered name of these."""
    if not numbers or not _REPLICATE_NAMES.search(name.lower()):
        return False
    counts = np.array([value_counts.counts[text] for text in numbers], np.float64)
    values = np.array(list(numbers.values()))
    return bool(counts[values >= 0].sum() >= LEAST_POSITIVE * counts.sum())


def note_design(names: Iterable[str]) -> list[str]:
    """Note the columns that are named like the strata or the sampling units of a survey."""
    notes = []
    for option, pattern in _DESIGN_NAMES.items():
        if found := [name for name in names if pattern.search(name.lower())]:
            about = f"named like the {option} of a survey, which standard errors need"
            notes.append(f"{list_some(found)}: {about}; name it by --{option} (source.{option})")
    return notes


def find_nominal_numbers(name: str, numbers: Numbers, counts: Mapping[str, int]) -> str:
    """Reason why integers are nominal codes; "" if they are quantities.

    Notes
    -----
    They are codes if some have leading zeros ("01"); if the name is that of an attribute of persons (``sex``, ``race``,
    ``religion``); if the name suggests codes (``state``, ``code``, ``type``, ``diagnosis``, ``id``) and there are more
    than two; or if, among at least `LEAST_LEVELS` numbers, the counts of neighbours vary more than those of a quantity
    would by chance. Peaks at multiples of five or ten are rounded quantities, not codes.
    """
    values = np.array(list(numbers.values()))
    words = split_name(name)
    is_whole = bool(np.all(values == np.round(values)))
    if is_whole and values.size > 1 and (found := [w for w in words if w in _PERSON_WORDS]):
        return f"codes of names, as {found[-1]!r} in the name says"
    if values.min() < 0 or values.size <= 2:
        return ""
    if _DIAGNOSES.intersection(words):
        return "codes of diagnoses, as the name says"
    if not is_whole:
        return ""
    zeros = [text for text in numbers if re.fullmatch(r"0\d+", text)]
    if zeros:
        return f"codes with leading zeros, such as {min(zeros)!r}"
    if found := [word for word in words if word in _CODE_WORDS]:
        return f"codes, as {found[-1]!r} in the name says"
    if values.size >= LEAST_LEVELS and values.max() - values.min() <= 20 * values.size:
        weights = np.array([counts[text] for text in numbers], np.float64)
        if _count_peaks(values.astype(np.int64), weights) >= LEAST_PEAKS:
            return "codes: the counts of neighbouring numbers have nothing in common"
    return ""


def _count_peaks(values: IntArray, weights: FloatArray) -> float:
    """Total variation of counts beyond chance, in units of twice the largest count: 1 for a single peak."""
    first = int(values.min())
    counts = np.bincount(values - first, weights)
    if np.gcd.reduce(np.unique(values - first)) > 1:
        # numbers on a coarser grid, such as 0, 5, 10
        counts = counts[:: int(np.gcd.reduce(np.unique(values - first)))]
    else:
        grid = np.arange(first, first + counts.size)
        rounded = counts[grid % 5 == 0].sum()
        if rounded > 0.35 * counts.sum() and counts.size > 20:
            return 0.0
    padded = np.concatenate([[0.0], counts, [0.0]])
    steps = np.abs(np.diff(padded))
    chance = 2 * np.sqrt(padded[1:] + padded[:-1])
    # a single very frequent number must not hide the others
    scale = np.sort(counts)[-3:].mean()
    return float(np.minimum(np.maximum(steps - chance, 0), scale).sum() / (2 * scale))


SIGNS = (";", "|", ",", "/", "+")
"""Signs between several answers in a cell."""
MOST_ANSWERS = 64
"""Largest number of different answers in cells with several that are recognised."""


def find_several(counts: Mapping[str, int]) -> tuple[str, str]:
    """Find the sign in cells with several answers, such as "a;c;h", and describe them; both "" if cells have one.

    Notes
    -----
    They have several if a sign is in a quarter of the texts, the pieces between the signs are at most `MOST_ANSWERS`
    and fewer than the texts, none is twice in a text, and nearly all are in several texts.
    """
    for sign in SIGNS:
        cells = [[piece.strip() for piece in text.split(sign)] for text in counts]
        times = Counter(piece for cell in cells for piece in cell)
        several = sum(len(cell) > 1 for cell in cells)
        if (
            4 * several >= len(cells) > 3
            and len(times) <= min(MOST_ANSWERS, len(cells) - 1)
            and all(len(set(cell)) == len(cell) for cell in cells)
            and sum(n > 1 for n in times.values()) >= 0.9 * len(times)
        ):
            shown = list_some([repr(piece) for piece in sorted(times)], 8)
            return (
                sign,
                f"several answers in a cell, {len(times)} of them ({shown}) between {sign!r}",
            )
    return "", ""


LEAST_SHARE = 0.95
"""Least share of values that are times of the same form."""
MOST_READ = 2000
"""Largest number of distinct values that are examined."""
FIRST_YEAR, LAST_YEAR = 1800, 2200
"""Range of years in dates of eight digits."""
TURN = 69
"""First year of two digits in the twentieth century."""
FIRST_EPOCH, LAST_EPOCH = 10**8, 5 * 10**9
"""Range of times in seconds since 1970: 1973 to 2128."""

_CLOCK = (
    r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,]\d+)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?"
)
_AFTER = rf"(?:[T ]{_CLOCK}\s*(?:Z|UTC|[+-]\d\d:?\d\d)?)?"
_YEAR, _MONTH, _DAY = (
    r"(?P<year>\d{4})",
    r"(?P<month>0?[1-9]|1[0-2])",
    r"(?P<day>0?[1-9]|[12]\d|3[01])",
)
_SHORT = r"(?P<year>\d\d)"
_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_NAMED = rf"(?P<named>{'|'.join(_NAMES)})[a-z]{{0,6}}\.?"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}(?P<sign>[-/.]){_MONTH}(?P=sign){_DAY}{_AFTER}",
        rf"{_DAY}(?P<sign>[-/.]){_MONTH}(?P=sign){_YEAR}{_AFTER}",
        rf"{_MONTH}(?P<sign>[-/.]){_DAY}(?P=sign){_YEAR}{_AFTER}",
        rf"{_DAY}(?P<sign>[-/]){_MONTH}(?P=sign){_SHORT}{_AFTER}",
        rf"{_MONTH}(?P<sign>[-/]){_DAY}(?P=sign){_SHORT}{_AFTER}",
        rf"(?P<day>0[1-9]|[12]\d|3[01])\.(?P<month>0[1-9]|1[0-2])\.{_SHORT}{_AFTER}",
        rf"{_DAY}(?P<sign>[- ]){_NAMED}(?P=sign)(?:{_YEAR}|(?P<short>\d\d)){_AFTER}",
        rf"{_NAMED} {_DAY},? {_YEAR}{_AFTER}",
        rf"{_YEAR}-{_MONTH}",
        _CLOCK,
    )
)
"""Forms of times; the first that matches nearly all values is used."""
_EIGHT = re.compile(r"(?P<year>\d{4})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])")
_TIME_WORDS = frozenset(
    "time times timestamp timestamps ts date dates datetime epoch unix created updated modified zeit datum".split()
)


@dataclass(frozen=True)
class Times:
    """Times of a column.

    Parameters
    ----------
    ordered
        Texts in order of time, followed by those that are not times.
    reason
        Kind and range of the times.
    offer
        How to use them as variables.
    """

    ordered: tuple[str, ...]
    reason: str
    offer: str


def find_times(name: str, counts: Mapping[str, int]) -> Times | None:
    """Detect dates or times in a column.

    Parameters
    ----------
    name
        Name of the column.
    counts
        Count of each text.

    Returns
    -------
    The times; None if less than `LEAST_SHARE` of the values have the same form. Integers are times only in the form
    20240131, or as seconds since 1970 in a column with a name like ``timestamp``.
    """
    texts = list(counts)[:MOST_READ]
    first = next(iter(texts), "")
    if not first[:1].isdigit() and first[:3].casefold() not in _NAMES:
        return None
    for read in _list_readers(name, texts):
        read_texts = {text: moment for text in texts if (moment := read(text)) is not None}
        n_read = sum(counts[text] for text in read_texts)
        if read_texts and n_read >= LEAST_SHARE * sum(counts[text] for text in texts):
            rest = [text for text in counts if text not in read_texts]
            every = {**read_texts, **{text: m for text in rest if (m := read(text)) is not None}}
            return _describe(every, [text for text in rest if text not in every])
    return None


def _list_readers(name: str, texts: Collection[str]) -> list[Callable[[str], datetime | None]]:
    """Parsers for the texts."""
    if all(text.isascii() and text.isdecimal() for text in texts):
        is_named = bool(_TIME_WORDS.intersection(split_name(name)))
        return [_read_eight, *([_read_epoch] if is_named else [])]
    return [lambda text, form=form: _read_form(form, text) for form in _FORMS]  # type: ignore[misc]


def _read_form(form: re.Pattern[str], text: str) -> datetime | None:
    match = form.fullmatch(text)
    if match is None:
        return None
    words = {key: value.casefold() for key, value in match.groupdict().items() if value}
    parts = {key: int(value) for key, value in words.items() if value.isdecimal()}
    year, hour = parts.get("year", parts.get("short", 1)), parts.get("hour", 0)
    if len(words.get("year", words.get("short", "0001"))) == 2:
        # as in POSIX
        year += 1900 if year >= TURN else 2000
    if "half" in words:
        hour = hour % 12 + 12 * (words["half"] == "p")
    month = 1 + _NAMES.index(words["named"]) if "named" in words else parts.get("month", 1)
    try:
        return datetime(
            year, month, parts.get("day", 1),
            hour, parts.get("minute", 0), parts.get("second", 0), tzinfo=UTC,
        )  # fmt: skip
    except ValueError:
        return None


def _read_eight(text: str) -> datetime | None:
    found = _read_form(_EIGHT, text)
    return found if found is not None and FIRST_YEAR <= found.year <= LAST_YEAR else None


def _read_epoch(text: str) -> datetime | None:
    seconds = int(text) / 1000 if len(text) in (12, 13) else int(text)
    if not FIRST_EPOCH <= seconds <= LAST_EPOCH:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _describe(moments: Mapping[str, datetime], rest: Iterable[str]) -> Times:
    ordered = sorted(moments, key=lambda text: (moments[text], text))
    first, last = moments[ordered[0]], moments[ordered[-1]]
    days = {moment.date() for moment in moments.values()}
    clocks = {moment.time() for moment in moments.values()}
    if days == {date(1, 1, 1)}:
        what, shown = "times of the day", f"{first:%H:%M} to {last:%H:%M}"
        parts = {"hour": len({clock.hour for clock in clocks})}
    else:
        has_clock = clocks != {time(0)}
        what = "dates with times" if has_clock else "dates"
        shown = f"{first.date().isoformat()} to {last.date().isoformat()}"
        parts = {
            "year": len({day.year for day in days}),
            "month": len({day.month for day in days}),
            "weekday": len({day.weekday() for day in days}),
        }
        if has_clock:
            parts["hour"] = len({clock.hour for clock in clocks})
    made = ", ".join(f"{part} ({n} of them)" for part, n in parts.items() if n > 1) or "a part"
    return Times(
        (*ordered, *rest),
        f"{what}, {shown}, {len(ordered)} distinct",
        f"to use a part of them, write it into a column of its own: {made}",
    )
