import pytest

import pmflib as pmf
from pmflib.base import StoreError
from pmflib.ingest import LEVELS_FILE, find_levels
from pmflib.ingest.dataset.spills import write_levels


def schema_of(**levels):
    return pmf.Schema(tuple(pmf.Variable(name, tuple(labels)) for name, labels in levels.items()))


WHOLE = schema_of(u="ab", v="cab", w="b")


def test_find_levels__of_a_part_in_another_order(tmp_path):
    write_levels(tmp_path, schema_of(w="b", v="ab"))
    assert find_levels(tmp_path, WHOLE).tolist() == [5, 3, 4, -1]


def test_find_levels__strange_and_damaged_names(tmp_path):
    write_levels(tmp_path, schema_of(v="ax"))
    with pytest.raises(StoreError, match=r'\["v", "x"\]'):
        find_levels(tmp_path, WHOLE)
    (tmp_path / LEVELS_FILE).write_text("[1")
    with pytest.raises(StoreError, match=tmp_path.name):
        find_levels(tmp_path, WHOLE)
