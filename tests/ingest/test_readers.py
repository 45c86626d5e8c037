import pytest

from pmflib import features
from pmflib.base import ConfigError, SourceError
from pmflib.ingest import find_sources, make_source, read_columns, read_declared, read_rows
from pmflib.store import check_suffix, list_suffixes

CONFIG = make_source({"path": "data", "layout": "wide"})


@pytest.fixture(autouse=True)
def no_features(monkeypatch):
    monkeypatch.setattr(features, "FEATURES", ())


def test_csv_and_parquet_need_no_feature(tmp_path):
    (tmp_path / "a.csv").write_text("q,r\n1,2\n")
    (source,) = find_sources(str(tmp_path / "a.csv"))
    assert read_columns(source, CONFIG) == ["q", "r"]
    assert read_declared(source, CONFIG) == {}
    assert list_suffixes() == (".csv", ".parquet")


@pytest.mark.parametrize("suffix", ["sav", "dta", "sas7bdat"])
def test_formats_that_nothing_reads_are_refused(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"$FL2")
    (source,) = find_sources(str(path))
    with pytest.raises(SourceError, match=f"format '{suffix}'; convert it to one of csv, parquet"):
        read_columns(source, CONFIG)
    with pytest.raises(SourceError, match="no feature of this installation reads"):
        next(read_rows(source, CONFIG, ["q"]))


def test_formats_that_nothing_writes_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"name a file with one of \.csv, \.parquet$"):
        check_suffix(tmp_path / "a.sav")
