import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pmflib.errors import ConfigError
from pmflib.model.prediction_files import write_predictions


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for place, rows in enumerate(([3, 1, 2], [2, 1])):
        table = pa.table({"row": rows, "a.label": [f"r{place},{row}" for row in rows]})
        pq.write_table(table, folder / f"part-{place:05}.parquet")
    return folder


@pytest.mark.parametrize("name", ["a.csv", "new/a.PARQUET"])
def test_write_predictions__by_suffix_in_the_order_of_rows(folder, tmp_path, name):
    path = tmp_path / name
    assert write_predictions(folder, path) == 5
    table = pa.csv.read_csv(path) if name.endswith("csv") else pq.read_table(path)
    assert table["row"].to_pylist() == [1, 2, 3, 1, 2]
    assert table["a.label"].to_pylist() == ["r0,1", "r0,2", "r0,3", "r1,1", "r1,2"]
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


def test_write_predictions__refuses_another_suffix(folder, tmp_path):
    with pytest.raises(ConfigError, match="its suffix says what is written"):
        write_predictions(folder, tmp_path / "a.xlsx")
