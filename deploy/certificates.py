"""Certificates of a Dask cluster: an authority of our own, and one certificate for scheduler, workers and clients each.

    python deploy/certificates.py make FOLDER        an authority, and certificates
    python deploy/certificates.py renew FOLDER       other certificates of the same authority
    python deploy/certificates.py replace FOLDER     another authority, beside the last one; restart all, then `renew`
    python deploy/certificates.py forget FOLDER      the last authority's certificates are no longer taken
    python deploy/certificates.py show FOLDER        how long each is valid

Dask checks that a certificate comes from the authority, and not which host shows it: the files can be the same on all
machines. `ca-key.pem` makes certificates, and belongs on none of them.
"""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROLES = ("scheduler", "worker", "client")
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 397
CLOCK_DIFFERENCE = timedelta(hours=1)
"""Certificates are valid this much earlier, for machines whose clock is behind."""


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def make_authority(folder: Path) -> None:
    """Draw a key and sign its certificate by itself; `ca.pem` holds this certificate and those that were there."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"pmf authority {datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
    certificate = (
        _start(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS, critical=True)
        .sign(key, hashes.SHA256())
    )
    before = (folder / "ca.pem").read_bytes() if (folder / "ca.pem").exists() else b""
    _write_key(folder / "ca-key.pem", key)
    _replace(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM) + before)


def make_certificates(folder: Path) -> None:
    """Draw a key for each role, and sign its certificate by the authority."""
    authority = x509.load_pem_x509_certificates((folder / "ca.pem").read_bytes())[0]
    signer = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _start(_name(f"pmf {role}"), authority.subject, key.public_key(), CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_identify(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        _write_key(folder / f"{role}-key.pem", key)
        _replace(folder / f"{role}.pem", certificate.public_bytes(serialization.Encoding.PEM))


def forget_authorities(folder: Path) -> None:
    """Keep the newest authority alone."""
    newest = x509.load_pem_x509_certificates((folder / "ca.pem").read_bytes())[0]
    _replace(folder / "ca.pem", newest.public_bytes(serialization.Encoding.PEM))


def describe(folder: Path) -> list[str]:
    """One line for each certificate: file, subject, last day."""
    found = []
    for name in ("ca", *ROLES):
        path = folder / f"{name}.pem"
        found += [
            f"{path.name}: {each.subject.rfc4514_string()}, until {each.not_valid_after_utc:%Y-%m-%d}"
            for each in x509.load_pem_x509_certificates(path.read_bytes())
        ]
    return found


def _identify(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _start(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_DIFFERENCE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    _replace(path, key.private_bytes(serialization.Encoding.PEM, form, plain), 0o600)


def _replace(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file as a whole: a process that starts meanwhile reads the old one or the new one."""
    # who could read the key before can read the next one, too
    mode = path.stat().st_mode & 0o777 if path.exists() else mode
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    if path.exists() and os.geteuid() == 0:
        os.chown(fresh, path.stat().st_uid, path.stat().st_gid)
    fresh.chmod(mode)
    fresh.replace(path)


def main() -> None:
    """Do what the arguments say, and show what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("make", "renew", "replace", "forget", "show"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    action, folder = arguments.action, arguments.folder
    there = (folder / "ca.pem").exists()
    if there == (action == "make"):
        parser.error(
            f"{folder} holds certificates already; `renew` or `replace` them"
            if there
            else f"{folder} holds no certificates; `make` them first"
        )
    if action == "make":
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if action in ("make", "replace"):
        make_authority(folder)
    if action in ("make", "renew"):
        make_certificates(folder)
    if action == "forget":
        forget_authorities(folder)
    print("\n".join(describe(folder)))


if __name__ == "__main__":
    main()
