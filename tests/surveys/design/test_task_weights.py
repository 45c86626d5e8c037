"""Weights of samples from a column of the files to counts, night by night."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import TableRequest, count_stored_tables
from pmflib.answering.evidence import count_designed
from pmflib.base import ConfigError, DenseBlock, PmfError, SchemaError
from pmflib.counts import PairCounts
from pmflib.em import StoredSamples
from pmflib.ingest import DatasetAccount, read_quarantine
from pmflib.store import (
    find_last_run,
    list_dataset_blocks,
    read_blocks,
    read_sampling_units,
    scale_blocks,
)
from pmflib.surveys.design.sample_designs import StoredUnits
from pmflib_tasks.erasure.erase import erase
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.select import select
from tests.pipelines import (
    as_wide,
    draw_codes,
    load_model,
    make_schema,
    record_night,
    run_to_model,
    store_of,
    summary_of,
)

SIZES = [2, 3, 4]


def find_sizes(blocks, requests):
    """Effective numbers of samples of tables by sampling units."""
    found = count_stored_tables(blocks, make_schema(*SIZES), requests, design=StoredUnits())
    return found.weighted.sizes


def write_weighted(path, codes, weights, names=None):
    """CSV with a column of weights behind the others, as texts."""
    lines = as_wide(codes, names).splitlines()
    rows = [f"{line},{weight}" for line, weight in zip(lines[1:], weights, strict=True)]
    path.write_text("\n".join([f"{lines[0]},w", *rows]) + "\n")


def draw(n_rows, seed):
    rng = np.random.default_rng(seed)
    return draw_codes(n_rows, SIZES, seed=seed), (rng.gamma(2.0, 1.0, n_rows) + 0.01).round(4)


def load_counts(config, counts):
    return PairCounts.load(store_of(config).locate(counts) / "pairs")


def count_all(config, workers, base=None):
    """References to the dataset and its counts."""
    dataset = ingest.fn(config, workers, base=base[0] if base else None)
    return dataset, count.fn(config, dataset, workers, base)


def group_by(codes, weights):
    """Sums of weights of all pairs of levels, in units, for each column of weights: the obvious way."""
    units = np.rint(np.asarray(weights, float) * 1e6).astype(np.int64)
    offsets = np.cumsum([0, *SIZES])
    tables = np.zeros((*units.shape[1:], offsets[-1], offsets[-1]), np.int64)
    for row, each in zip(codes, units, strict=True):
        held = [offsets[v] + code for v, code in enumerate(row) if code >= 0]
        for place, a in enumerate(held):
            for b in held[place:]:
                tables[..., a, b] += each
    return tables


@pytest.mark.parametrize("named", [False, True])
def test_count__weights_are_added_up_exactly(named, pipeline, tmp_path, workers):
    given = {"weight": "w", **({"sample": "id"} if named else {})}
    config = pipeline(make_schema(*SIZES), given)
    codes, weights = draw(400, 1)
    names = [f"p{row}" for row in range(400)] if named else None
    write_weighted(tmp_path / "data" / "a.csv", codes, weights, names)
    counts = load_counts(config, count_all(config, workers)[1])
    assert (counts.tables.sum(axis=0) == group_by(codes, weights)).all()
    assert counts.n_rows.sum() == 400
    assert counts.weights.decimals == 6
    units = np.rint(weights * 1e6).astype(np.int64)
    assert sum(counts.weights.totals) == units.sum()
    assert sum(counts.weights.squares) == sum(int(each) ** 2 for each in units)


def test_count__equal_weights_and_whole_weights(pipeline, tmp_path, workers):
    codes, _ = draw(300, 2)
    repeats = np.random.default_rng(3).integers(1, 6, 300)
    names = [f"p{row}" for row in range(300)]
    config = pipeline(make_schema(*SIZES), {"sample": "id", "weight": "w"})
    write_weighted(tmp_path / "data" / "a.csv", codes, np.full(300, 2.5), names)
    equal = load_counts(config, count_all(config, workers)[1]).to_samples()
    write_weighted(tmp_path / "data" / "a.csv", codes, repeats, names)
    whole = load_counts(config, count_all(config, workers)[1])
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes, names))
    plain = pipeline(make_schema(*SIZES), {"sample": "id"})
    bare = load_counts(plain, count_all(plain, workers)[1])
    assert (equal.tables == bare.tables).all()
    assert equal.tables.dtype == np.int64
    assert (equal.n_rows == bare.n_rows).all()
    again = pmf.count_pairs(np.repeat(codes, repeats, axis=0), SIZES)
    assert (whole.tables.sum(axis=0) == 10**6 * again.tables.sum(axis=0)).all()


def test_ingest__rows_without_a_weight_go_to_quarantine(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), {"weight": "w"})
    codes, weights = draw(20, 4)
    bad = ["0", "", "-1", "abc", "nan", "inf", "0.0000001", "1e30"]
    write_weighted(tmp_path / "data" / "a.csv", codes, [*weights[:12], *bad])
    dataset, counts = count_all(config, workers)
    account = summary_of(config, dataset)
    assert (account["rows_in"], account["rows_encoded"]) == (20, 12)
    assert account["reasons"] == {"bad_weight": 8}
    store = store_of(config)
    rejected = [row for batch in read_quarantine(store, dataset) for row in batch.to_pylist()]
    assert [(row["row"], row["reason"], row["column"]) for row in rejected] == [
        (row, "bad_weight", "w") for row in range(13, 21)
    ]
    found = load_counts(config, counts)
    assert (found.tables.sum(axis=0) == group_by(codes[:12], weights[:12])).all()


def test_count__nights_add_supersede_and_lose_weights(pipeline, tmp_path, workers):
    config = pipeline(make_schema(*SIZES), {"sample": "id", "weight": "w"})
    codes, weights = draw(500, 5)
    names = [f"p{row}" for row in range(500)]
    data = tmp_path / "data"
    for name, part in (("a", slice(200)), ("d", slice(200, 430))):
        write_weighted(data / f"{name}.csv", codes[part], weights[part], names[part])
    first = count_all(config, workers)
    # two files of one night: new people, and other answers and weights of people who were there
    write_weighted(data / "b.csv", codes[430:465], weights[430:465], names[430:465])
    write_weighted(data / "c.csv", codes[465:], weights[465:], [*names[:20], *names[480:]])
    second = count_all(config, workers, first)
    found = load_counts(config, second[1])
    kept = np.r_[20:500]
    assert (found.tables.sum(axis=0) == group_by(codes[kept], weights[kept])).all()
    assert summary_of(config, second[1])["samples_removed"] == 20
    units = np.rint(weights[kept] * 1e6).astype(np.int64)
    assert sum(found.weights.totals) == units.sum()
    assert sum(found.weights.squares) == sum(int(each) ** 2 for each in units)
    (data / "b.csv").unlink()
    third = count_all(config, workers, second)
    kept = np.r_[20:430, 465:500]
    lost = load_counts(config, third[1])
    assert (lost.tables.sum(axis=0) == group_by(codes[kept], weights[kept])).all()
    # the same as of a store that has seen all of it at once, bit for bit
    fresh = pipeline(
        make_schema(*SIZES), {"sample": "id", "weight": "w"}, store={"path": "new", "folds": 4}
    )
    dataset = ingest.fn(fresh, "")
    anew = load_counts(fresh, count.fn(fresh, dataset))
    assert (anew.tables == lost.tables).all()
    assert anew.weights == lost.weights


def test_count__large_weights(pipeline, tmp_path, workers):
    codes, weights = draw(50, 6)
    weights[7] = 1e9
    config = pipeline(make_schema(*SIZES), {"weight": "w"})
    write_weighted(tmp_path / "data" / "a.csv", codes, weights)
    counts = load_counts(config, count_all(config, workers)[1])
    assert (counts.tables.sum(axis=0) == group_by(codes, weights)).all()
    # each may be kept, and their sum may not
    many = np.tile(codes, (30, 1))
    write_weighted(tmp_path / "data" / "a.csv", many, np.full(len(many), 9e9))
    with pytest.raises(PmfError, match="weight"):
        count_all(config, workers)


def test_weights_that_do_not_go(pipeline, tmp_path, workers):
    codes, weights = draw(20, 7)
    config = pipeline(make_schema(*SIZES), {"weight": "v1"})
    write_weighted(tmp_path / "data" / "a.csv", codes, weights)
    with pytest.raises(SchemaError, match="v1"):
        ingest.fn(config, workers)


def fit_weighted(config, workers):
    stages = run_to_model(config, workers)
    return load_model(config, stages["model"]), stages


EM = {"em": {"max_passes": 30, "pseudo_count": 0.5}, "model": {"rank": 2, "method": "auto"}}


def test_refine__equal_weights_are_no_weights(pipeline, tmp_path, workers):
    codes, _ = draw(600, 8)
    (tmp_path / "data").mkdir()
    write_weighted(tmp_path / "data" / "a.csv", codes, np.full(600, 0.125))
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **EM)
    weighted, stages = fit_weighted(config, workers)
    scored = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    (tmp_path / "data" / "a.csv").write_text(as_wide(codes))
    plain_config = pipeline(make_schema(*SIZES), {}, **EM)
    plain, others = fit_weighted(plain_config, workers)
    assert (weighted.prior == plain.prior).all()
    assert (weighted.factors == plain.factors).all()
    expected = evaluate.fn(plain_config, others["dataset"], others["counts"], others["model"])
    # which cells are hidden depends on the names of partitions, and the log-likelihood does not
    measure = "log_likelihood_per_row"
    assert summary_of(config, scored)[measure] == summary_of(plain_config, expected)[measure]


def test_select__the_rank_is_chosen_with_weights(pipeline, tmp_path, workers):
    codes, weights = draw(800, 11)
    (tmp_path / "data").mkdir()
    sections = {"model": {"rank": "auto"}, "em": {"max_passes": 20}}
    found = []
    for given in (np.full(800, 3), weights, None):
        if given is None:
            (tmp_path / "data" / "a.csv").write_text(as_wide(codes))
        else:
            write_weighted(tmp_path / "data" / "a.csv", codes, given)
        config = pipeline(make_schema(*SIZES), {} if given is None else {"weight": "w"}, **sections)
        dataset, counts = count_all(config, workers)
        found.append(summary_of(config, select.fn(config, dataset, counts, workers)))
    equal, weighted, plain = found
    assert equal["comparisons"] == plain["comparisons"]
    assert weighted["comparisons"] != plain["comparisons"]
    assert weighted["rank"] >= 1


def test_refine__weights_are_those_of_samples_in_memory(pipeline, tmp_path, workers):
    rng = np.random.default_rng(9)
    codes, weights = draw(900, 9)
    # those who were drawn more often weigh less
    weights = np.where(codes[:, 0] == 1, 1.0, 4.0) * rng.uniform(0.5, 1.5, 900).round(3)
    (tmp_path / "data").mkdir()
    write_weighted(tmp_path / "data" / "a.csv", codes, weights)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **EM)
    model, stages = fit_weighted(config, workers)
    stored = StoredSamples.open(store_of(config), stages["dataset"], model.schema, range(4))
    block = stored.read_block()
    n_effective = weights.sum() ** 2 / (weights**2).sum()
    assert stored.n_samples == pytest.approx(round(n_effective))
    result = pmf.fit_em(stored, model, pseudo_count=0.5, max_passes=400, tol=1e-12)
    again = pmf.fit_em(
        block.codes,
        model,
        weight=np.rint(block.weights * weights.sum() / round(n_effective) * 1e6) / 1e6,
        pseudo_count=0.5,
        max_passes=400,
        tol=1e-12,
    )
    assert any("are worth" in note for note in result.notes)
    assert np.abs(result.model.factors - again.model.factors).max() < 1e-6
    scores = evaluate.fn(config, stages["dataset"], stages["counts"], stages["model"], workers)
    blocks = list_dataset_blocks(store_of(config), stages["dataset"], config.fold_split.test)
    tested = DenseBlock(*read_weighted(scale_blocks(blocks), model.schema))
    expected = (tested.weights @ model.log_prob(tested.codes)) / tested.weights.sum()
    found = summary_of(config, scores)
    assert found["log_likelihood_per_row"] == pytest.approx(expected)
    assert found["rows"] == pytest.approx(tested.weights.sum())


def read_weighted(blocks, schema):
    read = list(read_blocks(blocks))
    codes = np.concatenate([each.to_codes(schema.offsets) for each in read])
    return codes, np.concatenate([each.weights for each in read])


def test_answers_from_counts_are_weighted(pipeline, tmp_path, workers):
    codes, weights = draw(500, 10)
    (tmp_path / "data").mkdir()
    write_weighted(tmp_path / "data" / "a.csv", codes, weights)
    config = pipeline(make_schema(*SIZES), {"weight": "w"}, **EM)
    dataset = ingest.fn(config, workers)
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    request = TableRequest((0, 2), ((1, (0, 2)),))
    found = count_stored_tables(blocks, make_schema(*SIZES), [request, TableRequest(())])
    units = np.rint(weights * 1e6).astype(np.int64)
    expected = np.zeros((2, 4), np.int64)
    for row, unit in zip(codes, units, strict=True):
        if row[0] >= 0 and row[2] >= 0 and row[1] in (0, 2):
            expected[row[0], row[2]] += unit
    assert (found.weighted.sums[0] == expected).all()
    assert found.weighted.sums[1] == units.sum()
    assert found.tables[1] == 500
    tables, n = found.to_samples()
    assert n == round(weights.sum() ** 2 / (weights**2).sum())
    assert tables[1] == pytest.approx(n, abs=0.5)
    # as a design of weights in memory has it, where each row is a unit
    design = pmf.surveys.SurveyDesign(weights)
    kept = (codes[:, [0, 2]] >= 0).all(axis=1) & np.isin(codes[:, 1], (0, 2))
    cells = np.where(kept, 4 * codes[:, 0] + codes[:, 2], -1)
    shares, worth = design.find_effective(cells, 8)
    assert tables[0].ravel() == pytest.approx(shares * worth, rel=1e-6)
    # each level of a variable has the effective number that it has alone
    grouped = TableRequest((1, 0), (), 1)
    alone = [TableRequest((0,), ((1, (level,)),)) for level in range(3)]
    both = count_stored_tables(blocks, make_schema(*SIZES), [grouped, *alone]).to_samples()[0]
    np.testing.assert_allclose(both[0], np.stack(both[1:]), rtol=1e-9)
    by_design = count_designed(codes, make_schema(*SIZES), design, [grouped])[0][0]
    np.testing.assert_allclose(both[0], by_design, rtol=1e-6)


def test_ingest__the_account_has_what_weights_add_up_to(pipeline, tmp_path, workers):
    codes, weights = draw(200, 12)
    config = pipeline(make_schema(*SIZES), {"weight": "w"})
    write_weighted(tmp_path / "data" / "a.csv", codes, weights)
    account = DatasetAccount.from_json(summary_of(config, ingest.fn(config, workers)))
    assert account.weights.total == pytest.approx(weights.sum())
    assert account.weights.n_effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


def draw_units(n_rows, n_units, seed):
    """Codes that units differ in, weights, and region and school of each row."""
    rng = np.random.default_rng(seed)
    school = rng.integers(0, n_units, n_rows)
    codes, weights = draw(n_rows, seed)
    codes[:, 0] = np.where(rng.random(n_rows) < 0.7, school % 2, codes[:, 0])
    return codes, weights, school % 3, school


def write_designed(path, codes, weights, region, school, names=None):
    lines = as_wide(codes, names).splitlines()
    parts = zip(lines[1:], region, school, weights, strict=True)
    rows = [f"{line},r{a},s{b},{weight}" for line, a, b, weight in parts]
    path.write_text("\n".join([f"{lines[0]},region,school,w", *rows]) + "\n")


DESIGN = {"weight": "w", "stratum": "region", "psu": "school"}


@pytest.mark.parametrize("named", [False, True])
def test_ingest__units_are_in_one_fold_each(named, pipeline, tmp_path, workers):
    codes, weights, region, school = draw_units(600, 40, 13)
    config = pipeline(make_schema(*SIZES), DESIGN | ({"sample": "id"} if named else {}))
    for name, part in (("a", slice(300)), ("b", slice(300, 600))):
        ids = [f"p{row}" for row in range(600)][part] if named else None
        of_rows = codes[part], weights[part], region[part], school[part]
        write_designed(tmp_path / "data" / f"{name}.csv", *of_rows, ids)
    dataset = ingest.fn(config, workers)
    blocks = list_dataset_blocks(store_of(config), dataset, None)
    folds = {}
    for block in blocks:
        for stratum, unit in read_sampling_units(block).tolist():
            folds.setdefault((stratum, unit), set()).add(block.fold)
    assert len(folds) == len(set(school.tolist()))
    assert all(len(each) == 1 for each in folds.values())
    assert len(set.union(*folds.values())) == 4


def test_answers_allow_for_units(pipeline, tmp_path, workers):
    codes, weights, region, school = draw_units(600, 40, 14)
    config = pipeline(make_schema(*SIZES), DESIGN, **EM)
    write_designed(tmp_path / "data" / "a.csv", codes, weights, region, school)
    blocks = list_dataset_blocks(store_of(config), ingest.fn(config, workers), None)
    request = TableRequest((0,), ((2, (0, 1, 3)),))
    (found,) = find_sizes(blocks, [request])
    cells = np.where(np.isin(codes[:, 2], (0, 1, 3)), codes[:, 0], -1)
    by_units = pmf.surveys.SurveyDesign(weights, stratum=region, psu=school).find_effective(
        cells, 2
    )[1]
    by_weights = pmf.surveys.SurveyDesign(weights).find_effective(cells, 2)[1]
    assert found == pytest.approx(by_units)
    assert found < 0.7 * by_weights


def test_units__corner_cases(pipeline, tmp_path, workers):
    codes, weights, _, school = draw_units(200, 9, 15)
    config = pipeline(make_schema(*SIZES), DESIGN, **EM)
    request = TableRequest((0,))

    def find(region, school):
        write_designed(tmp_path / "data" / "a.csv", codes, weights, region, school)
        dataset = ingest.fn(config, workers)
        blocks = list_dataset_blocks(store_of(config), dataset, None)
        return find_sizes(blocks, [request]), summary_of(config, dataset)

    one = np.zeros(200, int)
    # a single unit shows no spread
    assert find(one, one)[0] is None
    in_one_stratum = pmf.surveys.SurveyDesign(weights, psu=school).find_effective(codes[:, 0], 2)[1]
    assert find(one, school)[0] == pytest.approx([in_one_stratum])
    # a stratum with a single unit is taken with another
    lone = (school == 0).astype(int)
    joined = pmf.surveys.SurveyDesign(weights, stratum=lone, psu=school).find_effective(
        codes[:, 0], 2
    )[1]
    assert find(lone, school)[0] == pytest.approx([joined])
    text = (tmp_path / "data" / "a.csv").read_text().replace(",s3,", ",,", 1)
    (tmp_path / "data" / "a.csv").write_text(text)
    assert summary_of(config, ingest.fn(config, workers))["reasons"] == {"no_unit": 1}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"psu": "school"}, "weight"),
        ({"weight": "w", "stratum": "region"}, "psu"),
        ({"weight": "w", "replicates": "W_FSTR*"}, "replicates"),
    ],
)
def test_config__designs_that_are_not_whole(given, what, pipeline):
    with pytest.raises(ConfigError, match=what):
        pipeline(make_schema(*SIZES), given)


def test_erase__weights_and_units_go_with_their_samples(pipeline, tmp_path, workers):
    codes, weights, region, school = draw_units(300, 20, 16)
    config = pipeline(make_schema(*SIZES), DESIGN | {"sample": "id"})
    names = [f"p{row}" for row in range(300)]
    write_designed(tmp_path / "data" / "a.csv", codes, weights, region, school, names)
    dataset, counts = count_all(config, workers)
    store = store_of(config)
    stages = {"dataset": dataset, "counts": counts}
    record_night(config, stages)
    erase(config, ["p3", "p7", "p200"])
    last = find_last_run(store, config.name).stages
    kept = np.delete(np.arange(300), [3, 7, 200])
    found = load_counts(config, last["counts"])
    assert (found.tables.sum(axis=0) == group_by(codes[kept], weights[kept])).all()
    units = np.rint(weights[kept] * 1e6).astype(np.int64)
    assert sum(found.weights.totals) == units.sum()
    account = DatasetAccount.from_json(summary_of(config, last["dataset"]))
    assert account.weights == found.weights.merge()
    blocks = list_dataset_blocks(store, last["dataset"], None)
    (size,) = find_sizes(blocks, [TableRequest((0,))])
    design = pmf.surveys.SurveyDesign(weights[kept], stratum=region[kept], psu=school[kept])
    assert size == pytest.approx(design.find_effective(codes[kept, 0], 2)[1])
