import json

import pytest

from pmflib.base import Comparison, ConfigError, Progress, listen
from pmflib.fits import fit_samples
from pmflib.fits.ranks import by_samples, fit_runs
from pmflib.store import trace
from pmflib_tasks.stages import COMPARISONS, list_steps, set_rank
from pmflib_tasks.stages import select as stage
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.select import select
from pmflib_tasks.steps import Walk
from tests.pipelines import as_wide, draw_codes, make_schema, store_of, summary_of

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
    assert summary["rank"] == 2
    assert summary["judged_by_samples"]
    settled = set_rank(config, reference)
    assert settled.model.chosen_rank == 2
    assert settled.em == config.em
    # the lineage of the model leads to the choice
    store = store_of(config)
    start = fit.fn(settled, counts, reference)
    assert {"rank", "counts"} <= {step.role for step in trace(store, start)}


def test_select__same_artefact_on_other_workers_and_drawn_curve(counted, workers, monkeypatch):
    config, dataset, counts = counted(600)
    reference = select.fn(config, dataset, counts, workers)
    folder = store_of(config).locate(reference)
    content = json.loads((folder / COMPARISONS).read_text())
    assert content == summary_of(config, reference)["comparisons"]
    alone = stage.select_fit  # type: ignore[attr-defined]
    monkeypatch.setattr(
        stage,
        "select_fit",
        lambda *given, client, **options: alone(*given, **options),
    )
    monkeypatch.setattr(stage, "VERSION", stage.VERSION + 1)
    again = select.fn(config, dataset, counts, workers)
    assert again.identity != reference.identity
    assert again.digest == reference.digest
    comparisons = [Comparison.from_json(each) for each in content]
    assert [each.to_json() for each in comparisons] == content
    assert [each.unit for each in comparisons] == ["sample"]


def test_fit__refuses_a_rank_that_is_yet_to_be_chosen(counted):
    config, _, counts = counted(200)
    with pytest.raises(ConfigError, match=r"model\.rank is 'auto'"):
        fit.fn(config, counts)


def test_walk__chooses_the_rank_on_the_way(counted, workers):
    config, _, _ = counted(600)
    walk = Walk(config, list_steps(), workers)
    walk.reach("counts", "model")
    assert list(walk.stages) == ["dataset", "counts", "rank", "start", "model"]
    chosen = summary_of(config, walk.stages["rank"])["rank"]
    assert summary_of(config, walk.stages["model"])["rank"] == chosen
    fixed = config.model_copy(update={"model": config.model.model_copy(update={"rank": 3})})
    walk = Walk(fixed, list_steps(), workers)
    walk.reach("counts", "model")
    assert "rank" not in walk.stages


def test_select__a_choice_that_was_killed_goes_on_from_its_fits(counted, workers, monkeypatch):
    monkeypatch.setattr(fit_runs, "KEPT_SECONDS", 0.0)
    config, dataset, counts = counted(600)
    store, heard = store_of(config), []

    def stop(progress):
        heard.append(progress.text)
        if progress.done == 9:
            raise KeyboardInterrupt

    with listen(stop, Progress), pytest.raises(KeyboardInterrupt):
        select.fn(config, dataset, counts, workers)
    (work,) = [each for each in (store.root / "work").iterdir() if list(each.glob("samples-*"))]
    n_kept = len(list(work.glob("samples-*.npz")))
    assert n_kept >= 9
    made = []
    monkeypatch.setattr(
        by_samples, "fit_samples", lambda item: (made.append(item[1].rank), fit_samples(item))[1]
    )
    reference = select.fn(config, dataset, counts, workers)
    n_fits = len(made)
    assert not work.exists()
    monkeypatch.setattr(stage, "VERSION", stage.VERSION + 1)
    again = select.fn(config, dataset, counts, workers)
    assert again.digest == reference.digest
    # a fit that was interrupted while it was saved may be made again
    assert len(made) - n_fits >= n_fits > 0


def test_select__members_target_and_budget_are_options_of_the_choice(counted, workers):
    config, dataset, counts = counted(400)
    plain = select.fn(config, dataset, counts, workers)
    em = config.em.model_copy(update={"target": config.em.target or "v1", "members": 2})
    judged = config.model_copy(update={"em": em})
    summary = summary_of(judged, select.fn(judged, dataset, counts, workers))
    # of one variable of two levels, and not of all four
    assert summary["comparisons"][-1]["points"][0]["score"] > -0.8
    hurried = select.fn(config.shorten_rank_choice(), dataset, counts, workers)
    assert hurried.identity != plain.identity
