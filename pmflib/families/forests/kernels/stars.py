"""Stars of a forest: a variable (the centre) with some of its children, whose levels index one lookup table.

A star has an entry for each combination of levels of its variables. The digit of a variable is 0 if it is missing and
its code + 1 if it is observed; if no cell of the samples is missing, the digit is the code. The entry is the
probability of the observed children given the level of the centre. Entries that differ only in the digit of the centre
are contiguous, and are 1 if the centre is missing. A child's own star is merged into its parent's if it is small and
contains all descendants of the child. Its digits then become digits of the merged star, and missing variables in
between are summed out once, for all rows. Roots are children of an additional variable ``n_variables`` with a single
level.

The product over the stars of a state is therefore the probability of a row in which no centre is missing, whichever
other cells are missing. Messages along the forest are needed only where a centre is missing
(`pmflib.families.forests.kernels.star_passes`). Masses are added to entries and split into table masses once for all
rows.

Probabilities of an observed level are divided by the largest value in any state, so entries are at most 1.
"""

from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.compiled.saved_code import compile_kernel
from pmflib.model.kernels.em_arguments import INNER, OUTER


class Stars(NamedTuple):
    """Stars of all states, grouped by state; each star follows those of its grandchildren."""

    first_stars: IntArray
    """int32 of shape (rank + 1,): first star of each state."""
    states: IntArray
    """int32 of shape (n_stars,)."""
    centres: IntArray
    """int32 of shape (n_stars,): the centre of each star."""
    bases: IntArray
    """int64 of shape (n_stars + 1,): first entry of each star."""
    first_children: IntArray
    """int32 of shape (n_stars + 1,)."""
    children: IntArray
    """int32 of shape (rank * n_variables,)."""
    steps: IntArray
    """int64 of the same shape: step in entries between two digits of a child, or between two entries of its own
    star.
    """
    inner: IntArray
    """int32 of the same shape: star of each child that is merged into this star, -1 if none."""
    first_digits: IntArray
    """int32 of shape (n_stars + 1,)."""
    digits: IntArray
    """int32 of shape (n_digits,): variables of each star, including those of merged stars."""
    digit_steps: IntArray
    """int64 of the same shape: step in entries between two digits of each variable."""
    first_outer: IntArray
    """int32 of shape (rank + 1,): first outer centre of each state; the constant variable is last."""
    outer: IntArray
    """int32 of shape (n_centres,): centres whose stars are not merged into others, children first."""
    begins: IntArray
    """int32 of shape (n_centres,): first star of each of these centres."""
    ends: IntArray
    """int32 of shape (n_centres,): star after the last one."""
    gap: int
    """Digit of code 0: 1 if levels may be missing, otherwise 0."""


@compile_kernel(saved=False, **INNER)
def _place_children(  # type: ignore[no-untyped-def]
    c, head, following, radices, width, limit, stars, n_stars, n_children, inner_stars, base
):
    """Pack the children of a centre into stars, largest first, each into the first star with room.

    Returns the numbers of stars and children so far, and the first free entry.
    """
    first_child, n = n_children, head
    while n >= 0:
        at = n_children
        while at > first_child and radices[stars.children[at - 1]] < radices[n]:
            stars.children[at] = stars.children[at - 1]
            at -= 1
        stars.children[at] = n
        n_children += 1
        n = following[n]
    # grouped by star
    n_placed = first_child
    while n_placed < n_children:
        stars.centres[n_stars], stars.bases[n_stars], stars.first_children[n_stars] = (
            c,
            base,
            n_placed,
        )
        entries = width
        for q in range(n_placed, n_children):
            n = stars.children[q]
            if entries > width and entries * radices[n] > limit:
                continue
            for k in range(q, n_placed, -1):
                stars.children[k] = stars.children[k - 1]
            stars.children[n_placed], stars.steps[n_placed] = n, entries
            stars.inner[n_placed] = inner_stars[n]
            n_placed += 1
            entries *= radices[n]
        base += entries
        n_stars += 1
    return n_stars, n_children, base


@compile_kernel(saved=False, **INNER)
def _list_digits(s, n_digits, stars):  # type: ignore[no-untyped-def]
    """List the variables of a star except its centre, including merged stars; returns their number so far."""
    stars.first_digits[s] = n_digits
    for q in range(stars.first_children[s], stars.first_children[s + 1]):
        stars.digits[n_digits], stars.digit_steps[n_digits] = stars.children[q], stars.steps[q]
        n_digits += 1
        inner = stars.inner[q]
        if inner >= 0:
            for k in range(stars.first_digits[inner], stars.first_digits[inner + 1]):
                stars.digits[n_digits] = stars.digits[k]
                stars.digit_steps[n_digits] = stars.digit_steps[k] * stars.steps[q]
                n_digits += 1
    return n_digits


@compile_kernel(**OUTER)
def arrange_stars(parents, order, sizes, limit, stars):  # type: ignore[no-untyped-def]
    """Arrange the variables of forests in stars with at most ``limit`` entries, or a single child.

    parents, order: int32 (rank, n_variables), as in `pmflib.families.forests.kernels.messages`. sizes: int64
    (n_variables + 1,), numbers
    of levels, the last one 1. stars: `Stars` to fill, with arrays of the largest possible size.
    """
    gap, (rank, n_variables) = stars.gap, parents.shape
    heads, following = np.empty(n_variables + 1, np.int32), np.empty(n_variables, np.int32)
    radices, inner_stars = np.empty(n_variables, np.int64), np.empty(n_variables, np.int32)
    is_open = np.empty(n_variables + 1, np.uint8)
    n_centres = n_stars = n_children = n_digits = 0
    base = np.int64(0)
    for f in range(rank):
        stars.first_outer[f], stars.first_stars[f] = n_centres, n_stars
        heads[:] = -1
        is_open[:] = 0
        for n in range(n_variables - 1, -1, -1):
            parent = parents[f, n] if parents[f, n] >= 0 else n_variables
            following[n] = heads[parent]
            heads[parent] = n
        for k in range(n_variables - 1, -2, -1):
            c = order[f, k] if k >= 0 else n_variables
            if c < n_variables:
                radices[c], inner_stars[c] = sizes[c] + gap, -1
            if heads[c] < 0:
                continue
            first_star, start = n_stars, base
            n_stars, n_children, base = _place_children(
                c,
                heads[c],
                following,
                radices,
                sizes[c] + gap,
                limit,
                stars,
                n_stars,
                n_children,
                inner_stars,
                base,
            )
            stars.first_children[n_stars], stars.bases[n_stars] = n_children, base
            for s in range(first_star, n_stars):
                stars.states[s] = f
                n_digits = _list_digits(s, n_digits, stars)
                stars.first_digits[s + 1] = n_digits
            if c < n_variables:
                parent = parents[f, c] if parents[f, c] >= 0 else n_variables
                is_alone = n_stars - first_star == 1 and not is_open[c]
                if is_alone and (sizes[parent] + gap) * (base - start) <= limit:
                    radices[c], inner_stars[c] = base - start, first_star
                    continue
                is_open[parent] = 1
            stars.outer[n_centres] = c
            stars.begins[n_centres], stars.ends[n_centres] = first_star, n_stars
            n_centres += 1
    stars.first_outer[rank], stars.first_stars[rank] = n_centres, n_stars


@compile_kernel(saved=False, **INNER)
def find_chance(tables, row, size, messages, at, step):  # type: ignore[no-untyped-def]
    """Compute the probability of the observed descendants of a missing variable: the sum over its levels."""
    chance = 0.0
    for j in range(size):
        chance += tables[row + j] * messages[at + j * step]
    return chance


@compile_kernel(**OUTER)
def fill_stars(stars, starts, sizes, tables, scaled, values):  # type: ignore[no-untyped-def]
    """Fill the entries of all stars, (n_star_entries,), from tables (n_entries,) and scaled tables."""
    gains, gap = np.empty(sizes.max()), stars.gap
    for s in range(stars.bases.size - 1):
        f, base, width = stars.states[s], stars.bases[s], sizes[stars.centres[s]] + gap
        for j in range(width):
            values[base + j] = 1.0
        for q in range(stars.first_children[s], stars.first_children[s + 1]):
            n, step, inner = stars.children[q], stars.steps[q], stars.inner[q]
            size, start = sizes[n], starts[f, n]
            within = stars.bases[inner] if inner >= 0 else np.int64(0)
            radix = stars.bases[inner + 1] - within if inner >= 0 else size + gap
            # the entries of the first digit, last, because all others are made from them
            for e in range(radix - 1, gap - 1, -1):
                code = e % (size + gap) - gap
                for j in range(width - gap):
                    row = start + j * size
                    if code < 0:
                        gains[j] = find_chance(tables, row, size, values, within + e + 1, 1)
                    else:
                        gains[j] = scaled[row + code]
                        if inner >= 0:
                            gains[j] *= values[within + e]
                to = base + e * step
                for b in range(0, step, width):
                    if gap:
                        values[to + b] = 1.0
                    for j in range(gap, width):
                        values[to + b + j] = values[base + b + j] * gains[j - gap]


@compile_kernel(**OUTER)
def collect_stars(  # type: ignore[no-untyped-def]
    stars, starts, sizes, offsets, tables, values, log_scales, by_entry, mass, state_mass
):
    """Add the masses of all star entries to tables (n_entries,) and states; by_entry is used as work space.

    Returns the sum of masses times log_scales, (n_levels,): the logarithms of the factors removed from observed levels,
    nats.
    """
    weighted = 0.0
    found, gap = np.empty(sizes.max()), stars.gap
    for s in range(stars.bases.size - 2, -1, -1):
        f, base, width = stars.states[s], stars.bases[s], sizes[stars.centres[s]] + gap
        for q in range(stars.first_children[s + 1] - 1, stars.first_children[s] - 1, -1):
            n, step, inner = stars.children[q], stars.steps[q], stars.inner[q]
            size, start = sizes[n], starts[f, n]
            within = stars.bases[inner] if inner >= 0 else np.int64(0)
            radix = stars.bases[inner + 1] - within if inner >= 0 else size + gap
            # summed over the digits of the child, into the entries of the first digit
            for e in range(gap, radix):
                code, at, total = e % (size + gap) - gap, base + e * step, 0.0
                for j in range(width - gap):
                    found[j] = 0.0
                for b in range(0, step, width):
                    for j in range(gap, width):
                        found[j - gap] += by_entry[at + b + j]
                        if e > 0:
                            by_entry[base + b + j] += by_entry[at + b + j]
                for j in range(width - gap):
                    row = start + j * size
                    total += found[j]
                    if code >= 0:
                        mass[row + code] += found[j]
                    elif found[j] > 0.0:
                        below = within + e + 1
                        chance = find_chance(tables, row, size, values, below, 1)
                        share = found[j] / max(chance, 1e-300)
                        for i in range(size):
                            added = share * tables[row + i] * values[below + i]
                            mass[row + i] += added
                            by_entry[below + i] += added
                if code >= 0:
                    weighted += total * log_scales[offsets[n] + code]
                    if inner >= 0:
                        by_entry[within + e] += total
    for f in range(state_mass.size):
        # every row adds to the first star of the constant centre
        last = stars.first_outer[f + 1] - 1
        state_mass[f] += by_entry[stars.bases[stars.begins[last]] + gap]
    return weighted
