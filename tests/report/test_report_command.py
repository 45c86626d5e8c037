import json

import pytest

import pmflib as pmf
from pmflib.core.errors import StoreError
from pmflib_flows.commands.report import report


def test_report__last_run_and_any_other(two_nights, tmp_path, capsys):
    config, page = two_nights / "pipeline.toml", tmp_path / "page.html"
    report(config, output=page, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said == {"run": 2, "path": str(page), "bytes": page.stat().st_size}
    assert "<title>hostile, run 2" in page.read_text("utf-8")
    report(config, "1", page)
    assert "Wrote the report of run 1" in capsys.readouterr().out
    assert "<title>hostile, run 1: promoted" in page.read_text("utf-8")
    report(config, "live", page)
    # a run without a server leaves no page
    assert not (two_nights / "store" / "reports").exists()


def test_report__no_such_run_or_folder(two_nights, tmp_path):
    config = two_nights / "pipeline.toml"
    with pytest.raises(StoreError, match="run 7 of pipeline 'hostile' is not in its history"):
        report(config, "7", tmp_path / "page.html")
    with pytest.raises(pmf.PmfError, match="cannot be written"):
        report(config, output=tmp_path / "nowhere" / "page.html")
    (tmp_path / "pipeline.toml").write_text(config.read_text().replace('"hostile"', '"other"'))
    with pytest.raises(StoreError, match="pipeline 'other' has not run yet"):
        report(tmp_path / "pipeline.toml", output=tmp_path / "page.html")
