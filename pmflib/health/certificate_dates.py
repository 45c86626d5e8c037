"""Certificates of encrypted connections, and how long they are valid."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HANDSHAKE_SECONDS = 5.0
"""Longest wait for a server to show its certificate."""


@dataclass(frozen=True)
class CertificateFacts:
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


def find_certificates(address: str, security: Any) -> tuple[CertificateFacts, ...]:
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


def _read(whose: str, load: Any) -> CertificateFacts:
    try:
        return CertificateFacts(whose, measure_days(load(), datetime.now(UTC)))
    except Exception as error:
        # files that are not there, no PEM, a handshake that fails
        return CertificateFacts(whose, 0.0, f"{type(error).__name__}: {error}")


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
