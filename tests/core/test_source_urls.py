"""No secret of a source's address is shown."""

import pytest

from pmflib.core.texts import mask_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:hunter2@host:21/a", "ftp://***@host:21/a"),
        ("https://ghp_0123@host/a", "https://***@host/a"),
        ("simplecache::s3://id:hunter2@bucket/a", "simplecache::s3://***@bucket/a"),
        ("sftp://me:hun@ter2@host/a", "sftp://***@host/a"),
        ("sftp://me:hun/ter#2@host/a", "sftp://***@host/a"),
        ("https://h/a?sv=1&sig=hunter2&sp=r", "https://h/a?sv=1&sig=***&sp=r"),
        ("https://h/a?X-Goog-Credential=hunter2", "https://h/a?X-Goog-Credential=***"),
        ("https://h/a?API_KEY=hunter2#x", "https://h/a?API_KEY=***#x"),
        ("https://h/a#access_token=hunter2", "https://h/a#access_token=***"),
        ("https://h/a?p%61ss=hunter2", "https://h/a?p%61ss=***"),
        ("http://host:8080/a@b/c.csv?part=2", "http://host:8080/a@b/c.csv?part=2"),
        ("/data/me@host/a.csv", "/data/me@host/a.csv"),
        (
            "a 'ftp://u:hunter2@h/x' and b \"https://h/y?token=hunter2\"",
            "a 'ftp://***@h/x' and b \"https://h/y?token=***\"",
        ),
    ],
)
def test_mask_secrets(url, shown):
    assert mask_secrets(url) == shown
    assert mask_secrets(shown) == shown
    assert "hunter2" not in shown
