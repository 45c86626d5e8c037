import pytest

import pmflib.features
from pmflib.base import StoreError
from pmflib.store import Reference, dataset, open_variance

DATASET = Reference("dataset", "0" * 64, "1" * 64)


def test_open_variance__a_design_that_nothing_reads_is_refused(monkeypatch):
    monkeypatch.setattr(pmflib.features, "FEATURES", ())
    content = {"origin": {"source": {"weight": "w", "psu": "school"}}}
    monkeypatch.setattr(dataset, "read_content", lambda *_: content)
    with pytest.raises(StoreError, match=r"a sampling design \(psu\)"):
        open_variance(None, DATASET)
    content["raking"] = {"replicates": None}
    with pytest.raises(StoreError, match=r"a sampling design \(raking\)"):
        open_variance(None, DATASET)


def test_open_variance__weights_alone_are_no_design(monkeypatch):
    content = {"origin": {"source": {"weight": "w"}}}
    monkeypatch.setattr(dataset, "read_content", lambda *_: content)
    assert open_variance(None, DATASET) is None
