"""The page in a real browser: nothing is loaded, nothing fails, and who uses a keyboard or a screen reader gets by."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from pmflib.store import Store
from pmflib_tasks.report import gather_report, write_page
from tests.report.report_runs import SCHEMA

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")


@pytest.fixture(scope="module")
def page_file(two_nights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    store = Store(two_nights / "store")
    write_page(gather_report(store, "hostile", 2), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, page_file):
    """Give a function that opens the page; what it says on the console, or asks for, fails the test."""
    opened = []

    def go(**options):
        page = browser.new_page(**options)
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        opened.append((page, said, asked))
        return page

    yield go
    for page, said, asked in opened:
        page.close()
        assert said == []
        assert asked == [page_file.as_uri()]


def test_page__loads_nothing_and_has_an_order(visit, tmp_path):
    page = visit()
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    page.screenshot(path=tmp_path / "light.png", full_page=True)
    assert (tmp_path / "light.png").stat().st_size > 50_000


def test_page__figures_and_tables_say_what_they_are(visit):
    page = visit()
    figures = page.evaluate(
        """[...document.querySelectorAll('svg')].map(svg => [
            svg.getAttribute('role'), svg.querySelector('title')?.textContent,
            svg.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id)?.textContent)])"""
    )
    assert len(figures) >= 5
    assert all(role == "img" and title and named for role, title, named in figures)
    names = page.evaluate("[...document.querySelectorAll('svg text')].map(t => t.textContent)")
    # texts are text, and as they are in the data
    assert any("$cost & time$" in name for name in names)
    tables = page.evaluate(
        """[...document.querySelectorAll('table')].map(table => [
            Boolean(table.caption?.textContent.trim()),
            [...table.querySelectorAll('thead th')].every(head => head.scope === 'col'),
            [...table.querySelectorAll('tbody th')].every(head => head.scope === 'row')])"""
    )
    assert len(tables) >= 8
    assert all(all(each) for each in tables)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))
    links = page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_page__data_are_text(visit):
    page = visit()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("th", has_text="<script>alert").count() >= 1


def test_page__keyboard(visit):
    page = visit()
    page.keyboard.press("Tab")
    focused = "document.activeElement"
    assert page.evaluate(f"{focused}.className") == "skip"
    box = page.locator(".skip").bounding_box()
    assert box["x"] >= 0
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.id") == "content"


def test_page__tables_are_sorted_by_a_press(visit):
    page = visit()
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    table = page.locator("table[data-sortable]", has_text="most frequent level")
    assert table.locator("tbody tr").count() == len(SCHEMA.names)
    head = table.locator("thead th", has_text="levels").first
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    values = [int(text) for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"


def test_page__is_whole_without_scripts(browser, page_file):
    page = browser.new_page(java_script_enabled=False)
    page.goto(page_file.as_uri())
    assert page.locator("table").count() >= 8
    assert page.locator("tbody tr").count() > 30
    page.close()


def brightness(page):
    red, green, blue = map(
        int,
        re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3],
    )
    return (red + green + blue) / 3


def test_page__dark_print_and_small(visit, tmp_path):
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    assert brightness(light) > 200
    assert brightness(dark) < 60
    colour = "getComputedStyle(document.querySelector('svg text')).fill"
    assert light.evaluate(colour) != dark.evaluate(colour)
    dark.screenshot(path=tmp_path / "dark.png", full_page=True)
    dark.emulate_media(media="print", color_scheme="dark")
    assert not dark.locator("nav").is_visible()
    # paper is white, whatever the screen is
    assert brightness(dark) > 200
    assert len(dark.pdf()) > 20_000
    small = visit(viewport={"width": 390, "height": 844})
    assert small.evaluate("document.documentElement.scrollWidth") <= 390
    small.screenshot(path=tmp_path / "small.png", full_page=True)
