"""What the stages of a run under way use: time, memory, bytes; for its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmflib.core.process_usage import ProcessUsage
from pmflib_tasks.stage_events import StageRun


class StageUsage:
    """What the stages of a run under way have used so far; it listens to them."""

    def __init__(self) -> None:
        self._client: dict[str, list[ProcessUsage]] = {}
        self._workers: dict[str, list[ProcessUsage]] = {}

    def note(self, stage: StageRun) -> None:
        """Add a run of a stage that has ended."""
        if stage.is_over:
            self._client.setdefault(stage.stage, []).append(stage.client)
            self._workers.setdefault(stage.stage, []).extend(stage.workers)

    def list_timings(self, seconds: Mapping[str, float]) -> list[dict[str, Any]]:
        """Section "timings" of the facts of a run.

        Parameters
        ----------
        seconds
            Time that each stage took.
        """
        found = []
        for stage, took in seconds.items():
            client, workers = (
                ProcessUsage.add(each.get(stage, ())) for each in (self._client, self._workers)
            )
            found.append(
                {
                    "stage": stage,
                    "seconds": took,
                    "processor_seconds": round(client.seconds + workers.seconds, 3),
                    "client_memory": client.peak_bytes,
                    "worker_memory": workers.peak_bytes,
                    "read_bytes": client.read_bytes + workers.read_bytes,
                    "written_bytes": client.written_bytes + workers.written_bytes,
                }
            )
        return found
