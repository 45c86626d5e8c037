"""Pin the images of others by digest, or renew the digests: python deploy/pin_images.py, then commit what has changed.

A tag may come to mean another image; a digest may not. For each image that is not built here, the registry is asked
which digest its tag has now, by skopeo or Docker's buildx, and that is written after the tag: ``name:tag@sha256:...``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parent
FILES = (
    "compose/Dockerfile",
    "compose/compose.yaml",
    *(f"kubernetes/{name}.yaml" for name in ("database", "prefect-worker")),
)
"""Files that name images of others."""
IMAGE = re.compile(
    r"(?P<before>^\s*image: (?=\S*:)|^ARG PYTHON=)(?P<tag>[\w./-]+(?::[\w.-]+)?)(?P<digest>@sha256:[0-9a-f]{64})?$",
    re.MULTILINE,
)
"""An image with its tag and digest; the Dockerfile gives the tag of Python's image alone."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def name_image(found: re.Match[str]) -> str:
    """Name and tag of an image, as a registry knows it."""
    return f"python:{found['tag']}" if "ARG" in found["before"] else found["tag"]


def ask_registry(image: str) -> str:
    """Digest that a tag has now."""
    if shutil.which("skopeo"):
        command = ["skopeo", "inspect", "--format", "{{.Digest}}", f"docker://docker.io/{image}"]
    else:
        form = "{{.Manifest.Digest}}"
        command = ["docker", "buildx", "imagetools", "inspect", "--format", form, image]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except FileNotFoundError:
        sys.exit("neither skopeo nor docker is installed: install one, and run this again")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{image}: the registry gives no digest ({error.stderr.strip()[-300:]})")
    if not DIGEST.fullmatch(said):
        sys.exit(f"{image}: {said[:100]!r} is no digest")
    return said


def main() -> None:
    """Write the digests, all or none."""
    texts = {name: (DEPLOY / name).read_text("utf-8") for name in FILES}
    images = {name_image(found) for text in texts.values() for found in IMAGE.finditer(text)}
    digests = {image: ask_registry(image) for image in sorted(images)}
    for name, text in texts.items():
        pinned = IMAGE.sub(
            lambda found: f"{found['before']}{found['tag']}@{digests[name_image(found)]}", text
        )
        if pinned != text:
            (DEPLOY / name).write_text(pinned, "utf-8")
    for image, digest in digests.items():
        sys.stdout.write(f"{image}@{digest}\n")


if __name__ == "__main__":
    main()
