"""What a bucket held when a run began: one listing in the place of a request for each name, and contents by their tag.

Who takes a listing holds a lease: nobody deletes what it names. What others write meanwhile is not in it, so that it
answers for what is there, and only for a moment for what is not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

LISTED_OBJECTS = 5_000
"""Most objects of a bucket that is listed: five requests. In a larger one, each name is asked for when it is needed."""
LACKING_SECONDS = 30.0
"""How long a listing answers for what it does not name, seconds: others write, too."""
KEPT_FOLDERS = ("manifest/", "runs/", "histories/", "fingerprints/")
"""Names whose content is kept: small objects that nobody replaces but knowingly."""


@dataclass
class Listing:
    """Objects of a bucket, as a run knows them.

    Parameters
    ----------
    tags
        Tag of each object, by name; what this process writes and deletes meanwhile is added and taken away.
    contents
        Content and tag of some objects, as somebody read or wrote them once.
    taken
        When the listing was made, by this process's clock, seconds.
    """

    tags: dict[str, str]
    contents: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    taken: float = field(default_factory=time.monotonic)
    _used: set[str] = field(default_factory=set)

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Content and tag of an object that has not changed since its content was kept; None of another."""
        found = self.contents.get(name)
        if found is None or found[1] != self.tags.get(name):
            return None
        self._used.add(name)
        return found

    def keep(self, name: str, content: bytes, tag: str) -> None:
        """Note what an object holds now."""
        self.tags[name] = tag
        if name.startswith(KEPT_FOLDERS):
            self.contents[name] = content, tag
            self._used.add(name)

    def note(self, name: str) -> None:
        """Note that there is an object, of which nothing else is known."""
        self.tags.setdefault(name, "")

    def forget(self, name: str) -> None:
        """Note that an object is gone, or will be another."""
        self.tags.pop(name, None)

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether there is nothing of a name, nor below it but one, for all that was known a moment ago."""
        if time.monotonic() - self.taken > LACKING_SECONDS:
            return False
        below = f"{name}/"
        return name not in self.tags and not any(
            each.startswith(below) and each != but for each in self.tags
        )

    def take_current(self) -> Mapping[str, tuple[bytes, str]]:
        """Contents that were asked for, and are those of the objects as they are now."""
        return {name: found for name in sorted(self._used) if (found := self.read(name))}
