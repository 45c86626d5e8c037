"""Nights of a pipeline that counts the pairs of some variables, and every command that reads them."""

import json
from typing import Any

import numpy as np
import pytest
import zarr

import pmflib as pmf
from pmflib.counts import PAIRS, StoredTables
from pmflib.store import list_records
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.reference import pair_table

MOVIES = 7
N_NEW = 10
CODES = draw_ratings(400, MOVIES)
# the fifth and the second movie are answered most
CODES[:, [0, 2, 3, 5, 6]] = np.where(
    np.random.default_rng(5).random((400, 5)) < 0.2, -1, CODES[:, [0, 2, 3, 5, 6]]
)


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A pipeline after a night, one with new users, and one that counts the pairs of other variables."""
    with pytest.MonkeyPatch.context() as patch:
        found = Nights(
            tmp_path_factory.mktemp("nights"),
            make_movies(MOVIES),
            patch,
            counts={"variables": 2},
            em={"max_passes": 3},
        )
        found.deliver("a.csv", CODES[:-N_NEW], range(400 - N_NEW))
        first = found.run()
        found.deliver("b.csv", CODES[-N_NEW:], range(400 - N_NEW, 400))
        second = found.run()
        names = ["v0", "v3", "v5"]
        found.configure(counts={"variables": names}, em={"max_passes": 3})
        yield found, [first, second, found.run()]


def load_counts(nights, number):
    record = list_records(nights.store, nights.config.name)[number - 1]
    return record, nights.store.locate(record.stages["counts"]) / PAIRS


def test_etl__counts_the_most_answered_and_says_so(nights):
    ran, facts = nights
    for number, night in enumerate(facts, 1):
        counted = [0, 3, 5] if number == 3 else [1, 4]
        codes = CODES[:-N_NEW] if number == 1 else CODES
        record, path = load_counts(ran, number)
        stored = StoredTables(path)
        assert stored.counted.tolist() == counted
        total = pmf.PairCounts.load_total(path).tables[0]
        assert np.array_equal(total, pair_table(codes[:, counted], [5] * len(counted)))
        assert night["pairs"]["variables"] == len(counted)
        assert record.facts["pairs"]["sentence"].startswith(
            f"pairs are counted of {len(counted)} of {MOVIES} variables, the "
        )
        model = pmf.JointPMF.load(ran.store.locate(record.stages["model"]) / "model")
        assert model.schema.n_variables == MOVIES
        marginals: Any = zarr.open_group(night["marginals"], mode="r", use_consolidated=True)
        assert marginals["variable"][...].tolist() == [f"v{each}" for each in counted]
        assert np.array_equal(np.triu(marginals["pair_count"][...]), total)
        assert marginals.attrs["lineage"]["counts"] == record.stages["counts"].digest
    # the second night adds to the counts of the first
    _, path = load_counts(ran, 2)
    assert len(StoredTables(path).base) > 0


def test_guards__of_pairs_are_skipped_with_the_reason(nights):
    _, (_, second, _) = nights
    (skipped,) = {
        each["sentence"] for each in second["quality"] if each["guard"] == "dependence_drift"
    }
    assert "pairs of some variables are not counted" in skipped


def test_commands__read_counts_of_a_selection(nights, call, tmp_path):
    ran, _ = nights
    sentence = f"Pairs are counted of 3 of {MOVIES} variables, the named ones"
    code, out, err = call("report", ran.path, "--output", tmp_path / "page.html")
    assert (code, err) == (0, "")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert sentence in page
    code, out, err = call("status", ran.path)
    assert (code, err) == (0, "")
    assert sentence in out
    code, out, err = call("diff", ran.path, "1", "3", "--json")
    assert (code, err) == (0, "")
    assert "pairs are not compared" in str(json.loads(out))
    # a pair that was not counted is counted in the samples
    shares = {}
    for source in ("counts", "model"):
        code, out, err = call("query", ran.path, "P(v1=4, v2=4)", "--from", source, "--json")
        assert (code, err) == (0, "")
        shares[source] = json.loads(out)
    both = (CODES[:, [1, 2]] >= 0).all(axis=1)
    assert f"{(CODES[both][:, [1, 2]] == 4).all(axis=1).mean():.3f}" in str(shares["counts"])
    code, out, err = call("plan", ran.path)
    assert code == 0
    assert f"pairs are counted of 3 of {MOVIES} variables" in out + err


@pytest.mark.needs("surveys.sites")
def test_export__says_which_variables_a_file_leaves_out(nights, call, tmp_path):
    ran, _ = nights
    words = ("counts", "export", ran.path, "--output", tmp_path / "site.counts")
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert f"The file has 3 of {MOVIES} variables" in " ".join(out.split())
    _, out, _ = call(*words, "--json")
    assert json.loads(out)["left_out"] == MOVIES - 3
