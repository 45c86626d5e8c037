"""Cells of the product that a pipeline answers: the report of a run, and samples erased from the store."""

import json
import re
import warnings
from itertools import cycle

import numpy as np
import pytest

from pmflib.store import find_last_run
from pmflib_tasks.report import gather_report, render_page
from tests.factories import run_command
from tests.flows.nights import Nights
from tests.pipelines import load_model, read_dataset
from tests.product.cells import COLUMNS, FRAME, N_ROWS, SCHEMA, UNIT, WEIGHT, enumerate_joint

pytestmark = pytest.mark.slow

SECTIONS: dict[str, dict[str, dict[str, object]]] = {
    "classes": {},
    "average": {"em": {"members": 3}},
    "forests": {"model": {"rank": 2, "dependence": "tree"}},
    "traits": {"model": {"rank": 2, "method": "traits"}},
    "stack": {"model": {"classes": 2}},
}
"""Options of a pipeline that fits a family; the others have no pipeline."""
NAMES = [f"u-person-{number:03}-x" for number in range(N_ROWS)]
TABLE = FRAME.assign(id=NAMES, w=WEIGHT, u=UNIT)
GONE = NAMES[3::20]


def make_pipeline(folder, patch, family, weights, table):
    """A pipeline of a family that has read a table once."""
    table = table.assign(w=2.5) if weights == "equal" else table
    source = {"path": "log", "layout": "wide", "sample": "id", **COLUMNS[weights]}
    sections = {"em": {"max_passes": 200, "tol": 1e-9}} | SECTIONS[family]
    pipeline = Nights(folder, SCHEMA, patch, source=source, store={"folds": 4}, **sections)
    columns = ["id", *SCHEMA.names, *COLUMNS[weights].values()]
    table[columns].to_csv(pipeline.log / "a.csv", index=False)
    pipeline.run()
    return pipeline


def last(pipeline):
    return find_last_run(pipeline.store, "pipeline").stages


def check_report(pipeline):
    """Whether a report has the states of the model, all rows, and no number that is none."""
    found = gather_report(pipeline.store, "pipeline", 1)
    model = load_model(pipeline.config, last(pipeline)["model"])
    assert found.model.model.kind == model.kind
    shares = {each.state: each.prior for each in found.model.states}
    # states of a stack are not to be read, but those of the classes beside it
    held = model.prior.tolist()
    if model.origin.is_stack:
        assert found.model.read.rank == 2
        held = found.model.read.prior.tolist()
    assert shares == pytest.approx(dict(enumerate(held)))
    assert found.data.adds_up
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        page = render_page(found)
    shown = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    # in quotes it is a word for a missing answer
    assert not re.search(r"\bnan\b(?!&#39;)", shown)


# each family and each way of weighting once: families meet weights in test_product
@pytest.mark.parametrize(("family", "weights"), [*zip(SECTIONS, cycle(COLUMNS), strict=False)])
def test_report_and_erasure(tmp_path, monkeypatch, family, weights):
    pipeline = make_pipeline(tmp_path / "one", monkeypatch, family, weights, TABLE)
    check_report(pipeline)
    words = [word for name in GONE for word in ("--sample", name)]
    erased = json.loads(run_command(pipeline.folder, "erase", pipeline.path, *words, "--json"))
    assert erased["samples_found"] == len(GONE)
    run_command(pipeline.folder, "verify", pipeline.path)
    assert pipeline.run()["refit"]["way"] == "fresh"
    _, names = read_dataset(pipeline.config, last(pipeline)["dataset"])
    assert {*names} == {*NAMES} - {*GONE}
    # as if they had never been there
    rest = TABLE[~TABLE["id"].isin(GONE)]
    other = make_pipeline(tmp_path / "other", monkeypatch, family, weights, rest)
    one, two = (load_model(each.config, last(each)["model"]) for each in (pipeline, other))
    np.testing.assert_allclose(enumerate_joint(one), enumerate_joint(two), atol=1e-6)
