"""Sliding windows: samples of a long log are made of the rows of its last days."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pmflib.hashing import HashArray
from pmflib.ingest.spills import Spill
from pmflib.running.clients import Client
from pmflib.running.item_maps import map_items
from pmflib.store.artefacts import Entry, Store
from pmflib.store.mirrors import find_place

DAY = {"number": 86_400.0, "instant": 86_400e6}
"""A day in the units of times: numbers are taken for seconds, instants are microseconds."""


def find_start(spills: Sequence[Entry], days: float | None) -> float:
    """Find the time at which the window begins: some days before the newest row of all files.

    Parameters
    ----------
    spills
        Entries of all spills.
    days
        Length of the window; None for no window.

    Returns
    -------
    The time, in the unit of the log; minus infinity without a window, or where no row has a time.
    """
    if days is None:
        return -math.inf
    ends = [
        spill.summary["newest"] - days * DAY[spill.summary["time"]]
        for spill in spills
        if spill.summary["newest"] is not None
    ]
    return max(ends, default=-math.inf)


def count_outside(client: Client, store: Store, spills: Sequence[Entry], start: float) -> int:
    """Count the rows before a window; only files that are partly in it are opened."""
    timed = [spill for spill in spills if spill.summary.get("newest") is not None]
    past = [spill for spill in timed if spill.summary["newest"] < start]
    partly = [s for s in timed if s.summary["oldest"] < start <= s.summary["newest"]]
    paths = [store.address_artefact(spill.reference) for spill in partly]
    n_rows = sum(map_items(client, _count_rows, paths, start))
    for spill in past:
        n_rows += spill.summary["rows_encoded"]
    return n_rows


def find_moved(
    client: Client, store: Store, spills: Sequence[Entry], before: float, start: float
) -> list[HashArray]:
    """Keys of samples with rows between the beginnings of two windows, from each file that has such rows."""
    first, last = sorted((before, start))
    paths = [
        store.address_artefact(spill.reference)
        for spill in spills
        if spill.summary.get("newest") is not None
        and spill.summary["newest"] >= first
        and spill.summary["oldest"] < last
    ]
    return map_items(client, _read_keys_between, paths, first, last) if first < last else []


def _count_rows(spill: str, stop: float) -> int:
    return Spill(find_place(spill), {}).count_rows(stop)


def _read_keys_between(spill: str, start: float, stop: float) -> HashArray:
    return Spill(find_place(spill), {}).read_keys_between(start, stop)
