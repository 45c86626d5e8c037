"""Seeded damage to files: bytes, values of options, rows, arrays."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

TOKENS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b'"',
    b"'",
    b",",
    b";",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\x1b[31m",
    b"[/]",
    b":smile:",
    "\u202e\u2066".encode(),
    b"\xef\xbb\xbf",
    b"PAR1",
    b"\x1f\x8b\x08",
    b"1e999",
    b"NaN",
    b"-1",
    b"9" * 400,
    b"{" * 40,
    b"[" * 2000,
    b"x" * 70_000,
)
"""What is put into files, beside what is there."""

VALUES: tuple[Any, ...] = (
    0, 1, -1, 3, 2**31, 2**63, 2**70, -(2**63), 0.0, -0.5, 0.5, 1.5, 1e308, True, False, "", " ", ".", "..", "/", "a",
    "\x1b[31m[/]:smile:\u202e", "a\nb", "x" * 300, "auto", "wide", "long", "missing", "error", "\u00e9", "a\tb",
    "http://127.0.0.1:1/", "ftp://127.0.0.1:1/a", "zip://a::b", "memory://none", "*", "[", "~", "-", "1e5", "NaN",
    [], {}, [[]], [1], ["a"], ["a", "a"], ["a", "b"], [["a"]], {"a": 1}, [None], None, [0.5, 0.1], [1e308, -1e308],
)  # fmt: skip
"""Values that options and fields are given."""


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Damage a file at some positions."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        position = rng.randrange(len(out) + 1)
        size = rng.choice((1, 1, 2, 8, 64, 1000))
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[min(position, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[position : position + size]
        elif kind == 2:
            out[position:position] = out[position : position + size]
        elif kind == 3:
            out[position:position] = rng.choice(TOKENS)
        elif kind == 4:
            del out[position:]
        elif kind == 5:
            out[position : position + size] = rng.randbytes(size)
        else:
            other = rng.randrange(len(out) + 1)
            out[position : position + size], out[other : other + size] = (
                out[other : other + size],
                out[position : position + size],
            )
    return bytes(out)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Replace, drop, repeat or rename a part of nested values; the value itself is not changed."""
    copy = json.loads(json.dumps(value))
    slots: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            slots.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(copy)
    for node, key in rng.sample(slots, min(len(slots), rng.choice((1, 1, 2, 3)))):
        if (isinstance(node, list) and key >= len(node)) or (
            isinstance(node, dict) and key not in node
        ):
            continue
        kind = rng.randrange(6)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, list):
            node.append(node[key])
        elif kind == 1:
            node[rng.choice(("", "x", "name", "path", "\x1b", "base"))] = node.pop(key)
        else:
            node[key] = rng.choice(VALUES)
    return copy


def mutate_toml(text: str, rng: random.Random) -> bytes:
    """Damage a configuration: its values, or its bytes."""
    if rng.random() < 0.3:
        return mutate_bytes(text.encode(), rng)
    data = tomllib.loads(text)
    options = [
        ("store", "folds"), ("store", "buckets"), ("store", "path"), ("model", "rank"), ("model", "method"),
        ("em", "max_passes"), ("em", "tol"), ("em", "pseudo_count"), ("em", "members"), ("em", "distil"),
        ("em", "patience"), ("em", "target"), ("em", "accelerate"), ("evaluate", "validation_folds"),
        ("evaluate", "test_folds"), ("evaluate", "hide"), ("cluster", "address"), ("cluster", "memory_limit"),
        ("cluster", "workers"), ("source", "path"), ("source", "layout"), ("source", "format"), ("source", "sample"),
        ("source", "delimiter"), ("source", "columns"), ("source", "missing"), ("schema", "file"),
        ("schema", "on_unknown_level"), ("schema", "on_malformed"), ("schema", "on_duplicate"), ("", "name"),
        ("", "seed"), ("crowd", "method"), ("crowd", "classes"), ("", "nonsense"),
    ]  # fmt: skip
    for section, option in rng.sample(options, rng.choice((1, 1, 2))):
        table = data.setdefault(section, {}) if section else data
        if isinstance(table, dict):
            table[option] = rng.choice(VALUES)
    return write_toml(data).encode()


def write_toml(data: dict[str, Any]) -> str:
    """Text of nested values; None is left out."""
    plain = {k: v for k, v in data.items() if not isinstance(v, dict)}
    lines = [f"{k} = {_inline(v)}" for k, v in plain.items() if v is not None]
    for name, section in data.items():
        if isinstance(section, dict):
            lines.append(f"[{name}]")
            lines += [
                f"{json.dumps(k)} = {_inline(v)}" for k, v in section.items() if v is not None
            ]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(v) for v in value if v is not None) + "]"
    return json.dumps(value)


CSV_VALUES = (
    "", "a", "b", "c", "1", "2", "NA", "-1", "1e400", "nan", "\u00e9", "\x1b[31m", "[/]", ":smile:", '"', '""', "a,b",
    "\u202e", " a ", "\t", "x" * 3000, "0x1", "1_000", "\u0661", "true",
)  # fmt: skip


def mutate_rows(text: str, rng: random.Random) -> bytes:
    """Damage a CSV file: its rows, its cells, or its bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(text.encode(), rng)
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(rng.choice((1, 3, 30))):
        _damage_row(rows, rng.randrange(len(rows)), rng)
    end = rng.choice(("\n", "\r\n", "\r"))
    encoding = rng.choice(("utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"))
    return end.join(map(",".join, rows)).encode(encoding, "replace")


def _damage_row(rows: list[list[str]], position: int, rng: random.Random) -> None:
    row, kind = rows[position], rng.randrange(7)
    if kind == 0:
        row.append(rng.choice(CSV_VALUES))
    elif kind == 1 and row:
        row.pop()
    elif kind == 2:
        rows.insert(position, list(row))
    elif kind == 3:
        rows.insert(position, [])
    elif kind == 4 and len(rows) > 1:
        rows.pop(position)
    elif kind == 5:
        rng.shuffle(row)
    elif row:
        row[rng.randrange(len(row))] = rng.choice(CSV_VALUES)
