"""Certificates of the cluster: those of one authority are taken, those of another are not."""

import ssl
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLES = ("scheduler", "worker", "client")


def call(action: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "deploy" / "certificates.py"), action, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def make(folder: Path, *actions: str) -> Path:
    for action in ("make", *actions):
        done = call(action, folder)
        assert done.returncode == 0, done.stderr
    return folder


def connect(folder: Path, role: str, other: Path, other_role: str) -> None:
    """Connect in memory: each side shows its certificate, and checks the other's as Dask does."""
    sides = []
    for certificates, name, purpose in (
        (folder, role, ssl.Purpose.CLIENT_AUTH),
        (other, other_role, ssl.Purpose.SERVER_AUTH),
    ):
        context = ssl.create_default_context(purpose, cafile=certificates / "ca.pem")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        # of Python 3.13
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}-key.pem")
        sides.append(context)
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = sides[0].wrap_bio(one, two, server_side=True)
    client = sides[1].wrap_bio(two, one)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert (client.version(), server.version()) == ("TLSv1.3", "TLSv1.3")
    assert client.getpeercert()
    assert server.getpeercert()


def test_make__every_pair_connects(tmp_path):
    folder = make(tmp_path / "tls")
    for role, other in product(ROLES, ROLES):
        connect(folder, role, folder, other)


def test_make__another_authority_is_refused(tmp_path):
    ours, theirs = make(tmp_path / "ours"), make(tmp_path / "theirs")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(ours, "scheduler", theirs, "client")


def test_make__keys_are_private(tmp_path):
    folder = make(tmp_path / "tls")
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert set(modes) == {f"{name}{end}.pem" for name in ("ca", *ROLES) for end in ("", "-key")}
    assert {mode for name, mode in modes.items() if name.endswith("-key.pem")} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_replace__certificates_of_both_authorities_connect_until_the_last_is_forgotten(tmp_path):
    folder = make(tmp_path / "tls")
    before = tmp_path / "before"
    before.mkdir()
    make(folder.parent / "unused")
    assert call("replace", folder).returncode == 0
    for path in folder.iterdir():
        (before / path.name).write_bytes(path.read_bytes())
    assert call("renew", folder).returncode == 0
    # one that has restarted, and one that has not
    connect(folder, "scheduler", before, "worker")
    connect(before, "scheduler", folder, "worker")
    assert call("forget", folder).returncode == 0
    connect(folder, "scheduler", folder, "worker")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(folder, "scheduler", before, "worker")


@pytest.mark.parametrize(("actions", "said"), [((), "`make`"), (("make",), "`renew`")])
def test_main__what_does_not_fit_is_refused(tmp_path, actions, said):
    folder = make(tmp_path / "tls") if actions else tmp_path
    done = call("make" if actions else "renew", folder)
    assert done.returncode == 2
    assert said in done.stderr
