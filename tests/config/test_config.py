import re
from datetime import timedelta

import pytest

from pmflib.base import PAIR_METHODS, ConfigError
from pmflib_tasks.config import (
    SAMPLE_METHODS,
    EMConfig,
    ModelConfig,
    PipelineConfig,
    load_config,
    make_config,
)
from tests.factories import check_table

WIDE = {"path": "x.csv", "layout": "wide"}
LONG = {"path": "x.csv", "layout": "long", "sample": "user", "variable": "movie", "value": "stars"}


def make(**sections):
    return make_config({"source": WIDE, "model": {"rank": 2}} | sections, base="/data")


def test_make_config__members_of_an_average_start_from_what_differs():
    assert make().start_method == "auto"
    assert make(em={"members": 3}).start_method == "pairs"
    assert make(em={"members": 3}, model={"rank": 2, "method": "random"}).start_method == "random"
    with pytest.raises(ConfigError, match=r"em\.members = 3"):
        make(em={"members": 3}, model={"rank": 2, "method": "spa"})
    with pytest.raises(ConfigError, match=r"em\.distil = 5"):
        make(em={"distil": 5})


@pytest.mark.needs("families.traits")
def test_make_config__members_of_an_average_that_is_compared_with_traits():
    compared = make(em={"members": 3}, model={"rank": 2, "method": "compare"})
    assert (compared.class_method, compared.start_method) == ("auto", "pairs")


def test_methods_of_pipelines_alone__names_functions_and_options_are_there():
    check_table(SAMPLE_METHODS)


def test_make_config__methods_of_pairs_are_those_of_fit():
    for name in PAIR_METHODS:
        assert make(model={"rank": 2, "method": name}).model.method == name
    with pytest.raises(ConfigError, match=r"^model\.method: .*'mirorr'.*'mirror'"):
        make(model={"rank": 2, "method": "mirorr"})


def test_docstrings__show_every_option():
    for section in (ModelConfig, EMConfig, PipelineConfig):
        for name, field in section.model_fields.items():
            assert f"{field.alias or name} (" in section.__doc__


@pytest.mark.parametrize(
    ("sections", "setting"),
    [
        ({"modle": 1}, "modle"),
        ({"em": {"max_pases": 1}}, "em.max_pases"),
        ({"model": {"rank": 0}}, "model.rank"),
        ({"em": 3}, "em"),
        ({"em": {"pseudo_count": "high"}}, "em.pseudo_count"),
        ({"em": {"tol": float("inf")}}, "em.tol"),
        ({"em": {"tol": float("nan")}}, "em.tol"),
        ({"seed": 2**63}, "seed"),
        ({"source": WIDE | {"layout": "tall"}}, "source.layout"),
        ({"source": WIDE | {"path": ["a", 3]}}, "source.path"),
        ({"source": WIDE | {"path": ""}}, "source.path"),
        ({"source": WIDE | {"delimiter": ""}}, "source.delimiter"),
        ({"source": WIDE | {"encoding": "rot13"}}, "source.encoding"),
        ({"source": {"path": "x", "layout": "long", "sample": "user"}}, "source"),
        ({"source": WIDE | {"time": "ts"}}, "source"),
        ({"store": {"buckets": 10}}, "store"),
        ({"evaluate": {"test_folds": 15}}, "configuration"),
        ({"model": {"rank": 2, "method": "spa", "method_options": {"tol": 1.0}}}, "model"),
        ({"crowd": {"method": "robust", "method_options": {"shift": -1.0}}}, "crowd"),
        ({"name": "../a"}, "name"),
        ({"base": "/tmp"}, "base"),
        pytest.param(
            {"sites": {"south": "a\0b"}}, "configuration", marks=pytest.mark.needs("surveys.sites")
        ),
    ],
)
def test_make_config__one_mistake_is_one_line(sections, setting):
    with pytest.raises(ConfigError, match=rf"^{re.escape(setting)}: .+$") as caught:
        make(**sections)
    assert "\n" not in str(caught.value)


def test_make_config__two_mistakes_are_two_lines():
    with pytest.raises(ConfigError, match=r"^source: .*\nmodel: .*$"):
        make_config({})


@pytest.mark.parametrize("name", ["pipeline", "größe 2", "v1.2-b_c"])
def test_make_config__names_that_are_file_names(name):
    assert make(name=name).name == name


def test_digest__ignores_the_cluster_and_the_path_of_the_file():
    config = make()
    other = make_config(
        {"source": WIDE, "model": {"rank": 2}, "cluster": {"workers": 7, "processes": True}},
        base="/elsewhere",
    )
    assert other.digest == config.digest


@pytest.mark.parametrize(
    "sections",
    [
        {"seed": 1},
        {"model": {"rank": 3}},
        {"source": WIDE | {"missing": ["?"]}},
        {"em": {"tol": 1e-5}},
        {"model": {"rank": 2, "method": "spa", "method_options": {"split": "first"}}},
        {"schema": {"on_duplicate": "first"}},
        {"evaluate": {"hide": 0.3}},
    ],
)
def test_digest__tells_results_apart(sections):
    assert make(**sections).digest != make().digest


def test_resolve__relative_to_the_configuration_file():
    config = make()
    assert config.resolve("logs/*.csv") == "/data/logs/*.csv"
    assert config.resolve("/abs/x.csv") == "/abs/x.csv"
    assert config.resolve("s3://bucket/x.csv") == "s3://bucket/x.csv"


def test_load_config__relative_paths_start_from_its_folder(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "pipeline.toml"
    file.write_text('[source]\npath = "x.csv"\nlayout = "wide"\n[model]\nrank = 2\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_config("deep/pipeline.toml").resolve("store") == str(tmp_path / "deep" / "store")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"p\.toml"),
        (b"rank = ", r"p\.toml"),
        (b"\xff", r"p\.toml"),
        (b"[model]\nrank = 2", "^source: "),
    ],
)
def test_load_config__refuses_what_is_no_configuration(tmp_path, content, message):
    if content is not None:
        (tmp_path / "p.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "p.toml")
    with pytest.raises(ConfigError, match=tmp_path.name):
        load_config(tmp_path)


def test_make_config__limits_of_guards_that_are_not_given_keep_their_defaults():
    quality = make(quality={"quarantine": {"stop": 0.4}, "same_bytes": "off"}).quality
    assert (quality.quarantine.warn, quality.quarantine.stop) == (0.05, 0.4)
    assert (quality.same_bytes.warn, quality.same_bytes.stop) == ("off", "off")
    reasons = {"unknown_variable": {"stop": 0.9}, "duplicate": "off"}
    quality = make(quality={"reasons": reasons}).quality
    assert quality.reasons["unknown_variable"].warn == quality.reason.warn
    assert quality.reasons["duplicate"].stop == "off"


def test_make_config__limits_of_guards_that_make_no_sense():
    for given, message in (
        ({"quarantine": {"warn": 0.4}}, r"quarantine\.warn = 0\.4"),
        ({"least_rows": {"warn": 5, "stop": 9}}, r"least_rows\.warn = 5"),
        ({"quarantine": {"stop": -1}}, "quarantine"),
        ({"quarantine": {"limit": 1}}, "quarantine"),
        ({"quarantine": 0.3}, r"quarantine = 0\.3"),
        ({"drift": {"stop": 1}}, r"quality\.drift"),
        ({"reasons": {"unknown": {"stop": 1}}}, "'unknown'"),
        ({"false_discoveries": 1.5}, r"quality\.false_discoveries"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(quality=given)


def test_make_config__how_long_models_are_refitted_warm():
    for text, time in (
        ("30d", timedelta(days=30)),
        ("36h", timedelta(hours=36)),
        ("4w", timedelta(weeks=4)),
        ("0d", timedelta(0)),
        ("never", None),
    ):
        assert make(model={"rank": 2, "refresh": text}).model.refresh_after == time
    assert make().model.refresh_after == timedelta(days=30)
    for text in ("30", "d", "-1d", "1.5d", "30 days", "", "99999999w", "1234567890h"):
        with pytest.raises(ConfigError, match=r"^model\.refresh: '.*'"):
            make(model={"rank": 2, "refresh": text})
