import json

import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib_flows.report.report import report


def test_report__last_run_and_any_other(two_nights, tmp_path, capsys):
    config, page = two_nights / "pipeline.toml", tmp_path / "page.html"
    report(config, output=page, as_json=True)
    said = json.loads(capsys.readouterr().out)
    expected = {"run": 2, "path": str(page), "bytes": page.stat().st_size, "figures": []}
    assert said == expected
    assert "<title>hostile, run 2" in page.read_text("utf-8")
    report(config, "1", page)
    assert str(page) in capsys.readouterr().out
    assert "<title>hostile, run 1" in page.read_text("utf-8")
    report(config, "live", page)
    # a run without a server leaves no page
    assert not (two_nights / "store" / "reports").exists()


def test_report__writes_the_figures_of_the_page_as_files(two_nights, tmp_path, capsys):
    config, page, folder = two_nights / "pipeline.toml", tmp_path / "page.html", tmp_path / "drawn"
    report(config, output=page, figures=folder, as_json=True)
    paths = json.loads(capsys.readouterr().out)["figures"]
    assert {*paths} == {str(each) for each in folder.iterdir()}
    assert {"states.png", "profiles.png", "missingness.png"} <= {
        each.name for each in folder.iterdir()
    }
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in folder.iterdir())
    # as many as on the page
    assert page.read_text("utf-8").count("<svg") == len(paths)
    before = [each.read_bytes() for each in sorted(folder.iterdir())]
    report(config, output=page, figures=folder)
    assert before == [each.read_bytes() for each in sorted(folder.iterdir())]


def test_report__no_such_run_or_folder(two_nights, tmp_path):
    config = two_nights / "pipeline.toml"
    with pytest.raises(StoreError, match="run 7"):
        report(config, "7", tmp_path / "page.html")
    with pytest.raises(pmf.PmfError, match="nowhere"):
        report(config, output=tmp_path / "nowhere" / "page.html")
    (tmp_path / "pipeline.toml").write_text(config.read_text().replace('"hostile"', '"other"'))
    with pytest.raises(StoreError, match="'other'"):
        report(tmp_path / "pipeline.toml", output=tmp_path / "page.html")
