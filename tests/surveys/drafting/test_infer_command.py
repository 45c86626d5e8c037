import json

import numpy as np
import pytest

from pmflib.cluster import memory
from pmflib_tasks.config import load_config

RNG = np.random.default_rng(2)


def write_log(path, n_users=60, n_items=40, n_rows=1200):
    cells = RNG.permutation(n_users * n_items)[:n_rows]
    rows = "".join(f"u{cell // n_items},i{cell % n_items},{RNG.integers(1, 6)}\n" for cell in cells)
    path.write_text(f"who,what,stars\n{rows}")


def test_infer__a_long_log_is_named_with_the_options_that_draft_it(call, tmp_path):
    write_log(tmp_path / "a.csv")
    code, out, _ = call("infer", "a.csv")
    assert code == 0
    command = out[out.index("infer a.csv") :].split("\n")[0]
    assert command.split()[2:-2] == "--sample who --variable what --value stars".split()
    code, out, _ = call(*command.split(), "--json")
    assert code == 0
    assert (json.loads(out)["variables"], json.loads(out)["levels"]) == (40, 200)
    code, out, _ = call("infer", "a.csv", "--output", "again", "--json")
    assert json.loads(out)["long_flags"] == "--sample who --variable what --value stars"


def test_infer_and_check__rows_that_come_again_are_said(call, tmp_path):
    rows = [",".join(map(str, row)) for row in RNG.integers(0, 4, (300, 6)).tolist()]
    (tmp_path / "data").mkdir()
    for name, lines in (("a", rows[:200]), ("b", rows)):
        (tmp_path / "data" / f"{name}.csv").write_text("\n".join(["p,q,r,s,t,u", *lines]) + "\n")
    for command in (["infer", "data"], ["check", "data", "--schema", "schema.json"]):
        code, out, _ = call(*command)
        assert code == 0
        assert "of 500 rows come again" in out
        assert "in b.csv" in out
    (tmp_path / "data" / "b.csv").unlink()
    assert "come again" not in call("check", "data", "--schema", "schema.json")[1]


@pytest.mark.parametrize("name", ["W_FSTR", "xx"])
def test_infer__replicate_weights_are_no_variables(name, call, tmp_path):
    header = ["q1", "q2", "w", *(f"{name}{n + 1}" for n in range(12))]
    rows = [[*RNG.integers(0, 3, 2), *(RNG.gamma(2, 1, 13) + 0.01).round(3)] for _ in range(300)]
    lines = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "a.csv").write_text(f"{','.join(header)}\n{lines}\n")
    given = ["--replicates", "xx*", "--replicate-method", "Fay", "--fay", "0.5"]
    code, out, _ = call("infer", "a.csv", "--weight", "w", *(given if name == "xx" else []))
    assert code == 0
    assert out.startswith("2 variables")
    comment = "" if name == "xx" else "# "
    drafted = (tmp_path / "pipeline.toml").read_text()
    assert f'\n{comment}replicates = "{name}*"' in drafted
    assert f'\n{comment}replicate_method = "Fay"' in drafted
    assert f"\n{comment}fay = 0.5" in drafted
    # what is proposed is read
    (tmp_path / "pipeline.toml").write_text(
        drafted.replace("# replic", "replic").replace("# fay", "fay")
    )
    assert load_config(tmp_path / "pipeline.toml").source.replicates == f"{name}*"


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize(
    ("bad", "remedy"),
    [("1,234.5", "decimal"), ("0", "rows")],
)
def test_infer__weights_that_would_go_to_quarantine_are_named(bad, remedy, layout, call, tmp_path):
    rows = [f'p{n},q{n % 3},{n % 4 % 2},"{bad if n < 5 else 1 + n}"' for n in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["id,item,x,w", *rows]) + "\n")
    long = ["--variable", "item", "--value", "x"] if layout == "long" else []
    code, out, _ = call("infer", "a.csv", "--sample", "id", *long, "--weight", "w")
    assert code == 0
    text = " ".join(out.split())
    assert f"w: 5 of 60 values, as '{bad}'" in text
    assert remedy in text


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "find_memory_limit", lambda: 1 << 20)


def test_infer__a_table_too_wide_is_refused_and_nothing_is_written(call, tmp_path, small_machine):
    columns = ",".join(f"q{n}" for n in range(40))
    rows = "\n".join(",".join(map(str, RNG.integers(0, 9, 40))) for _ in range(99))
    (tmp_path / "a.csv").write_text(f"{columns}\n{rows}\n")
    code, _, err = call("infer", "a.csv")
    assert code == 5
    assert "360 levels" in err
    assert not (tmp_path / "schema.json").exists()


def test_run__a_table_too_wide_is_refused_before_it_is_read(call, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n" + "x,y\nu,v\n" * 50)
    assert call("infer", "a.csv")[0] == 0
    monkeypatch.setattr(memory, "find_memory_limit", lambda: 1 << 10)
    assert call("run", "pipeline.toml")[0] == 5
    assert not list((tmp_path / "store").glob("datasets/*"))
    assert not list((tmp_path / "store").rglob("*.parquet"))
