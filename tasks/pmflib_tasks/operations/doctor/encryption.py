"""Encrypted connections: their certificates, how long these are valid, and what is open."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn
from pmflib_tasks.operations.doctor.processes import is_loopback

HANDSHAKE_SECONDS = 5.0
"""Longest wait for a server to show its certificate."""
SOON_DAYS = 30.0
"""Days before its end at which a certificate should be renewed."""


@dataclass(frozen=True)
class CertificateState:
    """A certificate.

    Parameters
    ----------
    whose
        "scheduler", "client" or "authority".
    days
        Days until it ends; below 0 where it has ended.
    error
        Why it could not be read; empty where it could.
    """

    whose: str
    days: float
    error: str = ""


def find_certificates(address: str, security: Any) -> tuple[CertificateState, ...]:
    """Read the certificates of an encrypted connection: the scheduler's own, the client's, and the authority's.

    Parameters
    ----------
    address
        Address of the scheduler; another than ``tls://host:port`` has none.
    security
        Dask's settings of the client, with files or their contents.
    """
    parts = urlsplit(address)
    if parts.scheme != "tls" or parts.hostname is None or parts.port is None:
        return ()
    found = []
    certificate, authority = (
        getattr(security, f"tls_{name}", None) for name in ("client_cert", "ca_file")
    )
    for whose, given in (("client", certificate), ("authority", authority)):
        if given:
            found.append(_read(whose, lambda given=given: _load(given)))
    found.insert(
        0,
        _read(
            "scheduler", lambda: _ask(parts.hostname or "", parts.port or 0, certificate, security)
        ),
    )
    return tuple(found)


def measure_days(pem: bytes, now: datetime) -> float:
    """Days until the first of some certificates ends.

    Parameters
    ----------
    pem
        One certificate or several, as PEM.
    now
        Time with a zone.
    """
    from cryptography import x509

    ends = min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem))
    return (ends - now).total_seconds() / 86400


def check_encryption(
    open_addresses: Sequence[str], certificates: Sequence[CertificateState], *, encrypted: bool
) -> list[HealthLine]:
    """Check that connections are encrypted where others could read them, and until when.

    Parameters
    ----------
    open_addresses
        Addresses of scheduler and workers that are neither encrypted nor of loopback.
    certificates
        Certificates of the connections.
    encrypted
        Whether the scheduler's connection is encrypted.
    """
    if open_addresses:
        return [
            warn(
                "encryption",
                f"none at {list_first(open_addresses)}: whoever reaches the port reads the data and runs code",
                "use tls:// with keys of your own, or a closed network",
            )
        ]
    if not encrypted:
        return [note("encryption", "none, and all connections are on loopback")]
    lines = []
    for each in certificates:
        if each.error:
            lines.append(
                warn(
                    "encryption",
                    f"certificate of {each.whose}: {each.error}",
                    "check the files that Dask's tls settings name",
                )
            )
        elif each.days < 0:
            lines.append(
                fail(
                    "encryption",
                    f"certificate of {each.whose} ended {-each.days:.0f} days ago",
                    "renew it, then restart scheduler and workers",
                    "infrastructure",
                )
            )
        elif each.days < SOON_DAYS:
            lines.append(
                warn(
                    "encryption",
                    f"certificate of {each.whose} ends in {each.days:.0f} days",
                    "renew it, then restart scheduler and workers",
                )
            )
    if lines:
        return lines
    until = (
        f", certificates for {min(each.days for each in certificates):.0f} days"
        if certificates
        else ""
    )
    return [note("encryption", f"TLS{until}")]


def is_open(address: str) -> bool:
    """Whether an address is neither encrypted nor of this machine alone."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    return parts.scheme in ("tcp", "ws") and not is_loopback(parts.hostname or "")


def _read(whose: str, load: Any) -> CertificateState:
    try:
        return CertificateState(whose, measure_days(load(), datetime.now(UTC)))
    except Exception as error:
        # files that are not there, no PEM, a handshake that fails
        return CertificateState(whose, 0.0, f"{type(error).__name__}: {error}")


def _load(given: str) -> bytes:
    # Dask takes the content itself where it has more than one line
    return given.encode() if "\n" in given else Path(given).read_bytes()


def _ask(host: str, port: int, certificate: Any, security: Any) -> bytes:
    """Certificate that a server shows, as PEM. It is not verified here: the client that Dask connects has done that."""
    context = security.get_connection_args("client").get("ssl_context")
    if context is None:
        context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        shown = wrapped.getpeercert(binary_form=True)
    if shown is None:
        raise ssl.SSLError("the server shows no certificate")
    return ssl.DER_cert_to_PEM_cert(shown).encode()
