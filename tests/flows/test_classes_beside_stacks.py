"""Nights of a stack with latent classes beside it, which the report shows."""

import pytest

from pmflib.base import ConfigError
from pmflib.model import JointPMF
from pmflib_tasks.config import load_config
from pmflib_tasks.report import gather_report, render_page, summarise_run
from pmflib_tasks.sections import list_sections
from tests.flows.nights import Nights, draw_ratings, make_movies

MOVIES = 5


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A pipeline, and the facts of two nights: from scratch, and with new users."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nights")
        model = {"effort": "quick", "classes": 2}
        nights = Nights(folder, make_movies(MOVIES), patch, model=model)
        codes, facts = draw_ratings(500, MOVIES), []
        for name, first, stop in (("a.csv", 0, 400), ("b.csv", 400, 500)):
            nights.deliver(name, codes[first:stop], range(first, stop))
            facts.append(nights.run())
        yield nights, facts


def test_etl__classes_are_kept_beside_the_stack(ran):
    nights, (first, second) = ran
    for facts in (first, second):
        assert facts["model"]["classes"]["n_classes"] == 2
        assert facts["model"]["classes"]["n_rows"] > 0
        assert 0 < facts["model"]["classes"]["variation"] < 0.5
    assert second["refit"]["way"] == "warm"
    kept = [JointPMF.load(path) for path in (nights.folder / "store" / "model").glob("*/classes")]
    assert [each.rank for each in kept] == [2, 2]
    # of a continued fit, states keep their places
    assert abs(kept[0].factors - kept[1].factors).max() < 0.2


def test_report__states_are_those_of_the_classes(ran):
    nights, (first, _) = ran
    report = gather_report(nights.store, nights.config.name, 1)
    assert {each.state for each in report.model.states} == {0, 1}
    said = " ".join(summarise_run(report))
    assert "2 latent classes to read" in said
    page = render_page(report)
    assert "The latent states" in page
    assert "likelier under the stack" in page
    tables = [each.table for each in list_sections(first) if each.table is not None]
    assert any("classes to read" in row for table in tables for row in table.rows)


def test_load_config__classes_are_for_a_stack(ran):
    nights, _ = ran
    path = nights.folder / "other.toml"
    text = '[source]\npath = "log"\nlayout = "wide"\n[model]\nclasses = {}\n{}'
    path.write_text(text.format(2, "rank = 3\n"))
    with pytest.raises(ConfigError, match=r"model\.classes = 2 is for classes beside a stack"):
        load_config(path)
    path.write_text(text.format('"auto"', "[evaluate]\nvalidation_folds = 0\n"))
    with pytest.raises(ConfigError, match=r"nothing to choose by, and model\.classes"):
        load_config(path)
