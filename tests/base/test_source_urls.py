"""No secret of a source's address is shown."""

import pytest

from pmflib.base import mask_secrets


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
        ("https://h/a?API_KEY=hunter2#x", "https://h/a?API_KEY=***#***"),
        ("https://h/a?code=hunter2&page=2", "https://h/a?code=***&page=2"),
        ("https://h/a?bearer=hunter2&p=hunter2", "https://h/a?bearer=***&p=***"),
        ("https://h/a?hunter2", "https://h/a?***"),
        ("https://h/a?date=2026-11-03&hunter2&v=2", "https://h/a?date=2026-11-03&***&v=2"),
        ("https://h/d/ghp_8f7Ahunter2a6b5Q/a.csv", "https://h/d/ghp_***/a.csv"),
        ("https://h/night_2026_11_03_ratings.csv", "https://h/night_2026_11_03_ratings.csv"),
        ("http://host:3128/user:hunter2@h/a", "http://host:3128/***@h/a"),
        ("host:8786/user:hunter2@h", "host:8786/***@h"),
        ("user:hunter2@h/a.csv", "***@h/a.csv"),
        ("postgresql+asyncpg://me:hunter2@db:5432/p", "postgresql+asyncpg://***@db:5432/p"),
        ("day.csv?signed=hunter2&part=1", "day.csv?signed=***&part=1"),
        ("s3://bucket/night-0?.csv", "s3://bucket/night-0?.csv"),
        ("s3://bucket/3f2b1c9e8a7b4c119f2e/a.csv", "s3://bucket/3f2b1c9e8a7b4c119f2e/a.csv"),
        ("tls://10.0.0.1:8786", "tls://10.0.0.1:8786"),
        ("at 12:30, as a: b@c says", "at 12:30, as a: b@c says"),
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
