"""Detect the encoding of CSV files from their texts beyond ASCII."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pmflib.ingest.sources import DAMAGED, Source, open_source, spare_transient

SCANNED_BYTES = 16 << 20
"""Largest number of bytes of a file that are searched for texts beyond ASCII."""
KEPT_BYTES = 32 << 10
"""Largest size of the distinct texts from which the encoding is detected, bytes."""
READ_BYTES = 1 << 20
"""Chunk size for reading, bytes."""
ENCODINGS = (
    *("cp1252", "cp932", "gb18030", "euc_jp", "big5", "cp949", "cp1251", "cp1250", "cp1253"),
    *("cp1254", "koi8_r", "iso8859_2", "cp866", "mac_roman", "cp850"),
)
"""Candidate encodings without a byte order mark, in order of preference. cp1252 extends Latin-1 except for control
characters."""
WIDE_ENCODINGS = ("utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be")
"""Encodings whose texts contain zero bytes."""
MESS_TOLERATED = 0.05
"""Tolerance for comparing encodings by the "mess" ratio of charset-normalizer."""
ODD_TOLERATED = 0.05
"""Tolerance for comparing encodings by the share of odd characters: those rare in tables, of another script than the
ASCII letters of their word, or capitals after a small letter."""
CLEAR_BELOW = 0.2
"""Largest mess ratio and share of odd characters of a certain result, the limit of charset-normalizer."""
ODD_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "No", "Po", "Ps", "Sk", "Sm", "So"})
"""Unicode categories of odd characters: controls, superscripts, modifiers, symbols; not letters or currencies."""
NOT_ODD = frozenset("¿¡")
"""Characters of these categories that are not odd."""
WORDS_SHOWN = 4


@dataclass(frozen=True)
class EncodingGuess:
    """Detected encoding of a file.

    Parameters
    ----------
    encoding
        Name for ``source.encoding``.
    sure
        Whether no other encoding decodes the sample differently and equally well.
    words
        Some decoded texts beyond ASCII.
    others
        Other possible encodings, each with the texts decoded by it.
    """

    encoding: str
    sure: bool = True
    words: tuple[str, ...] = ()
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def describe(self) -> str:
        """Describe the result for review."""
        read = f"texts read as {_list_words(self.words)}" if self.words else "all of it is ASCII"
        if self.sure:
            return f"encoding {self.encoding}: no other encoding reads it as well; {read}"
        if not self.others:
            return (
                f"encoding {self.encoding} is a guess: none reads all of it well; {read}; set source.encoding "
                "(pmf infer: --encoding)"
            )
        others = "; ".join(f"in {name} {_list_words(words)}" for name, words in self.others[:2])
        return (
            f"encoding {self.encoding} is not sure: {read}, and {others}; if that is right, set source.encoding "
            "(pmf infer: --encoding)"
        )


def detect_encoding(source: Source) -> EncodingGuess:
    """Detect the encoding of a CSV file: UTF-8 if possible, otherwise the most likely one by charset-normalizer.

    Only the first ``SCANNED_BYTES`` are examined; ASCII counts as UTF-8.

    Raises
    ------
    UnreachableError
        If the file cannot be reached. Damage is reported when the file is read.
    """
    sample = _Sample()
    try:
        with open_source(source) as stream:
            while sample.needs_more and (part := bytes(stream.read(READ_BYTES))):
                sample.add(part)
    except DAMAGED as error:
        spare_transient(error)
    return sample.guess()


class _Sample:
    """Sample of a file with evidence of its encoding."""

    def __init__(self) -> None:
        self._head = b""
        self._texts: dict[bytes, None] = {}
        self._scanned = self._kept = 0
        self._rest = b""

    @property
    def needs_more(self) -> bool:
        """Whether the limits are not reached yet."""
        return self._scanned < SCANNED_BYTES and self._kept < KEPT_BYTES

    def add(self, part: bytes) -> None:
        """Add the next bytes."""
        self._head = self._head or part[: KEPT_BYTES & ~3]
        self._scanned += len(part)
        if part.isascii() and self._rest.isascii():
            self._rest = b""
            return
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > READ_BYTES:
            self._rest = b""
        self._keep(lines)

    def _keep(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.isascii():
                continue
            # these bytes are never part of a multibyte character in any candidate encoding
            for text in re.split(rb'[\r,;\t"]', line):
                if not text.isascii() and text not in self._texts and self._kept < KEPT_BYTES:
                    self._texts[text] = None
                    self._kept += len(text)

    def guess(self) -> EncodingGuess:
        """Detect the encoding of the sample."""
        import charset_normalizer

        if self._head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in self._head:
            found = charset_normalizer.from_bytes(self._head, cp_isolation=list(WIDE_ENCODINGS))
            best = found.best()
            if best is not None:
                return EncodingGuess(best.encoding.replace("_", "-"), True, _find_words(str(best)))
        self._keep([self._rest])
        texts = b"\n".join(self._texts)
        try:
            return EncodingGuess("utf-8", True, _find_words(texts.decode("utf-8")))
        except UnicodeDecodeError:
            pass
        matches = charset_normalizer.from_bytes(
            texts, cp_isolation=list(ENCODINGS), threshold=0.9, preemptive_behaviour=False
        )
        readings: dict[str, tuple[float, str]] = {}
        for match in matches:
            for name in (match.encoding, *match.could_be_from_charset):
                readings[name] = (match.chaos, str(match))
        if not readings:
            words = _find_words(texts.decode(ENCODINGS[0], "replace"))
            return EncodingGuess(ENCODINGS[0], False, words)
        return _choose(readings)


def _choose(readings: dict[str, tuple[float, str]]) -> EncodingGuess:
    """Choose among encodings by mess ratio, then by odd characters, then by preference."""
    known = [name for name in ENCODINGS if name in readings]
    least = min(readings[name][0] for name in known)
    known = [name for name in known if readings[name][0] <= least + MESS_TOLERATED]
    odd = {name: _measure_odd(readings[name][1]) for name in known}
    known = [name for name in known if odd[name] <= min(odd.values()) + ODD_TOLERATED]
    texts = readings[known[0]][1]
    words = _find_words(texts)
    others: list[tuple[str, tuple[str, ...]]] = []
    for name in known[1:]:
        other = readings[name][1]
        if other not in {texts, *(readings[each][1] for each, _ in others)}:
            others.append((name, _find_different(texts, other)))
    is_clear = max(readings[known[0]][0], odd[known[0]]) <= CLEAR_BELOW
    return EncodingGuess(known[0], is_clear and not others, words, tuple(others))


def _measure_odd(text: str) -> float:
    beyond = odd = 0
    for word in re.findall(r"[^\s,;|\"]+", text):
        is_latin = re.search("[A-Za-z]", word) is not None
        for before, character in zip(" " + word, word, strict=False):
            if character.isascii():
                continue
            beyond += 1
            # other alphabets decode to half-width forms in Japanese encodings
            is_half = unicodedata.east_asian_width(character) == "H"
            if is_half or unicodedata.category(character) in ODD_CATEGORIES:
                odd += character not in NOT_ODD
            elif is_latin and character.isalpha():
                # an apostrophe or accent of a Mac reads as a capital within a word
                is_inner = before.islower() and character.isupper()
                odd += is_inner or not unicodedata.name(character, "").startswith("LATIN")
    return odd / max(beyond, 1)


def _find_words(text: str) -> tuple[str, ...]:
    """First words beyond ASCII."""
    words = (word for word in re.findall(r"[^\s,;|\"]+", text) if not word.isascii())
    return tuple(
        word[:30] for word, _ in zip(dict.fromkeys(words), range(WORDS_SHOWN), strict=False)
    )


def _find_different(text: str, other: str) -> tuple[str, ...]:
    """First words of another decoding that differ from the first one."""
    lines = zip(text.split("\n"), other.split("\n"), strict=False)
    return _find_words("\n".join(b for a, b in lines if a != b))


def _list_words(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words)
