import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from pmflib.ingest import (
    SchemaOptions,
    SourceOptions,
    assemble_samples,
    combine_accounts,
    encode_wide,
    find_sources,
    spill_long,
)
from pmflib.store import list_blocks, read_block, read_origins
from pmflib.surveys.drafting import draft_schema

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def real_file(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"data set {name} is not here")
    return path


def encode_all(path, config, folder):
    (source,) = find_sources(str(path))
    schema = draft_schema([source], config).schema
    summary = encode_wide(
        source, schema, config, SchemaOptions(), n_folds=16, seed=1, folder=folder
    )
    codes = np.concatenate(
        [read_block(block).to_codes(schema.offsets) for block in list_blocks(folder / "samples")]
    )
    rows, _ = read_origins(folder / "samples")
    return schema, summary.to_json(), codes[np.argsort(rows)]


def test_pisa2009__every_answer_comes_back(tmp_path):
    path = real_file("pisa2009/pisaitems.csv.gz")
    schema, summary, codes = encode_all(path, SourceOptions(path="x", layout="wide"), tmp_path)
    header, *rows = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    assert schema.names == tuple(header)
    assert summary["rows_in"] == summary["rows_encoded"] == len(rows)
    for variable, column, written in zip(
        schema.variables, codes.T, zip(*rows, strict=True), strict=True
    ):
        # code -1 is the last
        labels = np.array([*variable.levels, ""], object)[column].tolist()
        missing = set(variable.missing)
        assert labels == ["" if text in missing else text for text in written]


def test_votes__file_without_header(tmp_path):
    path = real_file("votes/UCI_VOTERS.data")
    names = ("party", *(f"vote{n}" for n in range(16)))
    config = SourceOptions(path="x", layout="wide", columns=names)
    schema, summary, codes = encode_all(path, config, tmp_path)
    assert summary["rows_in"] == summary["samples"] == 435
    assert (codes == np.loadtxt(path, delimiter=",", dtype=int)).all()
    assert int((codes[:, 1:] == 2).sum()) == 392
    assert schema["party"].levels == ("0", "1")


def test_movielens__long_log_with_tabs_and_times(tmp_path):
    path = real_file("ml-100k/u.data.gz")
    config = SourceOptions(
        path="x",
        layout="long",
        sample="user",
        variable="movie",
        value="rating",
        time="ts",
        delimiter="\t",
        columns=("user", "movie", "rating", "ts"),
    )
    (source,) = find_sources(str(path))
    schema = draft_schema([source], config).schema
    assert schema.names == tuple(map(str, range(1, 1683)))
    assert set(schema.cardinalities.tolist()) == {5}
    policy = SchemaOptions()
    (tmp_path / "spill").mkdir()
    spilled = spill_long(source, schema, config, policy, n_buckets=4, folder=tmp_path / "spill")
    table, parts = np.zeros((943, 1682), int), []
    for bucket in range(4):
        out = tmp_path / str(bucket)
        out.mkdir()
        spills, names = [tmp_path / "spill"], [source.name]
        parts.append(
            assemble_samples(
                spills,
                names,
                (bucket, bucket + 1),
                schema,
                config,
                policy,
                n_folds=4,
                folder=out,
            )
        )
        users = np.array([int(user) for user in read_origins(out / "samples")[1]])
        codes = [
            read_block(block).to_codes(schema.offsets) for block in list_blocks(out / "samples")
        ]
        table[users - 1] = np.concatenate(codes) + 1
    total = combine_accounts([spilled], parts).to_json()
    assert (total["rows_in"], total["rows_quarantined"]) == (100_000, 0)
    want = np.zeros_like(table)
    user, movie, rating, _ = np.loadtxt(path, dtype=int).T
    want[user - 1, movie - 1] = rating
    assert (table == want).all()
    assert np.bincount(table.ravel())[1:].tolist() == [6110, 11370, 27145, 34174, 21201]
