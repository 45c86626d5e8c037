import pytest

from pmflib.ingest import make_source
from pmflib_tasks.config import draft_config, load_config


def test_draft_config__notes_that_hold_line_ends(tmp_path):
    source = make_source({"path": 'a "b".csv', "layout": "wide", "delimiter": "\t"})
    text = draft_config(source, rank=5, notes=["a\nb: odd", "c\r\x00d"])
    (tmp_path / "p.toml").write_text(text)
    config = load_config(tmp_path / "p.toml")
    assert (config.source, config.model.rank) == (source, 5)
    assert "a b: odd\n" in text
    assert "c d\n" in text


@pytest.mark.parametrize(("quick", "effort"), [(False, "normal"), (True, "quick")])
def test_draft_config__without_a_rank_it_is_of_a_stack(tmp_path, quick, effort):
    source = make_source({"path": "a.csv", "layout": "wide"})
    path = tmp_path / "p.toml"
    path.write_text(draft_config(source, rank=None, quick=quick))
    config = load_config(path)
    assert config.is_stack
    assert (config.model.effort, config.model.dependence) == (effort, "auto")


def test_draft_config__target(tmp_path):
    source = make_source({"path": "a.csv", "layout": "wide"})
    for target in ('a "b"', "c\\d", "e\x7f\tf", "größe"):
        (tmp_path / "p.toml").write_text(draft_config(source, rank=5, target=target), "utf-8")
        assert load_config(tmp_path / "p.toml").em.target == target
    assert "[em]" not in draft_config(source, rank=5)


def test_draft_config__the_method_with_what_it_does(tmp_path):
    source = make_source({"path": "a.csv", "layout": "wide"})
    path = tmp_path / "p.toml"
    path.write_text(draft_config(source, rank=5, method="compare"))
    config = load_config(path)
    assert config.compares_traits
    assert (config.class_method, config.start_method) == ("auto", "auto")
    assert "method" not in draft_config(source, rank=5)
