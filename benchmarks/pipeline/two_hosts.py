"""A cluster of two hosts against one of the same size on one: the same digests, and what the network costs.

    python -m benchmarks.pipeline.two_hosts [--rows 2e6] [--rank 10] [--rounds 3]    # as root, on Linux

Two network namespaces joined by a virtual cable stand for the hosts: a scheduler, the client and two workers in the
first, two workers in the second, all connections encrypted (TLS, certificates drawn for the occasion, both sides
authenticated). The peer is a scheduler with four workers on loopback, without TLS. Both run the same log, drawn by
``benchmarks.pipeline.end_to_end``, into stores of their own, in turn; the seconds of the stages count and refine are
those of the records of the runs. The namespaces have addresses of their own, and no way out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.pipeline.batch_scoring import make_model
from benchmarks.pipeline.end_to_end import PIPELINE, write_files

ADDRESSES = ("10.77.31.1", "10.77.31.2")
"""Addresses of the two hosts, which nobody else sees."""
PORT = 8786
STAGES = ("count", "refine")


@dataclass(frozen=True)
class Layout:
    """Where the processes of a cluster run.

    Parameters
    ----------
    name
        For people.
    hosts
        Command that starts a process on each host, and the address that it listens at.
    workers
        Worker processes on each host.
    environment
        Variables of every process.
    """

    name: str
    hosts: Sequence[tuple[Sequence[str], str]]
    workers: int
    environment: Mapping[str, str]


def make_certificate(folder: Path) -> dict[str, str]:
    """Draw a key and a certificate that is its own authority; variables by which Dask encrypts everything with them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pmf")])
    began = datetime.now(UTC) - timedelta(minutes=5)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(each)) for each in ADDRESSES]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    keys, certificates = folder / "key.pem", folder / "certificate.pem"
    certificates.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    keys.touch(0o600)
    keys.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    prefix = "DASK_DISTRIBUTED__COMM__"
    found = {f"{prefix}REQUIRE_ENCRYPTION": "True", f"{prefix}TLS__CA_FILE": str(certificates)}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        found[f"{prefix}TLS__{role}__CERT"] = str(certificates)
        found[f"{prefix}TLS__{role}__KEY"] = str(keys)
    return found


@contextmanager
def join_namespaces() -> Iterator[list[str]]:
    """Make two network namespaces that are joined by a virtual cable; yields their names."""
    mark = uuid.uuid4().hex[:6]
    names = [f"pmf-{mark}-{side}" for side in "ab"]
    cables = [f"p{mark}{side}" for side in "ab"]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


@contextmanager
def start_cluster(layout: Layout, folder: Path) -> Iterator[str]:
    """Start a scheduler on the first host, and workers on all; yields the address of the scheduler."""
    environment = {**os.environ, **layout.environment}
    scheme = "tls" if layout.environment else "tcp"
    address = f"{scheme}://{layout.hosts[0][1]}:{PORT}"
    dask = [sys.executable, "-m", "dask"]
    started: list[subprocess.Popen[bytes]] = []

    def start(host: Sequence[str], *words: str) -> None:
        command = [*host, *dask, *words, "--dashboard-address", "127.0.0.1:0"]
        log = (folder / f"{uuid.uuid4().hex}.log").open("wb")
        started.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        )

    try:
        first = layout.hosts[0]
        start(first[0], "scheduler", "--protocol", scheme, "--host", first[1], "--port", str(PORT))
        for host, listens in layout.hosts:
            more = ("--nworkers", str(layout.workers), "--nthreads", "1")
            start(host, "worker", address, "--host", listens, "--no-dashboard", *more)
        time.sleep(8)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            process.wait(30)


def run(layout: Layout, config: Path, address: str) -> dict[str, Any]:
    """Run the pipeline by the workers of a cluster; the record of the run."""
    environment = {**os.environ, **layout.environment, "PMF_DASK_ADDRESS": address}
    pmf = [*layout.hosts[0][0], sys.executable, "-m", "pmflib_flows"]
    subprocess.run(
        [*pmf, "run", str(config)], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    found = subprocess.run(
        [*pmf, "history", str(config), "--json"], capture_output=True, text=True, check=True
    )
    record: dict[str, Any] = json.loads(found.stdout)["runs"][-1]
    return record


def main() -> None:
    """Run on both clusters in turn, compare digests, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    digests = set()
    with tempfile.TemporaryDirectory() as name, join_namespaces() as spaces:
        folder = Path(name)
        model = make_model(options.rank)
        write_files(folder / "rows", model, int(options.rows), options.files, samples=True)
        model.schema.save(folder / "schema.json")
        hosts = [
            (("ip", "netns", "exec", space), address)
            for space, address in zip(spaces, ADDRESSES, strict=True)
        ]
        layouts = [
            Layout("one host, four workers", [((), "127.0.0.1")], 4, {}),
            Layout("two hosts, two workers each, TLS", hosts, 2, make_certificate(folder)),
        ]
        for turn in range(options.rounds):
            for index, layout in enumerate(layouts):
                text = PIPELINE.format(sample='sample = "id"', rank=options.rank, workers=0)
                config = folder / f"pipeline-{turn}-{index}.toml"
                config.write_text(text.replace('"store"', f'"store-{turn}-{index}"'), "utf-8")
                with start_cluster(layout, folder) as address:
                    record = run(layout, config, address)
                digests.add(tuple(sorted((k, v["digest"]) for k, v in record["stages"].items())))
                spent = {each["stage"]: each["seconds"] for each in record["facts"]["timings"]}
                print(layout.name, {stage: spent[stage] for stage in STAGES}, flush=True)
                seconds.setdefault(layout.name, []).append(sum(spent[each] for each in STAGES))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    one, two = medians.values()
    print(f"{'identical digests' if len(digests) == 1 else f'DIGESTS DIFFER: {digests}'}")
    print(f"{medians}: two hosts work at {one / two:.2f} of the speed of one")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
