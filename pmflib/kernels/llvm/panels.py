"""LLVM code for panels: a few vectors of float64 side by side that stay in registers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llvmlite import ir

INDEX = ir.IntType(64)
_LANE = ir.IntType(32)
_DOUBLE = ir.DoubleType()


@dataclass(frozen=True)
class Panel:
    """Builds code on panels of ``width * n_vectors`` float64; offsets count float64, not bytes.

    Parameters
    ----------
    width
        float64 per vector, a power of 2.
    n_vectors
        Vectors per panel.
    """

    width: int
    n_vectors: int

    @cached_property
    def vector(self) -> Any:
        """Type of a vector."""
        return ir.VectorType(_DOUBLE, self.width)

    def constant(self, value: float) -> Any:
        """Vector of one number."""
        return ir.Constant(self.vector, [value] * self.width)

    def load_vector(self, builder: Any, pointer: Any, offset: Any) -> Any:
        """Vector at an offset."""
        return builder.load(self._at(builder, pointer, offset), align=8)

    def store_vector(self, builder: Any, value: Any, pointer: Any, offset: Any) -> None:
        """Put a vector at an offset."""
        builder.store(value, self._at(builder, pointer, offset), align=8)

    def load(self, builder: Any, pointer: Any, offset: Any) -> list[Any]:
        """Panel at an offset."""
        return [
            self.load_vector(builder, pointer, place) for place in self._places(builder, offset)
        ]

    def store(self, builder: Any, values: list[Any], pointer: Any, offset: Any) -> None:
        """Put a panel at an offset."""
        for value, place in zip(values, self._places(builder, offset), strict=True):
            self.store_vector(builder, value, pointer, place)

    def _places(self, builder: Any, offset: Any) -> list[Any]:
        return [builder.add(offset, INDEX(v * self.width)) for v in range(self.n_vectors)]

    def _at(self, builder: Any, pointer: Any, offset: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [offset]), self.vector.as_pointer())

    def fill(self, builder: Any, scalar: Any) -> Any:
        """Vector of one number known at run time."""
        none = ir.Constant(self.vector, ir.Undefined)
        one = builder.insert_element(none, scalar, _LANE(0))
        return _shuffle(builder, one, none, [0] * self.width)

    def raise_to(self, builder: Any, values: list[Any], least: Any) -> list[Any]:
        """What is not above a bound becomes the bound."""
        return [
            builder.select(builder.fcmp_ordered(">", value, least), value, least)
            for value in values
        ]

    def add_vectors(self, builder: Any, values: list[Any]) -> Any:
        """Sum of a panel's vectors: neighbours in pairs, one left over at the end."""
        while len(values) > 1:
            pairs = [builder.fadd(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]

    def add_lanes(self, builder: Any, values: list[Any]) -> list[Any]:
        """Sum of each vector's lanes, upper half onto lower; the sums side by side, in order."""
        part = self.width
        while part > 1:
            firsts = range(0, 2 * self.width, part)
            low = [first + k for first in firsts for k in range(part // 2)]
            high = [place + part // 2 for place in low]
            values = [
                builder.fadd(_shuffle(builder, a, b, low), _shuffle(builder, a, b, high))
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
            part //= 2
        return values


def _shuffle(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_LANE, len(places)), places)
    return builder.shuffle_vector(one, other, mask)


def repeat(
    builder: Any,
    start: Any,
    stop: Any,
    step: int,
    carried: list[Any],
    body: Callable[..., list[Any]],
) -> list[Any]:
    """Loop from start to below stop with values carried in registers; ``body(i, values)`` returns the next ones."""
    before = builder.block
    loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
    builder.cbranch(builder.icmp_signed("<", start, stop), loop, end)
    builder.position_at_end(loop)
    i = builder.phi(INDEX)
    now = [builder.phi(value.type) for value in carried]
    new = body(i, now)
    following = builder.add(i, INDEX(step))
    last = builder.block
    for phi, first, next_one in zip([i, *now], [start, *carried], [following, *new], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, last)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, end)
    builder.position_at_end(end)
    out = [builder.phi(value.type) for value in carried]
    for phi, first, next_one in zip(out, carried, new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, last)
    return out


def round_down(builder: Any, start: Any, stop: Any, step: int) -> Any:
    """Last place that whole steps, a power of 2, from start reach without passing stop."""
    whole = builder.and_(builder.sub(stop, start), INDEX(-step))
    return builder.add(start, whole)
