"""Addresses of raw files as they may be shown: without the passwords and tokens that they may hold."""

from __future__ import annotations

import re

MASK = "***"
"""What stands in place of a secret."""

_AUTHORITY = re.compile(
    # what is before the last "@" of the authority; and a password with a "/", "?" or "#" that should be encoded
    r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@]*:(?!\d*(?:[/?#\s]|$))[^\s@]*@)"
)
_PARAMETER = re.compile(
    r"([?&;#]"
    r"[\w.%-]*(?:pass|pwd|secret|token|key|sig|sas|auth|cred|jwt|session|policy|%)[\w.%-]*=)"
    r"[^\s&;#'\"]+",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Replace what may be a secret in the URLs of a text: user information, and parameters named as secrets are.

    Everything that is shown, logged or kept goes through here where it may name a source: messages, records, events.

    Parameters
    ----------
    text
        One URL or path, or a message with any number of them.

    Examples
    --------
    >>> mask_secrets("https://me:hunter2@host/a.csv?part=1&X-Amz-Signature=ab12")
    'https://***@host/a.csv?part=1&X-Amz-Signature=***'
    >>> mask_secrets("source.path 's3://bucket/a.csv' matches no file")
    "source.path 's3://bucket/a.csv' matches no file"
    """
    return _PARAMETER.sub(rf"\g<1>{MASK}", _AUTHORITY.sub(f"{MASK}@", text))
