"""Predictions are published only if they are those of all samples."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.answering import claim_output, claim_parts, publish_folder, publish_parts
from pmflib.base import ConfigError, StoreError
from pmflib.store import ACCOUNT, hold_output


def write_parts(folder, *sizes):
    for index, size in enumerate(sizes):
        # two rows for each sample
        table = pa.table({"row": range(2 * size)})
        account = json.dumps({"rows_in": size + 1, "rows_quarantined": 1})
        table = table.replace_schema_metadata({ACCOUNT: account})
        pq.write_table(table, folder / f"part-{index:05}.parquet")


def test_publish_folder__part_that_another_took_away(tmp_path):
    write_parts(claim_parts(tmp_path), 3, 4, 5)
    (tmp_path / "parts" / "part-00001.parquet").unlink()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError):
        publish_folder(tmp_path, tmp_path / "folder", 12)
    assert list((tmp_path / "folder").iterdir()) == []
    write_parts(claim_parts(tmp_path), 3, 4, 5)
    publish_folder(tmp_path, tmp_path / "folder", 12)
    assert len(list((tmp_path / "folder").iterdir())) == 3


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out"])
def test_publish_parts__part_that_another_took_away(name, tmp_path):
    (tmp_path / "parts").mkdir()
    write_parts(tmp_path / "parts", 3, 4)
    with pytest.raises(StoreError):
        publish_parts(tmp_path / "parts", tmp_path / name, 12)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out"])
def test_hold_output__of_another_process(name, tmp_path):
    output = tmp_path / name
    with (
        hold_output(output),
        pytest.raises(ConfigError, match=name),
        hold_output(output),
    ):
        pass
    with hold_output(output):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ([name] if name == "out" else [])


def test_claim_output__parts_of_an_interrupted_call_stay_and_others_go(tmp_path):
    claim_output(tmp_path, "one", as_file=True)
    (tmp_path / "_quarantine").mkdir()
    write_parts(tmp_path, 3)
    claim_output(tmp_path, "one", as_file=True)
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(ConfigError):
        claim_output(tmp_path, "two", as_file=False)
    claim_output(tmp_path, "two", as_file=True)
    assert [path.name for path in tmp_path.iterdir()] == ["_scores.json"]


def test_hold_output__file_where_a_folder_is_to_be(tmp_path):
    (tmp_path / "out").write_text("mine")
    with (
        pytest.raises(ConfigError),
        hold_output(tmp_path / "out"),
    ):
        pass
    assert (tmp_path / "out").read_text() == "mine"
