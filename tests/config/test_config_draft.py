import pytest

from pmflib.core.errors import ConfigError
from pmflib.ingest.options import make_source
from pmflib_tasks.config import load_config, make_config
from pmflib_tasks.config.loading import draft_config

MINIMAL = {"source": {"path": "a", "layout": "wide"}, "model": {"rank": 2}}


def test_draft_config__notes_that_hold_line_ends(tmp_path):
    source = make_source({"path": 'a "b".csv', "layout": "wide", "delimiter": "\t"})
    text = draft_config(source, rank=5, notes=["a\nb: odd", "c\r\x00d"])
    (tmp_path / "p.toml").write_text(text)
    config = load_config(tmp_path / "p.toml")
    assert (config.source, config.model.rank) == (source, 5)
    assert "# review: a b: odd\n# review: c d\n" in text


def test_draft_config__target(tmp_path):
    source = make_source({"path": "a.csv", "layout": "wide"})
    for target in ('a "b"', "c\\d", "e\x7f\tf", "größe"):
        (tmp_path / "p.toml").write_text(draft_config(source, rank=5, target=target), "utf-8")
        assert load_config(tmp_path / "p.toml").em.target == target
    assert "[em]" not in draft_config(source, rank=5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"em": {"max_pases": 1}}, r"em\.max_pases: unknown option; did you mean \['max_passes'\]"),
        ({"schem": {}}, r"schem: unknown option; did you mean \['schema'\]"),
        ({"schema": {"fil": ""}}, r"schema\.fil: unknown option; did you mean \['file'\]"),
        (
            {"model": {"rank": 2, "qqq": 1}},
            r"model\.qqq: unknown option; there are \['rank', 'rank_budget', 'me",
        ),
        ({"model": {}}, r"model\.rank: is required"),
    ],
)
def test_make_config__unknown_and_absent_options(change, message):
    with pytest.raises(ConfigError, match=message):
        make_config(MINIMAL | change)


def test_draft_config__a_quick_one_has_a_budget_of_a_minute(tmp_path):
    source = make_source({"path": "a.csv", "layout": "wide"})
    for quick, seconds in ((False, 600), (True, 60)):
        path = tmp_path / f"{quick}.toml"
        path.write_text(draft_config(source, rank="auto", quick=quick))
        model = load_config(path).model
        assert model.rank_seconds == seconds
        assert load_config(path).hurry().model.rank_seconds == 60


def test_draft_config__the_method_with_what_it_does(tmp_path):
    source = make_source({"path": "a.csv", "layout": "wide"})
    path = tmp_path / "p.toml"
    path.write_text(draft_config(source, rank=5, method="compare"))
    config = load_config(path)
    assert config.compares_traits
    assert (config.class_method, config.start_method) == ("auto", "auto")
    assert 'method = "compare"  # traits or latent classes' in path.read_text()
    assert "method" not in draft_config(source, rank=5)
