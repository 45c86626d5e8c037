"""The embedded Prefect server: the child process that `flows.server.embedded` starts, and its database."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import uvicorn
    from prefect.server.database.configurations import AioSqliteConfiguration
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

GRACE_SECONDS = 4.0
"""Time for the server to end after its parent, seconds; then its process exits."""


def main() -> None:
    """Serve the API from the home named last on the command line, until standard input closes.

    The port is named before it: that of a server which ended and is replaced, or 0 for any.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Standard output carries the port to the parent; whatever else is printed goes to the log.
    report = os.dup(1)
    os.dup2(2, 1)
    # Collecting garbage among modules that live until the end would take half a second.
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.server.database.dependencies import temporary_database_config

    build_database(Path(sys.argv[-1]) / "prefect.db")
    app = create_app(ephemeral=True, final=True)
    gc.freeze()
    gc.enable()
    # Named TCP, or asyncio leaves the delay of small packets on: 40 ms for each answer.
    with (
        temporary_database_config(_lock_first()),
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener,
    ):
        # of a server that was killed, connections may linger
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(sys.argv[-2])))
        config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
        asyncio.run(_serve(uvicorn.Server(config), listener, report))


def _lock_first() -> "AioSqliteConfiguration":
    """Return a configuration in which each transaction locks the SQLite file when it starts.

    Notes
    -----
    Prefect's own locks it at the first write. If another transaction has written in between, be it
    by this server or by a second one, SQLite refuses at once instead of waiting. The
    client must then try again, each time after two seconds or more.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.settings import get_current_settings

    class LockFirst(AioSqliteConfiguration):
        @contextlib.asynccontextmanager
        async def begin_transaction(
            self, session: "AsyncSession", with_for_update: bool = False
        ) -> "AsyncGenerator[AsyncSessionTransaction, None]":
            async with super().begin_transaction(session, with_for_update=True) as transaction:
                yield transaction

    url = get_current_settings().server.database.connection_url
    assert url is not None
    return LockFirst(url.get_secret_value())


async def _serve(server: "uvicorn.Server", listener: socket.socket, report: int) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not (server.started or serving.done()):
        await asyncio.sleep(0.01)
    if server.started:
        # The parent may be gone already; the server then ends by the other thread.
        with contextlib.suppress(BrokenPipeError):
            os.write(report, f"{listener.getsockname()[1]}\n".encode())
    await serving


def _end_with_parent() -> None:
    """End this process once the parent has closed its end of standard input, be it by dying."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def build_database(path: Path) -> None:
    """Create the server's SQLite file with Prefect's own migrations, if there is none.

    Notes
    -----
    Prefect would do so itself when its server starts, statement by statement through an
    asynchronous driver, which takes two to three times as long. It still checks for pending
    migrations at every start, so that a file made here, or by an earlier version, is brought up to
    date if need be. The file appears whole or not at all, and the first of several processes wins.
    """
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _migrate(draft)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    except Exception:
        # Prefect's own way remains: this one only saves time.
        traceback.print_exc()
    finally:
        draft.unlink(missing_ok=True)


def _migrate(path: Path) -> None:
    import sqlalchemy
    from alembic.runtime.environment import EnvironmentContext
    from alembic.runtime.migration import MigrationContext, MigrationStep
    from alembic.script import ScriptDirectory
    from prefect.server.database import provide_database_interface
    from prefect.server.database.alembic_commands import alembic_config

    database = provide_database_interface()
    config = alembic_config()
    script = ScriptDirectory.from_config(config)
    script.version_locations = [str(database.orm.versions_dir)]

    def steps(revision: str | None, _: MigrationContext) -> list[MigrationStep]:
        scripts = list(script.iterate_revisions("head", revision, implicit_base=True))
        return [
            MigrationStep.upgrade_from_script(script.revision_map, s) for s in reversed(scripts)
        ]

    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Skipped unsupported reflection of expression-based index"
        )
        # Foreign keys are off while tables are rebuilt, as in Prefect; the rest is for speed.
        for pragma in (
            "foreign_keys=OFF",
            "legacy_alter_table=OFF",
            "synchronous=OFF",
            "journal_mode=MEMORY",
        ):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        connection.commit()
        with EnvironmentContext(config, script, fn=steps) as environment:
            environment.configure(
                connection=connection,
                target_metadata=database.Base.metadata,
                render_as_batch=True,
                transaction_per_migration=True,
                template_args={"dialect": "sqlite"},
            )
            with environment.begin_transaction():
                environment.run_migrations()
        connection.commit()
    engine.dispose()
