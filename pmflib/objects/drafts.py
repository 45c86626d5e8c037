"""Names of drafts, which say whose they are: what a process that has ended left behind can be cleared away."""

from __future__ import annotations

import os
import re
import uuid

_DRAFT = re.compile(r".+-([0-9a-f]{32})-[0-9a-f]{8}")
_holder = uuid.uuid4().hex


def find_own_holder() -> str:
    """Random name of this process: process ids mean nothing in another container or host."""
    return _holder


def mark_draft(name: str) -> str:
    """Name of a draft, which holds the name of its process and a random part."""
    return f"{name}-{_holder}-{uuid.uuid4().hex[:8]}"


def find_holder(draft: str) -> str | None:
    """Name of the process whose draft has a name; None for what is no draft."""
    parts = _DRAFT.fullmatch(draft)
    return None if parts is None else parts[1]


def _renew() -> None:
    """Give a forked process a name of its own."""
    global _holder
    _holder = uuid.uuid4().hex


os.register_at_fork(after_in_child=_renew)
