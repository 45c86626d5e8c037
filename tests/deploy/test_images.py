"""Images of others: each has a tag, may have a digest, and a program renews the digests."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
FORM = re.compile(r"[a-z0-9./-]+:[\w.-]*\d[\w.-]*(@sha256:[0-9a-f]{64})?")


def list_images(folder):
    """Images that are not built here, by the file that names them; that of Python is in the Dockerfile."""
    found = {}
    for path in sorted(folder.rglob("*.yaml")):
        for image in re.findall(r"^\s*image: (\S+)$", path.read_text("utf-8"), re.M):
            if image != "pmf":
                found.setdefault(path.relative_to(folder).as_posix(), []).append(image)
    tag = re.search(r"^ARG PYTHON=(\S+)$", (folder / "compose/Dockerfile").read_text("utf-8"), re.M)
    assert tag is not None
    return {**found, "compose/Dockerfile": [f"python:{tag[1]}"]}


def pin(folder, path):
    return subprocess.run(
        [sys.executable, folder / "pin_images.py"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def folder(tmp_path):
    """A copy of what is deployed, and a folder of programs with a skopeo that knows a digest for each image."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "skopeo").write_text(
        "#!/bin/sh\nprintf 'sha256:'; printf '%s' \"$4\" | /usr/bin/sha256sum | /usr/bin/cut -c1-64\n"
    )
    (programs / "skopeo").chmod(0o755)
    return tmp_path / "deploy"


def test_images__have_a_tag_that_names_a_version():
    images = [each for several in list_images(DEPLOY).values() for each in several]
    assert len(images) >= 6
    assert all(FORM.fullmatch(image) for image in images), images


def test_pin_images__writes_and_renews_digests_everywhere(folder):
    before = list_images(folder)
    for _ in range(2):
        done = pin(folder, folder.parent / "bin")
        assert done.returncode == 0, done.stderr
        after = list_images(folder)
        assert after.keys() == before.keys()
        for file, images in after.items():
            plain = [each.partition("@")[0] for each in images]
            assert plain == [each.partition("@")[0] for each in before[file]]
            assert all(FORM.fullmatch(each) and "@sha256:" in each for each in images), images
    # what stands in two places is the same image
    pinned = {each for several in after.values() for each in several}
    assert len(pinned) == len({each.partition("@")[0] for each in pinned})


@pytest.mark.parametrize("said", ["echo none", "echo refused >&2; exit 1"])
def test_pin_images__changes_nothing_without_all_digests(folder, said):
    before = list_images(folder)
    (folder.parent / "bin" / "skopeo").write_text(f"#!/bin/sh\n{said}\n")
    done = pin(folder, folder.parent / "bin")
    assert done.returncode == 1
    assert "digest" in done.stderr
    assert list_images(folder) == before
