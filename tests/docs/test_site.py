"""The site builds without a network and without a warning, and its pages fetch nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from tests.docs.pages import ROOT, make_environment


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(folder / "trees")]
    # a build that asks for a network has none: every proxy is a closed port
    closed = dict.fromkeys(
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"], "http://127.0.0.1:9"
    )
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-b", "html", "docs", str(folder / "html")],
        cwd=ROOT,
        env=make_environment() | closed,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Fetched(HTMLParser):
    """Addresses that a page has a browser fetch by itself."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.found.append(given.get("src") or "")
        if tag == "link" and given.get("rel") not in (
            "index",
            "search",
            "next",
            "prev",
            "canonical",
        ):
            self.found.append(given.get("href") or "")


def test_site__fetches_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for address in Fetched(page.read_text("utf-8")).found:
            assert not re.match(r"(?:https?:)?//", address), f"{page.name}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(
            r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text("utf-8")
        ), style


def test_site__mathematics_come_with_it(site):
    page = (site / "methods.html").read_text("utf-8")
    assert "\\(" in page or "\\[" in page
    scripts = [each for each in Fetched(page).found if "mathjax" in each.lower()]
    assert scripts
    assert all((site / each.split("?")[0]).exists() for each in scripts)


def test_site__every_public_name_command_and_section_has_a_place(site):
    import pmflib as pmf
    from pmflib_flows import cli
    from pmflib_tasks.config import PipelineConfig

    models, crowd, questions, commands, configuration = (
        (site / f"{name}.html").read_text("utf-8")
        for name in ("library", "library-crowd", "library-questions", "commands", "configuration")
    )
    for name in set(pmf.__all__) - {"crowd", "questions"}:
        assert f'id="pmflib.{name}"' in models or f'.{name}"' in models, name
    for name in pmf.answering.__all__:
        assert f'.{name}"' in questions, name
    for name in pmf.crowd.__all__:
        assert f'.{name}"' in crowd, name
    for name in cli.Commands():
        assert f">pmf {name}" in commands, name
    assert ">pmf schema set<" in commands
    for name, field in PipelineConfig.model_fields.items():
        assert name == "base" or (field.alias or name) in configuration, name


def test_site__can_be_searched(site):
    index = (site / "searchindex.js").read_text("utf-8")
    assert "dawid" in index
    assert "quarantin" in index
