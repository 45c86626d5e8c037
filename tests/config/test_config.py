import re
from datetime import timedelta

import pytest

from pmflib.core.errors import ConfigError
from pmflib.core.methods import CROWD_METHODS, PAIR_METHODS
from pmflib_tasks.config import (
    CrowdConfig,
    EMConfig,
    GateConfig,
    ModelConfig,
    PipelineConfig,
    load_config,
    make_config,
)

WIDE = {"path": "x.csv", "layout": "wide"}
LONG = {"path": "x.csv", "layout": "long", "sample": "user", "variable": "movie", "value": "stars"}


def make(**sections):
    return make_config({"source": WIDE, "model": {"rank": 2}} | sections, base="/data")


def test_make_config__defaults():
    config = make()
    assert (config.name, config.seed, config.store.folds) == ("pipeline", 0, 16)
    assert (config.schema_.file, config.em.pseudo_count, config.cluster.address) == (
        "schema.json",
        "auto",
        "",
    )


def test_make_config__members_of_an_average_start_from_what_differs():
    assert make().start_method == "auto"
    assert make(em={"members": 3}).start_method == "pairs"
    compared = make(em={"members": 3}, model={"rank": 2, "method": "compare"})
    assert (compared.class_method, compared.start_method) == ("auto", "pairs")
    assert make(em={"members": 3}, model={"rank": 2, "method": "random"}).start_method == "random"
    with pytest.raises(
        ConfigError, match=r"em.members = 3 needs starts that differ: give model.method"
    ):
        make(em={"members": 3}, model={"rank": 2, "method": "spa"})
    with pytest.raises(ConfigError, match=r"em.distil = 5 needs an average: em.members above 1"):
        make(em={"distil": 5})


def test_make_config__methods_of_label_logs_are_those_in_memory():
    for name, method in CROWD_METHODS.items():
        if method.family != "votes":
            assert make(crowd={"method": name}).crowd.begins_with_pairs == (
                method.family == "pairs"
            )
    with pytest.raises(ConfigError, match=r"crowd.method: method is 'majority'; give one of auto"):
        make(crowd={"method": "majority"})
    assert not make(crowd={"method": "robust", "em": False}).crowd.em
    with pytest.raises(ConfigError, match=r"em = false leaves nothing of method = 'mv_em'"):
        make(crowd={"method": "mv_em", "em": False})
    with pytest.raises(ConfigError, match=r"crowd.classes: Tuple should have at least 1 item"):
        make(crowd={"classes": []})


def test_make_config__methods_of_pairs_are_those_of_fit():
    for name in PAIR_METHODS:
        assert make(model={"rank": 2, "method": name}).model.method == name
    with pytest.raises(
        ConfigError, match=r"^model.method: method is 'mirorr'; did you mean 'mirror'\? give one of"
    ):
        make(model={"rank": 2, "method": "mirorr"})


def test_docstrings__show_every_option_and_every_method():
    for section in (ModelConfig, CrowdConfig, EMConfig, GateConfig, PipelineConfig):
        for name, field in section.model_fields.items():
            assert f"{field.alias or name} (" in section.__doc__
    for name, method in PAIR_METHODS.items():
        assert f'"{name}": {method.description[:40]}' in ModelConfig.__doc__
    assert '"cnmf": ' in CrowdConfig.__doc__
    assert "majority" not in CrowdConfig.__doc__


def test_make_config__every_layout():
    assert make(source=LONG).source.value == "stars"
    assert make(source=WIDE | {"path": ["a.csv", "b/*.csv"]}).source.path == ("a.csv", "b/*.csv")


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"modle": 1}, "modle: unknown option; did you mean ['model']? (given: 1)"),
        (
            {"em": {"max_pases": 1}},
            "em.max_pases: unknown option; did you mean ['max_passes']? (given: 1)",
        ),
        ({"model": {}}, "model.rank: is required"),
        (
            {"model": {"rank": 0}},
            "model.rank: Input should be greater than or equal to 1 or: Input should be 'auto' (given: 0)",
        ),
        ({"em": 3}, "em: Input should be a valid dictionary or instance of EMConfig (given: 3)"),
        (
            {"em": {"pseudo_count": "high"}},
            "em.pseudo_count: Input should be a valid number, unable to parse string as a number or: "
            "Input should be 'auto' (given: 'high')",
        ),
        ({"em": {"tol": float("inf")}}, "em.tol: Input should be a finite number (given: inf)"),
        ({"em": {"tol": float("nan")}}, "em.tol: Input should be a finite number (given: nan)"),
        ({"seed": 2**63}, f"seed: Input should be less than {2**63} (given: {2**63})"),
        (
            {"source": WIDE | {"layout": "tall"}},
            "source.layout: Input should be 'wide' or 'long' (given: 'tall')",
        ),
        (
            {"source": WIDE | {"path": ["a", 3]}},
            "source.path: Input should be a valid string (given: ['a', 3])",
        ),
        (
            {"source": WIDE | {"path": ""}},
            "source.path: String should have at least 1 character or: "
            "Input should be a valid tuple (given: '')",
        ),
        (
            {"source": WIDE | {"delimiter": ""}},
            "source.delimiter: a delimiter has 1 to 10 characters, or is 'whitespace' for runs of blanks and tabs",
        ),
        (
            {"source": WIDE | {"encoding": "rot13"}},
            "source.encoding: 'rot13' is not a text encoding; give one like 'utf-8', 'latin-1', 'cp1252' or 'utf-16'",
        ),
        (
            {"source": {"path": "x", "layout": "long", "sample": "user"}},
            "source: layout = 'long' needs the column names ['variable', 'value']",
        ),
        (
            {"source": WIDE | {"time": "ts"}},
            "source: layout = 'wide' has no ['time']; remove them or set layout = 'long'",
        ),
        ({"store": {"buckets": 10}}, "store: buckets = 10 is no multiple of folds = 16"),
        (
            {"evaluate": {"test_folds": 15}},
            "configuration: evaluate holds out 16 of 16 folds; leave at least one to train on",
        ),
        (
            {"name": "../a"},
            "name: '../a' is not a file name; use letters, digits, spaces and . - _, a letter or digit first",
        ),
        (
            {"base": "/tmp"},
            "base: paths are relative to the configuration file; remove base",
        ),
    ],
)
def test_make_config__one_mistake_is_one_line(sections, line):
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        make(**sections)


def test_make_config__two_mistakes_are_two_lines():
    with pytest.raises(ConfigError, match=r"^source: is required\nmodel: is required$"):
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
        (None, "does not exist; `pmf infer` drafts one"),
        (b"rank = ", "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"[model]\nrank = 2", "^source: is required$"),
    ],
)
def test_load_config__refuses_what_is_no_configuration(tmp_path, content, message):
    if content is not None:
        (tmp_path / "p.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "p.toml")


def test_load_config__a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
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
        ({"quarantine": {"warn": 0.4}}, r"quarantine.warn = 0.4 is beyond quarantine.stop = 0.2"),
        ({"least_rows": {"warn": 5, "stop": 9}}, r"least_rows.warn = 5 is beyond"),
        ({"quarantine": {"stop": -1}}, r"quarantine = {'stop': -1} is no limit of a guard"),
        ({"quarantine": {"limit": 1}}, r"quarantine = {'limit': 1} is no limit of a guard"),
        ({"quarantine": 0.3}, r'quarantine = 0.3 is no limit of a guard; give "off", or {warn'),
        ({"drift": {"stop": 1}}, r"quality.drift"),
        ({"reasons": {"unknown": {"stop": 1}}}, r"\['unknown'\] are no reasons of a quarantine"),
        ({"false_discoveries": 1.5}, r"quality.false_discoveries"),
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
        with pytest.raises(
            ConfigError, match=r"^model.refresh: '.*' is not a time up to 36500d; write"
        ):
            make(model={"rank": 2, "refresh": text})


def test_make_config__gate():
    gate = make().gate
    assert (gate.least_cells, gate.standard_errors, gate.largest_loss) == (100, 2.0, 0.02)
    assert make(gate={"largest_loss": 0}).gate.largest_loss == 0
    for options in ({"least_cells": 0}, {"standard_errors": 0}, {"largest_loss": -0.1}):
        with pytest.raises(ConfigError, match=f"^gate.{next(iter(options))}: "):
            make(gate=options)
