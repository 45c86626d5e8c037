"""Nights of a pipeline whose store is in a bucket and whose workers talk by TLS, under faults that are drawn.

``python -m tests.faults.bucket_nights --faults 40`` prints what was done to each run, how it ended, and how many more
runs it took to end with the results of an undisturbed run on this machine.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmflib.cluster import Client
from pmflib.store import (
    Store,
    is_needed,
    list_collected_runs,
    list_erased,
    list_records,
    verify_store,
)
from pmflib_tasks.config import load_config
from tests.faults.fault_matrix import note_fault, write_matrix
from tests.faults.fault_runs import (
    Nursery,
    open_nursery,
    read_digests,
    wait_until,
    watching,
    write_config,
    write_log,
)
from tests.faults.faulty_server import KINDS, FaultyServer, Storm
from tests.faults.nursery import PID
from tests.faults.tls_cluster import TlsCluster, write_certificates

Night = Literal["first", "second"]
NIGHTS: tuple[Night, ...] = ("first", "second")
BUCKET = "nights"
MOST_RUNS = 6
"""Runs until one ends well, at most."""
SPOILT, SLOW = (0.15, 0.5), (0.05, 0.15)
"""Smallest and largest share of the requests that are spoilt, and that are answered late."""
MOST_CREATES = 4
"""How many answers to creates are lost at most, one after the other. A night has few of them, so that all are lost
until then."""
LATEST = 0.95
"""Latest moment of a fault."""
LATEST_STORM = 0.6
"""Latest moment at which a storm begins, which several requests have to follow."""
LONGEST = 600.0
"""Time of a run, seconds; one that takes longer hangs."""
LONGEST_DOWN = 25.0
"""Longest time for which the object server is gone, seconds: longer than requests are tried again."""
OTHERS = ("kill client", "kill worker", "kill scheduler", "object server down")
"""Faults that happen once; the others happen to a share of the requests."""


@dataclass(frozen=True)
class Fault:
    """One fault, as it was drawn.

    Parameters
    ----------
    kind
        One of ``OTHERS``, or of the faults that a `FaultyServer` knows.
    night
        The night that it disturbs.
    moment
        When it happens, or begins: as a share of the requests of the night, or of those during which the cluster works.
    extent
        From 0 to 1: of seconds for which the server is gone, or of requests.
    moves
        Whether the next run is made by a machine that has seen nothing of the store.
    seed
        Of what else is drawn.
    """

    kind: str
    night: Night
    moment: float
    extent: float
    moves: bool
    seed: int


def draw_faults(n: int, seed: int) -> list[Fault]:
    """Draw faults: each kind about as often, kills and a lost server twice as often."""
    draws = random.Random(seed)
    kinds = [*OTHERS, *OTHERS, *KINDS]
    chosen = [kinds[i % len(kinds)] for i in range(n)]
    draws.shuffle(chosen)
    return [
        Fault(
            kind,
            draws.choice(NIGHTS),
            draws.random(),
            draws.random(),
            draws.random() < 0.5,
            draws.randrange(1 << 30),
        )
        for kind in chosen
    ]


@dataclass(frozen=True)
class Outcome:
    """How a run under a fault ended.

    Parameters
    ----------
    code
        Exit code of the disturbed run.
    n_runs
        Number of runs until one ended well.
    n_hit
        What was hit: tasks that were under way, requests, or one run.
    said
        Errors of the disturbed run.
    """

    code: int
    n_runs: int
    n_hit: int
    said: str


class BucketNights:
    """Two nights on a bucket and a cluster, and what they give where nothing goes wrong and all is local.

    Parameters
    ----------
    folder
        Folder for everything.
    seed
        Seed of the faults of requests.
    stack
        What is started ends with it.
    """

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.folder = folder
        self._port = _find_port()
        self._serve_objects(stack)
        self.server = FaultyServer(self._port, seed)
        stack.callback(self.server.close)
        self.variables = {
            "AWS_ACCESS_KEY_ID": "nights",
            "AWS_SECRET_ACCESS_KEY": "not-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}",
            "AWS_ALLOW_HTTP": "true",
            "PMF_MIRROR": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        stack.enter_context(_set_variables(self.variables))
        from obstore.store import S3Store

        self._objects = S3Store(BUCKET)
        self._make_bucket()
        tls = write_certificates(folder / "tls")
        self.cluster = TlsCluster(folder / "dask", {**self.variables, **tls})
        stack.callback(self.cluster.close)
        home = folder / "home"
        home.mkdir()
        self.nursery: Nursery = stack.enter_context(
            open_nursery(home, **self.variables, **tls, PMF_DASK_ADDRESS="")
        )
        self.cluster.wait()
        self.folders: dict[Night, Path] = {}
        self.digests: dict[Night, dict[str, str]] = {}
        self.promoted: dict[Night, int] = {}
        self.n_requests: dict[Night, int] = {}
        self.n_creates: dict[Night, int] = {}
        self.busy: dict[Night, list[int]] = {}
        """Numbers of the requests that came while the cluster had tasks."""
        self._run_undisturbed()

    def _serve_objects(self, stack: ExitStack) -> None:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        log = stack.enter_context(open(self.folder / "objects.log", "wb"))
        process = subprocess.Popen(words, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.kill)

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return True
            return False

        wait_until(answers)

    def _make_bucket(self) -> None:
        import http.client

        server = http.client.HTTPConnection("127.0.0.1", self._port)
        server.request("PUT", f"/{BUCKET}")
        assert server.getresponse().status == 200

    def _run_undisturbed(self) -> None:
        """Both nights with a store on this machine and no cluster; then in the bucket, which has to give the same."""
        work = self.folder / "work"
        write_log(work, n_users=150, per_user=5, n_movies=8)
        parts = sorted((work / "log").iterdir())
        late = self.folder / "late"
        late.mkdir()
        parts[3].rename(late / parts[3].name)
        for part in parts[4:]:
            part.unlink()
        write_config(work, work, passes=3)
        text = (work / "pipeline.toml").read_text().replace(str(work) + "/", "")
        (work / "pipeline.toml").write_text(text.replace("buckets = 32", "buckets = 4\nfolds = 4"))
        for night in NIGHTS:
            if night == "second":
                shutil.copytree(late, work / "log", dirs_exist_ok=True)
            self.folders[night] = self.folder / f"raw-{night}"
            shutil.copytree(work, self.folders[night], ignore=shutil.ignore_patterns("store"))
            answer = self.nursery.run(work)
            assert answer["code"] == 0, answer["err"]
            self.digests[night] = read_digests(work / "pipeline.toml")
            self.promoted[night] = _count_promoted(work / "pipeline.toml")
        for night in NIGHTS:
            # counts the requests of each night, and leaves the store as it is before the second
            here = self._prepare(f"undisturbed-{night}", night)
            self.server.reset()
            with (
                self.cluster.connect() as client,
                watching(lambda: self._find_busy(client)) as seen,
            ):
                answer = self._run(here)
            assert answer["code"] == 0, answer["err"]
            assert seen
            assert self.server.seen["creates"]
            self.busy[night] = seen
            self.n_creates[night] = self.server.seen["creates"]
            self.n_requests[night] = self.server.seen["requests"]
            self._check(here, night)

    def _find_busy(self, client: Client) -> int:
        """Number of the last request if the cluster has tasks, else 0."""
        n = self.server.seen["requests"]
        return n if any(client.processing().values()) else 0

    def _prepare(self, name: str, night: Night) -> Path:
        """Folder of a pipeline before a night, its store in the bucket under a name of its own."""
        here = self.folder / name
        shutil.copytree(self.folders[night], here)
        path = here / "pipeline.toml"
        path.write_text(
            path.read_text().replace('path = "store"', f'path = "s3://{BUCKET}/{name}"')
        )
        if night == "second":
            for chunk in self._objects.list("undisturbed-first"):
                for facts in chunk:
                    content = bytes(self._objects.get(facts["path"]).bytes())
                    self._objects.put(f"{name}/{facts['path'].partition('/')[2]}", content)
        return here

    def _run(self, here: Path, cache: str = "cache") -> dict[str, object]:
        return self.nursery.run(
            here,
            longest=LONGEST,
            PMF_DASK_ADDRESS=self.cluster.address,
            PMF_MIRROR=str(here / cache),
        )

    def disturb(self, name: str, fault: Fault) -> Outcome:
        """Run a night under a fault, then again until it ends well, and compare what it gives."""
        here = self._prepare(name, fault.night)
        self.cluster.wait()
        self.server.reset()
        with Strike(self, fault, here) as strike:
            answer = self._run(here)
        n_hit = strike.n_hit or self.server.seen[fault.kind]
        first = answer
        n_runs = 1
        while True:
            assert answer["code"] != 1, answer["err"]
            assert "Traceback" not in str(answer["err"]), answer["err"]
            if answer["code"] == 0:
                break
            assert n_runs < MOST_RUNS, answer["err"]
            # the next run is a later one: whoever was killed has been started again, and the server answers
            self.server.reset()
            self.cluster.wait()
            answer = self._run(here, f"cache{n_runs}" if fault.moves else "cache")
            n_runs += 1
        self.server.reset()
        self._check(here, fault.night)
        assert n_hit, f"{fault.kind}: it did not happen"
        lines = [
            line for line in str(first["err"]).splitlines() if line.startswith(("error", "defect"))
        ]
        return Outcome(int(str(first["code"])), n_runs, n_hit, " ".join(lines))

    def _check(self, here: Path, night: Night) -> None:
        """Check results, history and every byte of the store."""
        path = here / "pipeline.toml"
        assert read_digests(path) == self.digests[night]
        assert _count_promoted(path) == self.promoted[night]
        config = load_config(path)
        store = Store(config.resolve(config.store.path))
        found = verify_store(store, list_collected_runs(store), is_needed, list_erased(store))
        assert not found.damages, found.damages


class Strike:
    """A fault that waits for its moment while the context lasts.

    Parameters
    ----------
    nights
        What it disturbs.
    fault
        The fault.
    here
        Folder of the run.

    Attributes
    ----------
    n_hit
        Tasks that were under way where somebody was killed; 1 for the run itself; 0 if it has not happened, and of
        faults of requests, which the server counts.
    """

    def __init__(self, nights: BucketNights, fault: Fault, here: Path) -> None:
        self._nights, self._fault, self._here = nights, fault, here
        self._draws = random.Random(fault.seed)
        self._stack = ExitStack()
        self._begun, self._over, self._ended = (threading.Event() for _ in range(3))
        self.n_hit = 0

    def __enter__(self) -> Strike:
        if self._fault.kind in ("kill worker", "kill scheduler"):
            self._client = self._stack.enter_context(self._nights.cluster.connect())
        self._nights.server.call_at(self._find_request(), self._strike)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._begun.is_set():
            self._ended.wait()
        self._stack.close()

    def _find_request(self) -> int:
        """Number of the request at which it happens, or begins."""
        kind, night, moment = self._fault.kind, self._fault.night, self._fault.moment
        n = self._nights.n_requests[night]
        if kind == "lost create":
            # a night may have one alone, whose position in it is not known
            return 1
        if kind in ("kill worker", "kill scheduler"):
            busy = self._nights.busy[night]
            return busy[int(moment * len(busy))]
        return 1 + int(moment * n * (LATEST_STORM if kind in KINDS else LATEST))

    def _strike(self) -> None:
        self._begun.set()
        try:
            self._do()
        finally:
            self._ended.set()

    def _do(self) -> None:
        kind, server = self._fault.kind, self._nights.server
        if kind == "kill client":
            with suppress(ProcessLookupError):
                os.kill(int((self._here / PID).read_text()), signal.SIGKILL)
                self.n_hit = 1
        elif kind.startswith("kill "):
            who = kind.removeprefix("kill ")
            self.n_hit = self._nights.cluster.kill_at_work(
                who, self._draws, self._client, self._over.is_set
            )
        elif kind == "object server down":
            server.is_down = True
            self._over.wait(LONGEST_DOWN * self._fault.extent)
            while not server.seen[kind] and not self._over.wait(0.01):
                pass
            server.is_down = False
        else:
            extent = self._fault.extent
            kinds = tuple(each for each in KINDS if each == kind)
            if kind == "lost create":
                server.storm = Storm(kinds, 1.0, most=1 + int(extent * MOST_CREATES))
                return
            least, most = SLOW if kind == "slow answer" else SPOILT
            server.storm = Storm(kinds, least + (most - least) * extent)


def _count_promoted(path: Path) -> int:
    config = load_config(path)
    records = list_records(Store(config.resolve(config.store.path)), config.name)
    return sum(record.outcome == "promoted" for record in records)


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def _set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def main() -> None:
    """Draw faults, and print how each run ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="Fault to begin with.")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        nights = BucketNights(Path(folder), words.seed, stack)
        print(
            f"requests of an undisturbed night: {nights.n_requests}, creates among them: {nights.n_creates}",
            flush=True,
        )
        failed = []
        for number, fault in enumerate(draw_faults(words.faults, words.seed)):
            if number < words.first:
                continue
            started = time.monotonic()
            print(
                f"{number}: {fault.kind}, {fault.night} night, moment {fault.moment:.2f}, extent {fault.extent:.2f}: ",
                end="",
            )
            try:
                found = nights.disturb(f"fault-{number}", fault)
            except AssertionError as error:
                failed.append(number)
                print(f"FAILED: {error}", flush=True)
                continue
            took = time.monotonic() - started
            print(
                f"{found.n_hit} hit, exit code {found.code}, {found.n_runs} runs, {took:.0f} s; {found.said[:200]}",
                flush=True,
            )
            note_fault(fault.kind, fault.night, "a bucket", found.code)
    print("\n".join(write_matrix()))
    if failed:
        sys.exit(f"failed: {failed}")


if __name__ == "__main__":
    main()
