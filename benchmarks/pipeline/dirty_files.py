"""How CSV files are written is found out: tables made dirty, and words in many encodings.

    python -m benchmarks.pipeline.dirty_files ../shared/data

Tables are written with each delimiter, with and without a header, with decimal commas where they hold decimals, and
once more with a byte order mark, CRLF and 4 % broken rows. Car, votes and PISA 2009, and the first five languages, were
at hand when the rules were made; the others were not, but for one rule: that of aligned columns was corrected after
files of nltcs and jn-product were read wrongly.
"""
# ruff: noqa: RUF001  # letters that look like Latin ones are what is measured

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sklearn.datasets

from pmflib.core.errors import PmfError
from pmflib.ingest.csv.encodings import detect_encoding
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sniffing import sniff_source
from pmflib.ingest.sources import find_sources

ROWS = 3000
DELIMITERS = (",", "\t", ";", "|", "::", ", ", " ", "whitespace")
TABLES = {
    "car": ("car/UCI_CAR.data", ","),
    "votes": ("votes/UCI_VOTERS.data", ","),
    "pisa2009": ("pisa2009/pisaitems.csv.gz", ","),
    "ml-100k users": ("ml-100k/u.user", "|"),
    "ml-100k films": ("ml-100k/u.item", "|"),
    "ml-100k ratings": ("ml-100k/u.data.gz", "\t"),
    "jn-product": ("jn-product/answer.csv.gz", ","),
    "dog": ("dog/dog.txt", "\t"),
    "nltcs": ("nltcs/nltcs.train.data.gz", ","),
    "labelme": ("labelme/answers.txt", " "),
}
HEADERS = ("pisa2009", "jn-product")
LEARNT_FROM = {"car", "votes", "pisa2009", "German", "French", "Polish", "Russian", "Japanese"}
WORDS = {
    "German": ("München Köln Straße Bäcker ja weiß männlich Österreich", "latin-1 mac_roman cp850"),
    "French": ("marié célibataire français été où Noël âge forêt naïf", "cp1252 mac_roman cp850"),
    "Polish": ("Łódź Kraków Gdańsk mężczyzna żonaty wyższe śląskie", "cp1250 iso8859-2"),
    "Russian": ("Москва Казань мужской женский да нет высшее", "cp1251 koi8-r cp866"),
    "Japanese": ("東京 大阪 名古屋 はい いいえ 男性 女性 満足", "shift_jis euc_jp"),
    "Spanish": ("España Málaga niño sí Córdoba mañana Cádiz", "cp1252 mac_roman cp850"),
    "Swedish": ("Malmö Göteborg Örebro Västerås gärna Skåne åtta", "cp1252 mac_roman"),
    "Czech": ("Plzeň České Budějovice muž vysokoškolské střední Třebíč", "cp1250 iso8859-2"),
    "Greek": ("Αθήνα Θεσσαλονίκη άνδρας γυναίκα ναι όχι Πάτρα", "cp1253"),
    "Turkish": ("İstanbul İzmir hayır kadın Muğla Şanlıurfa öğrenci işçi", "cp1254"),
    "Ukrainian": ("Київ Львів так ні чоловік жінка вища освіта", "cp1251"),
    "Chinese": ("北京 上海 男 女 满意 一般 广州", "gb18030"),
    "Portuguese": ("São Paulo não médico João avó coração Brasília", "cp1252"),
    "English": ("café naïve résumé £5 Zoë don’t", "cp1252"),
}


@dataclass
class Score:
    """What was found of one table or language."""

    right: int = 0
    asked: int = 0
    unsure: int = 0
    wrong: int = 0


def read_tables(folder: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """Rows of each table, the header first."""
    for name, (path, delimiter) in TABLES.items():
        raw = (folder / path).read_bytes()
        text = (gzip.decompress(raw) if path.endswith(".gz") else raw).decode("latin-1")
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
        rows = [row[:60] for row in itertools.islice(rows, ROWS)]
        yield name, rows if name in HEADERS else [[f"q{n}" for n in range(len(rows[0]))], *rows]
    for name in ("iris", "wine", "diabetes", "breast_cancer"):
        load = getattr(sklearn.datasets, f"load_{name}")
        found = load(scaled=False) if name == "diabetes" else load()
        values = zip(found.data.tolist(), found.target.tolist(), strict=True)
        rows = [[f"{value:g}" for value in (*row, target)] for row, target in values]
        yield name, [[*map(str, found.feature_names), "y"], *rows]


def write_table(rows: list[list[str]], delimiter: str, is_broken: bool, seed: int) -> str:
    """Text of a table; fields that hold the delimiter are quoted."""
    lines = []
    for row in rows:
        if delimiter == "whitespace":
            cells = [f'"{cell}"' if " " in cell or not cell else f"{cell:>6}" for cell in row]
            lines.append("  ".join(cells))
        elif len(delimiter) > 1:
            lines.append(delimiter.join(f'"{c}"' if delimiter in c else c for c in row))
        else:
            line = io.StringIO()
            csv.writer(line, delimiter=delimiter, lineterminator="").writerow(row)
            lines.append(line.getvalue())
    if not is_broken:
        return "\n".join(lines) + "\n"
    draws = random.Random(seed)
    for index in range(1, len(lines)):
        draw = draws.random()
        if draw < 0.02:
            lines[index] = lines[index][: len(lines[index]) // 2]
        elif draw < 0.04:
            lines[index] += (" " if delimiter == "whitespace" else delimiter) + "x"
    return "\ufeff" + "\r\n".join(lines)


def try_table(rows: list[list[str]], path: Path) -> Score:
    """Write a table in every way, and compare what is found."""
    score = Score()
    decimals = re.compile(r"-?\d+\.\d+")
    has_decimals = any(decimals.fullmatch(cell) for row in rows[1:300] for cell in row)
    ways = itertools.product(DELIMITERS, (True, False), (".", ","), (False, True))
    for seed, (delimiter, has_header, decimal, is_broken) in enumerate(ways):
        if decimal == "," and (not has_decimals or delimiter.startswith(",")):
            continue
        content = rows if has_header else rows[1:]
        if decimal == ",":
            content = [
                [c.replace(".", ",") if decimals.fullmatch(c) else c for c in row]
                for row in content
            ]
        path.write_text(write_table(content, delimiter, is_broken, seed), "utf-8", newline="")
        try:
            config = SourceOptions(path="x", layout="wide")
            found, _ = sniff_source(find_sources(str(path)), config, ())
        except PmfError:
            score.asked += 1
            continue
        got = (found.delimiter, found.columns is None, found.decimal)
        if got == (delimiter, has_header, decimal):
            score.right += 1
        else:
            score.wrong += 1
    return score


def try_words(words: list[str], encodings: list[str], path: Path) -> Score:
    """Write words in every encoding, and compare how they read in the one that is found."""
    score = Score()
    draws = random.Random(0)
    rows = [f"{n},{draws.choice(words)},{draws.choice(words)}" for n in range(120)]
    for encoding in (*encodings, "utf-8", "utf-16", "utf-16-le"):
        text = "nr,a,b\n" + "\n".join(rows).encode(encoding, "ignore").decode(encoding)
        path.write_bytes(text.encode(encoding))
        guess = detect_encoding(find_sources(str(path))[0])
        if text.encode(encoding).decode(guess.encoding, "replace").removeprefix("\ufeff") == text:
            score.right += 1
        elif not guess.sure:
            score.unsure += 1
        else:
            score.wrong += 1
    return score


def main() -> None:
    """Print what was found of every table and language, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "x.csv"
        scores = {name: try_table(rows, path) for name, rows in read_tables(folder)}
        scores |= {name: try_words(w.split(), e.split(), path) for name, (w, e) in WORDS.items()}
    sums: dict[str, Counter[str]] = {}
    for name, score in scores.items():
        kind = "encodings" if name in WORDS else "dialects"
        origin = "learnt from" if name in LEARNT_FROM else "evaluated on"
        print(f"{kind:10} {origin:12} {name:16} {vars(score)}")
        sums.setdefault(f"{kind}, {origin}", Counter()).update(vars(score))
    for what, total in sums.items():
        print(f"{what}: {dict(total)}")


if __name__ == "__main__":
    main()
