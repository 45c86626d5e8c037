import json
import re

import numpy as np
import pytest

from flows import etl
from pmflib.errors import ConfigError, PmfError
from pmflib.ranks import by_pairs, stored_selection
from pmflib.ranks.stored_selection import take_samples
from pmflib.selection.comparison import Comparison
from pmflib.selection.comparison_tables import draw_markdown
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.lineage import trace
from tasks import select as stage
from tasks.count import count
from tasks.fit import fit
from tasks.ingest import ingest
from tasks.select import COMPARISONS, select, settle
from tests.pipelines import as_wide, draw_codes, make_schema, summary_of

SIZES = (3, 2, 4, 2)


@pytest.fixture
def counted(pipeline, tmp_path, workers):
    """Configuration that leaves the rank open, and its dataset and counts; a hidden coin made them."""

    def make(n_rows=2000, codes=None, **sections):
        sections = {"model": {"rank": "auto"}, "store": {"folds": 8}, **sections}
        config = pipeline(make_schema(*SIZES), {}, **sections)
        codes = draw_codes(n_rows, SIZES) if codes is None else codes
        (tmp_path / "data" / "a.csv").write_text(as_wide(codes))
        dataset = ingest.fn(config, workers)
        return config, dataset, count.fn(config, dataset, workers)

    return make


def test_select__finds_the_coin_and_says_why(counted, workers):
    config, dataset, counts = counted()
    reference = select.fn(config, dataset, counts, workers)
    summary = summary_of(config, reference)
    assert summary["rank"] == summary["rank_by_pairs"] == 2
    assert summary["reasons"][0].startswith("by pairs: rank 2: ")
    assert summary["reasons"][-1].startswith("by samples: rank 2, pseudo-count ")
    settled = settle(config, reference)
    assert settled.model.settled_rank == 2
    assert settled.em == config.em
    # the lineage of the model leads to the choice
    store = Store(config.resolve("store"))
    start = fit.fn(settled, counts, reference)
    assert {"rank", "counts"} <= {step.role for step in trace(store, start)}


def test_select__same_artefact_on_other_workers_and_drawn_curve(counted, workers, monkeypatch):
    config, dataset, counts = counted(600)
    reference = select.fn(config, dataset, counts, workers)
    folder = Store(config.resolve("store")).locate(reference)
    content = json.loads((folder / COMPARISONS).read_text())
    assert content == summary_of(config, reference)["comparisons"]
    alone = stored_selection.select_rank  # type: ignore[attr-defined]
    monkeypatch.setattr(
        stored_selection,
        "select_rank",
        lambda counts, client, **options: alone(counts, **options),
    )
    monkeypatch.setattr(stage, "VERSION", stage.VERSION + 1)
    again = select.fn(config, dataset, counts, workers)
    assert again.identity != reference.identity
    assert again.digest == reference.digest
    comparisons = [Comparison.from_json(each) for each in content]
    assert [each.to_json() for each in comparisons] == content
    assert [each.unit for each in comparisons] == ["pair", "pair", "sample"]
    drawn = draw_markdown(comparisons)
    assert drawn.count("chosen |") == 3
    assert drawn.count("\n| ---: |") == 3
    assert "█" in drawn


def test_select__without_validation_folds_the_pairs_decide(counted, workers):
    config, dataset, counts = counted(800, evaluate={"validation_folds": 0, "test_folds": 1})
    reference = select.fn(config, dataset, counts, workers)
    summary = summary_of(config, reference)
    assert summary["rank"] == summary["rank_by_pairs"]
    assert summary["pseudo_count"] is None
    assert [each["unit"] for each in summary["comparisons"]] == ["pair", "pair"]


def test_select__wide_tables_are_judged_on_some_variables(counted, workers, monkeypatch):
    monkeypatch.setattr(stored_selection, "MAX_LEVELS", 8)
    monkeypatch.setattr(by_pairs, "MAX_LEVELS", 8)
    config, dataset, counts = counted(800)
    summary = summary_of(config, select.fn(config, dataset, counts, workers))
    assert re.fullmatch(
        "pairs of the [23] variables that are observed most, of 4", summary["reasons"][1]
    )


def test_select__nothing_to_hold_out(counted, workers):
    config, dataset, counts = counted(codes=np.full((50, 4), -1))
    with pytest.raises(PmfError, match="count with n_folds=16, or give a rank"):
        select.fn(config, dataset, counts, workers)


def test_take_samples__is_spread_over_the_blocks_and_bounded(counted):
    config, dataset, _ = counted(900)
    store = Store(config.resolve("store"))
    blocks = list_dataset_blocks(store, dataset, range(8))
    assert len(blocks) == 8
    schema = make_schema(*SIZES)
    assert len(take_samples(blocks, schema, 10_000)) == 900
    assert len(take_samples(blocks, schema, 80)) == 80
    assert take_samples([], schema, 80).shape == (0, 4)


def test_fit__refuses_a_rank_that_is_yet_to_be_chosen(counted):
    config, _, counts = counted(200)
    with pytest.raises(ConfigError, match=r"model\.rank is 'auto'; run the stage select first"):
        fit.fn(config, counts)


def test_run_to_model__chooses_the_rank_on_the_way(counted, workers, monkeypatch):
    config, _, _ = counted(600)
    for name in ("ingest", "count", "select", "fit", "refine"):
        monkeypatch.setattr(etl, name, getattr(etl, name).fn)
    stages: dict[str, Reference] = {}
    etl.run_to_counts(config, workers, stages)
    etl.run_to_model(config, workers, stages, {})
    assert list(stages) == ["dataset", "counts", "rank", "start", "model"]
    chosen = summary_of(config, stages["rank"])["rank"]
    assert summary_of(config, stages["model"])["rank"] == chosen
    fixed = config.model_copy(update={"model": config.model.model_copy(update={"rank": 3})})
    stages = {}
    etl.run_to_counts(fixed, workers, stages)
    etl.run_to_model(fixed, workers, stages, {})
    assert "rank" not in stages
