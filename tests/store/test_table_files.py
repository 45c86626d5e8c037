import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pmflib.core.errors import ConfigError
from pmflib.store.table_files import join_files


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for index, rows in enumerate(([3, 1, 2], [2, 1])):
        table = pa.table({"row": rows, "a.label": [f"r{index},{row}" for row in rows]})
        pq.write_table(table, folder / f"part-{index:05}.parquet")
    return folder


@pytest.mark.parametrize("name", ["a.csv", "new/a.PARQUET"])
def test_join_files__by_suffix_in_the_order_of_rows(folder, tmp_path, name):
    path = tmp_path / name
    assert join_files(folder, path, "row") == 5
    table = pa.csv.read_csv(path) if name.endswith("csv") else pq.read_table(path)
    assert table["row"].to_pylist() == [1, 2, 3, 1, 2]
    assert table["a.label"].to_pylist() == ["r0,1", "r0,2", "r0,3", "r1,1", "r1,2"]
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


def test_join_files__refuses_another_suffix(folder, tmp_path):
    with pytest.raises(ConfigError, match="its suffix says what is written"):
        join_files(folder, tmp_path / "a.xlsx", "row")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_join_files__all_rows_in_order(tmp_path, suffix):
    labels = tmp_path / "labels"
    labels.mkdir()
    for index, tasks in enumerate((["t3", "t1"], ["t2"], [])):
        shares = pa.array([0.5] * len(tasks), pa.float64())
        table = pa.table({"task": pa.array(tasks, pa.string()), "confidence": shares})
        pq.write_table(table, labels / f"part-{index:05}.parquet")
    file = tmp_path / f"found{suffix}"
    file.write_text("an older one")
    join_files(labels, file, "task", in_all=True)
    read = pq.read_table if suffix == ".parquet" else pa.csv.read_csv
    assert read(file)["task"].to_pylist() == ["t1", "t2", "t3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "labels"]
