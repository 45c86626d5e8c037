"""Resource usage of a process: processor time, peak memory, bytes read and written."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessUsage:
    """Usage of a process so far, or between two points in time.

    Parameters
    ----------
    seconds
        Processor time of all threads.
    peak_bytes
        Peak memory since the last call of `begin`, or since the start of the process if the system cannot reset it.
    read_bytes, written_bytes
        Bytes read from and written to files and pipes, including cached ones; 0 if the system does not count them.
    """

    seconds: float = 0.0
    peak_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @classmethod
    def begin(cls) -> ProcessUsage:
        """Return the usage of this process and reset its peak memory."""
        # 5: reset the peak to the current memory
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return cls.read()

    @classmethod
    def read(cls) -> ProcessUsage:
        """Return the usage of this process."""
        peak = _read_fields("/proc/self/status").get("VmHWM", 0) << 10
        moved = _read_fields("/proc/self/io")
        if not peak:
            # kilobytes, except on macOS
            unit = 1 if sys.platform == "darwin" else 1 << 10
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return cls(time.process_time(), peak, moved.get("rchar", 0), moved.get("wchar", 0))

    def since(self, before: ProcessUsage) -> ProcessUsage:
        """Return the usage since an earlier point in time."""
        return ProcessUsage(
            max(0.0, self.seconds - before.seconds),
            self.peak_bytes,
            max(0, self.read_bytes - before.read_bytes),
            max(0, self.written_bytes - before.written_bytes),
        )

    @classmethod
    def add(cls, several: Iterable[ProcessUsage]) -> ProcessUsage:
        """Sum the usage of several processes; the peak memory is the largest."""
        found = list(several)
        return cls(
            sum(each.seconds for each in found),
            max((each.peak_bytes for each in found), default=0),
            sum(each.read_bytes for each in found),
            sum(each.written_bytes for each in found),
        )


def _read_fields(path: str) -> dict[str, int]:
    """Parse a Linux status file with lines of a name, a colon and a number."""
    fields = {}
    with suppress(OSError):
        for line in Path(path).read_text("ascii", "replace").splitlines():
            name, _, value = line.partition(":")
            number = value.split()[:1]
            if number and number[0].isdecimal():
                fields[name] = int(number[0])
    return fields
