"""Health checks of a setup before a run: configuration, data, store, machine, Dask workers and Prefect server.

Each check is a function that returns one `HealthLine`. `examine` runs all checks at the same time, each in its own
thread and with a common time limit, so that a worker or a disk that hangs does not block the other checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from pathlib import Path

from pmflib.base.errors import ConfigError
from pmflib.cluster.clients import Client, connect_briefly
from pmflib.cluster.versions import SAME_EVERYWHERE
from pmflib.cluster.workers import find_scheduler
from pmflib_flows.doctor.columns import check_columns
from pmflib_flows.doctor.data_checks import (
    check_schema,
    check_sources,
    check_store,
    check_store_disk,
    check_temporary_folder,
)
from pmflib_flows.doctor.server_checks import (
    CONNECT_SECONDS,
    check_clocks,
    check_encryption,
    check_kernels,
    check_memory,
    check_prefect,
    check_versions,
    check_workers,
    report_scheduler,
)
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.features import list_offers
from pmflib_tasks.health import Check, HealthLine

SECONDS = 120.0
"""Time limit for all checks together, seconds."""


def examine(config_file: Path, address: str) -> list[HealthLine]:
    """Examine a pipeline and everything that a run of it needs. Nothing is changed.

    Parameters
    ----------
    config_file
        Configuration of the pipeline, ``pipeline.toml``.
    address
        Address of the Dask scheduler; empty for the one that a run would use.

    Returns
    -------
    One line per check, in a fixed order.

    Raises
    ------
    ConfigError
        If the scheduler's address has no valid port.
    """
    try:
        config = load_config(config_file)
    except ConfigError as error:
        said = "; ".join(str(error).splitlines())
        line = HealthLine("FAIL", "configuration", said, "correct it", "configuration")
        return [line, check_versions(None)]
    fitted = "a stack" if config.is_stack else f"rank {config.model.rank}"
    read = f"{config_file}: pipeline {config.name!r}, {fitted}"
    address = address or find_scheduler(config.cluster)
    with ExitStack() as stack:
        client, unanswered = None, []
        if address:
            try:
                client = stack.enter_context(connect_briefly(address, CONNECT_SECONDS))
            except Exception as error:
                # a closed port, keys that do not fit, another protocol or version
                unanswered = [report_scheduler(address, error)]
        lines = run_checks(list_checks(config, client, has_memory=not unanswered))
    return [HealthLine("ok", "configuration", read), *lines, *unanswered]


def list_checks(config: PipelineConfig, client: Client, *, has_memory: bool) -> list[Check]:
    """List the checks of a pipeline, with those of features: see `Feature.health`.

    Parameters
    ----------
    config
        Configuration of the pipeline.
    client
        Dask client; None without a scheduler.
    has_memory
        Whether it is known which processes would do the work, so that their memory can be checked.
    """
    checks = [
        Check(
            "schema",
            "source",
            "draft one with `pmf infer`, or correct schema.file",
            partial(check_schema, config),
        ),
        Check(
            "sources",
            "source",
            "correct source.path, or put the files there; every worker needs the same path and credentials",
            partial(check_sources, config, client),
        ),
        Check(
            "store",
            "store",
            "correct permissions or credentials, or set store.path to another location",
            partial(check_store, config, client),
        ),
        Check(
            "columns",
            "source",
            "correct the files, or source and schema: `pmf check` reads all rows",
            partial(check_columns, config),
        ),
        Check("store disk", "store", "correct its permissions", partial(check_store_disk, config)),
        Check("temporary files", "configuration", "set TMPDIR", check_temporary_folder),
        Check("versions", "infrastructure", SAME_EVERYWHERE, partial(check_versions, client)),
        Check("kernels", "infrastructure", SAME_EVERYWHERE, partial(check_kernels, client)),
        Check("Prefect", "infrastructure", "see its log", check_prefect),
    ]
    checks += [each for health in list_offers("health") for each in health(config)]
    if has_memory:
        memory = partial(check_memory, config, client)
        remedy = "more memory (cluster.memory_limit, dask worker --memory-limit) or fewer threads"
        checks.append(Check("memory", "memory", remedy, memory))
    if client is not None:
        remedy = "see the log of the scheduler and of its workers"
        checks += [
            Check("workers", "infrastructure", remedy, partial(check_workers, client)),
            Check("clocks", "infrastructure", remedy, partial(check_clocks, client)),
            Check("encryption", "infrastructure", remedy, partial(check_encryption, client)),
        ]
    return checks


def run_checks(checks: Sequence[Check], seconds: float = SECONDS) -> list[HealthLine]:
    """Run checks at the same time.

    Parameters
    ----------
    checks
        The checks.
    seconds
        Time limit for all of them together, above 0. A check that is still running then fails.

    Returns
    -------
    One line per check, in the same order.
    """
    found: dict[str, HealthLine] = {}

    def run(check: Check) -> None:
        try:
            found[check.what] = check.function()
        except Exception as error:
            found[check.what] = check.fail(error)

    threads = []
    for check in checks:
        # a daemon, so that a check that never returns does not keep the process alive
        thread = threading.Thread(target=copy_context().run, args=(run, check), daemon=True)
        thread.start()
        threads.append(thread)
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = TimeoutError(f"no answer within {seconds:g} s: a worker, a server or a disk hangs")
    return [found.get(check.what) or check.fail(late) for check in checks]
