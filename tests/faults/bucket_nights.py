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
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmflib.config import load_config
from pmflib.store.artefacts import Store
from pmflib.store.erasures import list_erased
from pmflib.store.retention import is_needed, list_collected_runs
from pmflib.store.run_records import list_records
from pmflib.store.verification import verify_store
from tests.faults.fault_matrix import note_fault, write_matrix
from tests.faults.fault_runs import (
    Nursery,
    open_nursery,
    read_digests,
    wait_until,
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
MOST_SPOILT, MOST_SLOW = 0.5, 0.15
"""Largest share of the requests that are spoilt, and that are answered late."""
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
        When it happens, or begins: as a share of the requests of the night.
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
            "PMF_MIRROR": str(folder / "mirror"),
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
            answer = self._run(here)
            assert answer["code"] == 0, answer["err"]
            self.n_requests[night] = self.server.seen["requests"]
            self._check(here, night)

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

    def _run(self, here: Path, mirror: str = "mirror") -> dict[str, object]:
        return self.nursery.run(
            here,
            longest=LONGEST,
            PMF_DASK_ADDRESS=self.cluster.address,
            PMF_MIRROR=str(here / mirror),
        )

    def disturb(self, name: str, fault: Fault) -> tuple[int, int, str]:
        """Run a night under a fault, then again until it ends well, and compare what it gives.

        Returns
        -------
        Exit code of the disturbed run, number of runs in all, and what it said.
        """
        draws = random.Random(fault.seed)
        here = self._prepare(name, fault.night)
        self.cluster.wait()
        self.server.reset()
        n = 1 + int(fault.moment * self.n_requests[fault.night])
        self.server.call_at(n, lambda: self._strike(fault, here, draws))
        answer = self._run(here)
        assert answer["code"] != 1, answer["err"]
        code, said = int(str(answer["code"])), str(answer["err"])
        happened = dict(self.server.seen)
        n_runs = 1
        while answer["code"] != 0:
            assert answer["code"] != 1, answer["err"]
            assert n_runs < MOST_RUNS, answer["err"]
            # the next run is a later one: whoever was killed has been started again, and the server answers
            self.server.reset()
            self.cluster.wait()
            answer = self._run(here, f"mirror{n_runs}" if fault.moves else "mirror")
            n_runs += 1
        self.server.reset()
        self._check(here, fault.night)
        lines = [line for line in said.splitlines() if line.startswith(("error", "defect"))]
        return code, n_runs, " ".join(lines) or str(happened)

    def _strike(self, fault: Fault, here: Path, draws: random.Random) -> None:
        time.sleep(draws.random() * 0.3)
        if fault.kind == "kill client":
            with suppress(ProcessLookupError):
                os.kill(int((here / PID).read_text()), signal.SIGKILL)
        elif fault.kind.startswith("kill "):
            self.cluster.kill(fault.kind.removeprefix("kill "), draws)
        elif fault.kind == "object server down":
            self.server.is_down = True
            time.sleep(LONGEST_DOWN * fault.extent)
            self.server.is_down = False
        else:
            kinds = [kind for kind in KINDS if kind == fault.kind]
            most = MOST_SLOW if fault.kind == "slow answer" else MOST_SPOILT
            self.server.storm = Storm(tuple(kinds), most * (0.1 + 0.9 * fault.extent))

    def _check(self, here: Path, night: Night) -> None:
        """Check results, history and every byte of the store."""
        path = here / "pipeline.toml"
        assert read_digests(path) == self.digests[night]
        assert _count_promoted(path) == self.promoted[night]
        config = load_config(path)
        store = Store(config.resolve(config.store.path))
        found = verify_store(store, list_collected_runs(store), is_needed, list_erased(store))
        assert not found.damages, found.damages


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
        print(f"requests of an undisturbed night: {nights.n_requests}", flush=True)
        for number, fault in enumerate(draw_faults(words.faults, words.seed)):
            if number < words.first:
                continue
            started = time.monotonic()
            code, n_runs, said = nights.disturb(f"fault-{number}", fault)
            took = time.monotonic() - started
            print(
                f"{number + 1}: {fault.kind} at {fault.moment:.0%} of the {fault.night} night, extent "
                f"{fault.extent:.2f}: exit code {code}, {n_runs} runs, {took:.0f} s; {said.strip()[:200]}",
                flush=True,
            )
            note_fault(fault.kind, fault.night, "a bucket", code)
    print("\n".join(write_matrix()))


if __name__ == "__main__":
    main()
