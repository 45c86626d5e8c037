"""A Dask scheduler and workers that are processes of their own, talk by TLS, and are started again when killed."""

from __future__ import annotations

import datetime
import ipaddress
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pmflib.cluster import Client, connect_briefly
from tests.faults.fault_runs import ROOT

WATCH_SECONDS = 0.2


def write_certificates(folder: Path) -> dict[str, str]:
    """Write an authority, and a certificate of 127.0.0.1 that it has signed; give Dask's options as variables."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    authority = _sign("authority", authority_key, "authority", authority_key, is_authority=True)
    own = _sign("127.0.0.1", key, "authority", authority_key, is_authority=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(authority.public_bytes(pem))
    (folder / "cert.pem").write_bytes(own.public_bytes(pem))
    plain = serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").touch(0o600)
    (folder / "key.pem").write_bytes(text)
    prefix = "DASK_DISTRIBUTED__COMM__"
    variables = {
        f"{prefix}REQUIRE_ENCRYPTION": "True",
        f"{prefix}TLS__CA_FILE": str(folder / "ca.pem"),
    }
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        variables[f"{prefix}TLS__{role}__CERT"] = str(folder / "cert.pem")
        variables[f"{prefix}TLS__{role}__KEY"] = str(folder / "key.pem")
    return variables


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    def as_name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(as_name(name))
        .issuer_name(as_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


class TlsCluster:
    """A scheduler and workers, without nannies; a thread starts again whoever has ended, as an init system does.

    Parameters
    ----------
    folder
        Folder for their logs and scratch.
    environment
        Variables that they get, those of the certificates among them.
    n_workers
        Number of workers, of one thread each.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], n_workers: int = 2) -> None:
        self._folder = folder
        self._environment = dict(environment)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"tls://127.0.0.1:{self._port}"
        self._names = ["scheduler", *(f"worker{number}" for number in range(n_workers))]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._start_missing()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all of them."""
        self._over.set()
        self._thread.join()
        for process in self._processes.values():
            process.kill()
            process.wait()

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client that only looks, and says nothing when the scheduler goes."""
        from distributed.security import Security

        prefix = "DASK_DISTRIBUTED__COMM__TLS__"
        security = Security(
            require_encryption=True,
            tls_ca_file=self._environment[f"{prefix}CA_FILE"],
            tls_client_cert=self._environment[f"{prefix}CLIENT__CERT"],
            tls_client_key=self._environment[f"{prefix}CLIENT__KEY"],
        )
        with connect_briefly(self.address, 5, security) as client:
            yield client

    def kill_at_work(
        self, who: str, draws: random.Random, client: Client, is_over: Callable[[], bool]
    ) -> int:
        """Kill the scheduler, or a worker, at a moment when it has tasks.

        Parameters
        ----------
        who
            "scheduler" or "worker".
        draws
            Which worker, of those that have tasks.
        client
            Of `connect`.
        is_over
            Whether there is nothing to wait for any longer.

        Returns
        -------
        Number of tasks that were under way there; 0 if it had none until all was over, and was not killed.
        """
        while not is_over():
            busy = {at: set(tasks) for at, tasks in client.processing().items() if tasks}
            if who == "scheduler" and busy:
                self._signal(who, signal.SIGKILL)
                return sum(map(len, busy.values()))
            if busy:
                at = draws.choice(sorted(busy))
                name = client.scheduler_info(n_workers=-1)["workers"][at]["name"]
                # of a process that stands still, what the scheduler still waits for a moment later is under way
                self._signal(name, signal.SIGSTOP)
                time.sleep(0.05)
                under_way = busy[at] & set(client.processing()[at])
                self._signal(name, signal.SIGKILL if under_way else signal.SIGCONT)
                if under_way:
                    return len(under_way)
            time.sleep(0.002)
        return 0

    def _signal(self, name: str, number: signal.Signals) -> None:
        with self._lock:
            self._processes[name].send_signal(number)

    def wait(self) -> None:
        """Wait until the scheduler has all its workers."""
        deadline = time.monotonic() + 120
        while True:
            try:
                with self.connect() as client:
                    client.wait_for_workers(len(self._names) - 1, timeout=60)
                return
            except (OSError, TimeoutError):
                assert time.monotonic() < deadline, "the cluster does not come up"

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self._start_missing()

    def _start_missing(self) -> None:
        with self._lock:
            for name in self._names:
                process = self._processes.get(name)
                if process is None or process.poll() is not None:
                    self._processes[name] = self._start(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        common = ["--host", "127.0.0.1", "--no-dashboard"]
        if name == "scheduler":
            words = ["dask_scheduler", "--protocol", "tls", "--port", str(self._port), *common]
        else:
            scratch = self._folder / name
            scratch.mkdir(parents=True, exist_ok=True)
            words = [
                "dask_worker",
                self.address,
                "--protocol",
                "tls",
                "--nthreads",
                "1",
                "--no-nanny",
            ]
            words += [*common, "--name", name, "--local-directory", str(scratch)]
        own = {"HOME": str(self._folder / name), "PMF_MIRROR": str(self._folder / name / "caches")}
        (self._folder / name / "caches").mkdir(parents=True, exist_ok=True)
        with open(self._folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{words[0]}", *words[1:]],
                cwd=self._folder / name,
                env={**os.environ, **self._environment, **own, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )
